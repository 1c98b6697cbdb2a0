"""What becomes of leases, step by step."""

import numpy as np
import pytest

from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.lease import (
    Lease,
    NodeSet,
    Terms,
    TermsError,
)
from secondary_scheduler.leases.scheduling.planned_starts import (
    UnpausableError,
)
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.policies import (
    MostSlack,
    NoPreemption,
)
from secondary_scheduler.leases.scheduling.pricing import Adaptive
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.model.lease_order import Aged, FirstCome, Priority
from secondary_scheduler.model.lease_states import (
    IllegalTransitionError,
    LeaseState,
)
from tests.unit.leases.scheduling.builders import NEED, Run, lease

#: 1024 MB take 21 s to save, and as long to load.
SUSPENDS, MOVES = 21, 11


def times(one):
    return one.started, one.ended


# -- the queue

def test_who_waits_begins_when_there_is_room():
    run = Run(2, Settings(suspension=False))
    first, second = lease('a', 2, 100), lease('b', 1, 50)
    run.submit(first, second)
    run.until(200)
    assert times(first) == (0, 100)
    assert times(second) == (100, 150)
    assert run.story['b'] == ['pending', 'queued', 'scheduled', 'ready',
                              'active', 'done']


def test_a_short_one_overtakes_who_is_promised_a_time():
    run = Run(2, Settings(suspension=False))
    one, wide, short, long = (lease('a', 1, 100), lease('b', 2, 10),
                              lease('c', 1, 100), lease('d', 1, 101))
    run.submit(one, wide, short, long)
    run.until(300)
    assert times(wide) == (100, 110)
    assert times(short) == (0, 100)
    assert times(long) == (110, 211)


@pytest.mark.parametrize('reservations, begin', (
    (0, (100, 110, 120, 120)), (1, (100, 115, 0, 125)),
    (2, (100, 110, 120, 0)), (None, (100, 110, 120, 0))))
def test_backfilling(reservations, begin):
    """Who waits delays none of those that are promised a time.

    Long would delay third, but not second; nobody passes who waits if no time
    is promised.
    """
    run = Run(3, Settings(suspension=False, reservations=reservations))
    _, *waiting = leases = [
        lease('first', 2, 100), lease('second', 2, 10), lease('third', 3, 10),
        lease('long', 1, 115), lease('short', 1, 50)]
    run.submit(*leases)
    run.until(500)
    assert tuple(one.started for one in waiting) == begin


@pytest.mark.parametrize('reservations', (2, None))
def test_an_early_end_puts_no_promise_off(reservations):
    """Wide could begin at 50, but would be in the way of what is promised."""
    run = Run(3, Settings(suspension=False, reservations=reservations))
    first, second, wide, small = (
        lease('first', 2, 100), lease('second', 1, 50), lease('wide', 3, 100),
        lease('small', 1, 50))
    run.submit(first, second, wide, small)
    assert (wide.booking.begin, small.booking.begin) == (100, 50)
    run.finish(first, 10)
    assert (wide.booking.begin, small.started) == (100, 10)


def test_an_early_end_pulls_deadlines_forward():
    """Who may not begin yet is left where it is."""
    run = Run(1, Settings())
    first = lease('a', 1, 1000, deadline=2000)
    second = lease('b', 1, 500, deadline=5000)
    third = lease('c', 1, 500, start=300, deadline=5000)
    run.submit(first, second, third)
    assert [one.booking.begin for one in (second, third)] == [1000, 1500]
    run.finish(first, 100)
    assert times(second) == (100, None)
    assert third.booking.begin == 1500
    run.finish(second, 200)
    run.submit(lease('d', 1, 10), at=400)
    run.until(1000)
    assert times(third) == (410, 910)


def test_an_early_end_pulls_forward():
    run = Run(1, Settings(suspension=False))
    first, second = lease('a', 1, 1000), lease('b', 1, 50)
    run.submit(first, second)
    run.finish(first, 30)
    run.until(100)
    assert times(first) == (0, 30) and first.served == 30
    assert times(second) == (30, 80)


def test_vms_are_shut_down_before_others_begin():
    run = Run(1, Settings(suspension=False,
                          durations=OperationTimes(shutdown=10)))
    first, second = lease('a', 1, 100), lease('b', 1, 100)
    run.submit(first, second)
    run.finish(first, 60)
    run.until(300)
    assert times(first) == (0, 60)
    assert times(second) == (70, 170)


def test_who_fits_no_empty_site_is_rejected():
    run = Run(2)
    one = run.submit(lease('a', 3, 10))
    assert one.state is LeaseState.REJECTED
    assert 'room for 2' in one.reason


def test_only_who_runs_can_have_ended():
    run = Run(1)
    run.submit(lease('a', 1, 10))
    waiting = run.submit(lease('b', 1, 10))
    with pytest.raises(IllegalTransitionError, match='it is suspended|queued'
                       '|scheduled'):
        run.scheduler.finish(waiting, 0)


# -- reservations

def test_a_reservation_starts_on_its_second():
    run = Run(2)
    one = run.submit(lease('r', 2, 60, start=500, preemptible=False))
    run.until(1000)
    assert times(one) == (500, 560)


def test_without_room_it_is_rejected():
    run = Run(2)
    run.submit(lease('r', 1, 60, start=500, preemptible=False))
    other = run.submit(lease('s', 2, 60, start=559, preemptible=False))
    third = run.submit(lease('t', 2, 60, start=560, preemptible=False))
    assert other.state is LeaseState.REJECTED
    assert third.state is LeaseState.SCHEDULED


def test_what_should_have_started_is_rejected():
    run = Run(2)
    late = run.submit(lease('r', 1, 60, start=99, preemptible=False), at=100)
    assert late.state is LeaseState.REJECTED


def test_best_effort_is_suspended_in_time_and_resumes():
    run = Run(1)
    reserved = run.submit(lease('r', 1, 100, start=200, preemptible=False))
    work = run.submit(lease('b', 1, 300))
    run.until(1000)
    assert times(reserved) == (200, 300)
    # It runs in [0, 179), and its 121 s that are left from 321 on.
    assert times(work) == (0, 321 + 300 - (200 - SUSPENDS))
    assert (work.suspends, work.resumes, work.served) == (1, 1, 300)
    assert run.story['b'] == [
        'pending', 'queued', 'scheduled', 'ready', 'active', 'suspending',
        'suspended-pending', 'suspended-queued', 'suspended-scheduled',
        'resuming', 'resumed-ready', 'active', 'done']


def test_what_is_not_worth_it_does_not_begin():
    """Twice the 21 s that it takes to suspend it."""
    run = Run(1)
    run.submit(lease('r', 1, 100, start=41, preemptible=False))
    work = run.submit(lease('b', 1, 300))
    run.until(41)
    assert work.started is None
    run.until(1000)
    assert times(work) == (141, 441)


def test_who_runs_gives_way_to_a_reservation():
    run = Run(2)
    work = run.submit(lease('b', 2, 1000))
    reserved = run.submit(lease('r', 1, 100, start=200, preemptible=False),
                          at=100)
    run.until(3000)
    assert times(reserved) == (200, 300)
    assert (work.suspends, work.served) == (1, 1000)
    assert work.ended == 300 + SUSPENDS + 1000 - (200 - SUSPENDS)


def test_who_cannot_be_suspended_begins_anew():
    run = Run(1, Settings(suspension=False))
    work = run.submit(lease('b', 1, 1000))
    reserved = run.submit(lease('r', 1, 100, start=200, preemptible=False),
                          at=100)
    run.until(3000)
    assert times(reserved) == (200, 300)
    assert (work.requeues, times(work)) == (1, (300, 1300))


def test_nobody_gives_way_who_must_not():
    run = Run(1, Settings(preemption=NoPreemption()))
    run.submit(lease('b', 1, 1000))
    reserved = run.submit(lease('r', 1, 100, start=200, preemptible=False))
    assert reserved.state is LeaseState.REJECTED


def test_what_is_not_preemptible_stays():
    run = Run(1)
    run.submit(lease('b', 1, 1000, preemptible=False))
    reserved = run.submit(lease('r', 1, 100, start=200, preemptible=False))
    assert reserved.state is LeaseState.REJECTED


def test_too_late_to_suspend():
    run = Run(1)
    work = run.submit(lease('b', 1, 1000))
    reserved = run.submit(lease('r', 1, 100, start=120, preemptible=False),
                          at=100)
    assert reserved.state is LeaseState.REJECTED
    run.until(2000)
    assert times(work) == (0, 1000)


def test_an_immediate_lease_has_what_is_free_now():
    run = Run(2)
    run.submit(lease('b', 1, 1000))
    now = run.submit(lease('i', 1, 60, immediate=True), at=10)
    never = run.submit(lease('j', 1, 60, immediate=True), at=11)
    assert now.state is LeaseState.ACTIVE
    assert never.state is LeaseState.REJECTED
    run.until(100)
    assert times(now) == (10, 70)


def test_who_has_run_least_gives_way():
    run = Run(2)
    old = run.submit(lease('a', 1, 1000))
    young = run.submit(lease('b', 1, 1000), at=50)
    run.submit(lease('r', 1, 100, start=200, preemptible=False), at=100)
    run.until(5000)
    assert (old.suspends, young.suspends) == (0, 1)


@pytest.mark.parametrize('hosts', range(1, 7))
def test_those_give_way_who_have_run_least(hosts):
    run = Run(6)
    running = [run.submit(lease(name, 1, 1000), at=time)
               for time, name in enumerate('abcdef')]
    run.submit(lease('r', hosts, 100, start=100, preemptible=False), at=50)
    run.until(150)
    assert [one.suspends for one in running] == [0] * (6 - hosts) + [1] * hosts


def test_no_more_give_way_than_have_to():
    """The first that would go is too small to be of use."""
    run = Run(3)
    wide = run.submit(lease('a', 2, 1000))
    run.until(10)
    run.submit(lease('b', 1, 1000), at=10)
    small = run.submit(lease('c', 1, 1000), at=10)
    run.submit(lease('r', 3, 100, start=200, preemptible=False), at=100)
    other = run.submit(lease('s', 1, 100, start=5000, preemptible=False))
    run.until(9000)
    assert wide.suspends == 1 and other.started == 5000
    assert small.served == 1000


# -- suspension and migration

def reserve_its_host(run):
    """Submit work whose host, once it is suspended, is another's for long."""
    run.submit(lease('r', 2, 100, start=200, preemptible=False))
    run.submit(lease('s', 1, 1000, start=300, preemptible=False))
    work = run.submit(lease('b', 1, 1000))
    run.until(4000)
    assert (work.started, work.suspends, work.served) == (0, 1, 1000)
    return work


def test_memory_moves_to_other_hosts():
    run = Run(2)
    work = reserve_its_host(run)
    # It moves while the reservation runs, and is loaded after it.
    assert work.ended == 300 + SUSPENDS + 1000 - (200 - SUSPENDS)
    assert 'migrating' in run.story['b']


def test_without_migration_it_stays():
    run = Run(2, Settings(durations=OperationTimes(migration_rate=None)))
    work = reserve_its_host(run)
    assert 'migrating' not in run.story['b']
    assert work.ended == 1300 + SUSPENDS + 1000 - (200 - SUSPENDS)


def test_suspensions_on_a_host_do_not_overlap():
    run = Run(1, vms=2)
    leases = [run.submit(lease(name, 1, 1000)) for name in 'ab']
    run.submit(lease('r', 2, 100, start=200, preemptible=False), at=50)
    run.until(200)
    assert sorted(one.served for one in leases) == [200 - 2 * SUSPENDS,
                                                    200 - SUSPENDS]


def test_with_one_storage_no_two_do_on_the_site():
    run = Run(2, Settings(durations=OperationTimes(shared=True)))
    leases = [run.submit(lease(name, 1, 1000)) for name in 'ab']
    run.submit(lease('r', 2, 100, start=200, preemptible=False), at=50)
    run.until(200)
    assert sorted(one.served for one in leases) == [200 - 2 * SUSPENDS,
                                                    200 - SUSPENDS]


# -- deadlines

def test_a_deadline_is_met_as_early_as_can_be():
    run = Run(1)
    run.submit(lease('r', 1, 100, start=50, preemptible=False))
    one = run.submit(lease('d', 1, 100, deadline=300))
    run.until(1000)
    assert times(one) == (150, 250)


def test_a_deadline_that_cannot_be_met_is_rejected():
    run = Run(1)
    run.submit(lease('r', 1, 100, start=50, preemptible=False))
    one = run.submit(lease('d', 1, 100, deadline=249))
    assert one.state is LeaseState.REJECTED


def test_the_most_urgent_goes_first():
    """What has not begun is planned anew for it."""
    run = Run(1, Settings(slack=1.0))
    run.submit(lease('r', 1, 100, start=0, preemptible=False))
    patient = run.submit(lease('d', 1, 100, deadline=1000))
    assert patient.state is LeaseState.SCHEDULED
    urgent = run.submit(lease('e', 1, 100, deadline=200))
    run.until(1000)
    assert times(urgent) == (100, 200)
    assert times(patient) == (200, 300)


@pytest.mark.parametrize('orders, state', (
    ((), LeaseState.REJECTED), (('slack',), LeaseState.REJECTED),
    (('deadline',), LeaseState.SCHEDULED),
    (('slack', 'deadline'), LeaseState.SCHEDULED)))
def test_orders_of_rearranging(orders, state):
    """Who has most slack may have to be first."""
    run = Run(1, Settings(slack=1.0, rearranging=orders))
    run.submit(lease('r', 1, 100, start=0, preemptible=False))
    run.submit(lease('long', 1, 1000, deadline=1210))
    assert run.submit(lease('short', 1, 100, deadline=1150)).state is state


def test_who_comes_in_the_same_second_goes_first_if_it_has_to():
    """Who is to begin in that second has not begun."""
    run = Run(1)
    patient, urgent = (lease('d', 1, 2, deadline=3),
                       lease('e', 1, 1, deadline=2))
    run.submit(patient, urgent)
    run.until(10)
    assert (times(urgent), times(patient)) == ((0, 1), (1, 3))


def test_what_cannot_be_rearranged_stays_as_it_was():
    run = Run(1, Settings(slack=1.0))
    run.submit(lease('r', 1, 100, start=0, preemptible=False))
    first = run.submit(lease('d', 1, 100, deadline=250))
    second = run.submit(lease('e', 1, 100, deadline=260))
    assert second.state is LeaseState.REJECTED
    assert run.story['e'] == ['pending', 'rejected']
    assert run.story['d'] == ['pending', 'scheduled']
    run.until(1000)
    assert times(first) == (100, 200)


def test_who_has_slack_gives_way_and_is_in_time():
    run = Run(1, Settings(preemption=MostSlack()))
    patient = run.submit(lease('d', 1, 1000, deadline=5000))
    urgent = run.submit(lease('e', 1, 100, start=400, deadline=520), at=10)
    run.until(6000)
    assert times(urgent) == (400, 500)
    assert patient.served == 1000 and patient.ended <= 5000
    assert patient.suspends == 1
    assert run.story['d'] == [
        'pending', 'scheduled', 'ready', 'active', 'suspending',
        'suspended-pending', 'suspended-queued', 'suspended-scheduled',
        'resuming', 'resumed-ready', 'active', 'done']


def test_who_would_be_late_does_not_give_way():
    run = Run(1, Settings(preemption=MostSlack()))
    run.submit(lease('d', 1, 1000, deadline=1100))
    urgent = run.submit(lease('e', 1, 100, start=400, deadline=520), at=10)
    assert urgent.state is LeaseState.REJECTED


# -- hosts that differ

def test_hosts_that_have_what_is_asked_for():
    run = Run(Site(('CPU', 'Memory'), np.array([[100, 1024], [100, 1024]]),
                   ({'arch': 'arm'}, {'arch': 'x86_64'})))
    one = Lease('a', Terms((NodeSet(1, NEED, {'arch': 'x86_64'}),), 10), 0)
    run.submit(one)
    assert one.hosts.tolist() == [1]
    none = Lease('b', Terms((NodeSet(1, NEED, {'arch': 'ppc'}),), 10), 0)
    run.submit(none)
    assert none.state is LeaseState.REJECTED


def test_a_site_without_attributes_has_none_to_offer():
    run = Run(2)
    one = Lease('a', Terms((NodeSet(1, NEED, {'arch': 'arm'}),), 10), 0)
    run.submit(one)
    assert one.state is LeaseState.REJECTED and 'room for 0' in one.reason
    with pytest.raises(TermsError, match='attributes of 1 hosts for 2'):
        Site(('CPU', 'Memory'), np.array([NEED, NEED]), ({},))


def test_nodes_that_differ_in_one_lease():
    run = Run(Site(('CPU', 'Memory'), np.array([[400, 1024], [100, 8192]])))
    one = Lease('a', Terms((NodeSet(2, (100, 512)), NodeSet(1, (100, 4096))),
                           10), 0)
    run.submit(one)
    assert one.state is LeaseState.ACTIVE
    assert sorted(one.hosts.tolist()) == [0, 1]


def test_nodes_without_memory_are_not_put_in_one_place():
    """Nothing has to be saved of them, but they take time to run."""
    run = Run(2)
    one = Lease('a', Terms((NodeSet(1, (100, 0)), NodeSet(1, (100, 0))), 10),
                0)
    run.submit(one)
    assert one.state is LeaseState.ACTIVE
    assert one.hosts.tolist() == [0, 1]


def test_nodes_that_differ_wait_until_all_fit():
    run = Run(Site(('CPU', 'Memory'), np.array([[400, 1024], [100, 8192]])),
              Settings(suspension=False))
    run.submit(Lease('x', Terms((NodeSet(1, (100, 8192)),), 70), 0))
    run.submit(Lease('y', Terms((NodeSet(1, (400, 1024)),), 50), 0))
    one = Lease('a', Terms((NodeSet(2, (100, 512)), NodeSet(1, (100, 4096))),
                           10), 0)
    run.submit(one)
    run.until(200)
    assert times(one) == (70, 80)


# -- prices

def test_who_is_asked_for_too_much_refuses():
    pricing = Adaptive(rate=2.0)
    run = Run(1, Settings(pricing=pricing))
    reserved = run.submit(lease('r', 1, 100, start=50, preemptible=False,
                                user='anna', max_rate=1.0))
    assert reserved.state is LeaseState.REJECTED_BY_USER
    assert 'at 2 for a node and a second it is more than 1' in reserved.reason
    assert run.story['r'] == ['pending', 'rejected-by-user']
    # She is thought to pay half of what she has refused.
    waiting = run.submit(lease('b', 1, 10, user='anna', max_rate=1.0))
    assert waiting.state is LeaseState.ACTIVE
    assert waiting.price == 1.0 * 10


def test_what_there_is_no_room_for_says_nothing_of_prices():
    pricing = Adaptive(rate=2.0)
    run = Run(1, Settings(pricing=pricing))
    run.submit(lease('r', 1, 100, start=50, preemptible=False))
    for most in (1.0, 5.0):
        none = run.submit(lease('s', 1, 100, start=50, preemptible=False,
                                user='anna', max_rate=most))
        assert none.state is LeaseState.REJECTED
    # Whom r was sold to may pay more.
    assert pricing.rate(none.terms) == 3.0


# -- what owners want

def test_who_is_cancelled_leaves_its_hosts():
    run = Run(1, Settings(durations=OperationTimes(shutdown=10)))
    first, second = lease('a', 1, 1000), lease('b', 1, 50)
    run.submit(first, second)
    run.until(30)
    run.scheduler.cancel(first, 30)
    run.scheduler.fill()
    run.until(200)
    assert first.state is LeaseState.CANCELLED and first.served == 30
    assert (first.ended, second.started) == (30, 40)


def test_who_waits_or_is_promised_a_time_can_be_cancelled():
    run = Run(1, Settings(suspension=False))
    leases = [lease('a', 1, 100), lease('b', 1, 50), lease('c', 1, 50),
              lease('r', 1, 10, start=500, preemptible=False)]
    run.submit(*leases)
    for one in leases[1:]:
        run.scheduler.cancel(one, 10)
    run.scheduler.fill()
    late = lease('d', 1, 1000)
    run.submit(late, at=20)
    run.until(2000)
    assert late.started == 100
    assert {str(one.state) for one in leases[1:]} == {'cancelled'}
    with pytest.raises(IllegalTransitionError):
        run.scheduler.cancel(leases[0], 2000)


def test_who_is_paused_waits_until_it_is_told():
    run = Run(1)
    first, second = lease('a', 1, 1000), lease('b', 1, 50)
    run.submit(first, second)
    run.until(99)
    run.scheduler.pause(first, 99)
    run.scheduler.fill()
    run.until(500)
    assert first.state is LeaseState.SUSPENDED_QUEUED
    assert first.served == 100
    assert second.started == 100 + SUSPENDS
    run.scheduler.unpause(first, 500)
    run.scheduler.fill()
    run.until(5000)
    assert first.state is LeaseState.DONE and first.served == 1000


def test_promises_cannot_be_paused():
    run = Run(1)
    reserved = lease('r', 1, 10, start=500, preemptible=False)
    run.submit(reserved)
    with pytest.raises(UnpausableError, match='cancelled'):
        run.scheduler.pause(reserved, 0)
    fixed = lease('b', 1, 100, preemptible=False)
    run.submit(fixed)
    with pytest.raises(UnpausableError, match='cannot be suspended'):
        run.scheduler.pause(fixed, 10)


# -- the order of the queue

@pytest.mark.parametrize('order, served', (
    (FirstCome(), 'abc'), (Priority(), 'cba'), (Aged(3600), 'bac')))
def test_the_order_of_the_queue(order, served):
    """b has waited for two seconds less than a, and has one point more."""
    run = Run(1, Settings(order=order, suspension=False,
                          reservations=0))
    run.submit(lease('x', 1, 100))
    leases = {}
    for at, name, priority in ((1, 'a', 0), (2, 'b', 2), (5, 'c', 4)):
        leases[name] = lease(name, 1, 10, priority=priority)
        run.submit(leases[name], at=at)
    run.until(1000)
    assert sorted(leases, key=lambda name: leases[name].started) == list(
        served)
