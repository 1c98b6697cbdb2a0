"""Resources of which hosts have several instances (Haizea REQ-002)."""

import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from secondary_scheduler.leases.scheduling import resource_units
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.lease import (
    Lease,
    NodeSet,
    Terms,
    TermsError,
)
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.types import NEVER
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.scheduling.builders import RESOURCES, Run


def site(*hosts):
    """Return hosts with these CPUs each, and 1024 MB for each of them."""
    cpus = np.array(hosts)
    capacity = np.column_stack((cpus.sum(axis=1), 1024 * (cpus > 0).sum(
        axis=1)))
    return Site(RESOURCES, capacity, instances={0: cpus})


def nodes(number, *parts):
    """Return VMs that take this of different CPUs."""
    return NodeSet(number, (sum(parts), 256),
                   instances={0: parts} if len(parts) > 1 else {})


def lease(name, *sets, duration=100, **other):
    return Lease(name, Terms(sets, duration, **other), 0)


def taken(one):
    """Return what a lease holds of the CPUs of its hosts."""
    return one.booking.slot.amounts[len(RESOURCES):].T.tolist()


# -- one host

def fits(cpus, *parts):
    return resource_units.fitting(
        np.array([cpus]), np.array(sorted(parts, reverse=True)),
        np.array([sum(cpus) // sum(parts)])).tolist()[0]


@pytest.mark.parametrize('cpus, parts, number', (
    ((100,), (80,), 1),
    ((40, 40), (80,), 0),
    ((40, 40), (40,), 2),
    ((100,) * 8, (100,), 8),
    ((100,) * 8, (100,) * 8, 1),
    ((100,) * 8, (100,) * 9, 0),
    ((100,) * 8, (200,), 0),
    ((100,) * 8, (60,), 8),
    # Whoever takes two takes them of different ones.
    ((200,), (100, 100), 0),
    ((100, 200), (100, 100), 1),
    ((200, 200), (100, 100), 2),
    # Three halves: none could be given to two VMs alike one after the other.
    ((100,) * 3, (50, 50), 3),
    ((100, 100), (60, 40), 2),
    ((100, 100), (60, 60), 1)))
def test_how_many_fit(cpus, parts, number):
    assert fits(cpus, *parts) == number


def alone(cpus, parts):
    """Return what can be left of CPUs when a VM has taken its parts."""
    for chosen in itertools.permutations(range(len(cpus)), len(parts)):
        left = list(cpus)
        for index, part in zip(chosen, parts, strict=True):
            left[index] -= part
        if min(left) >= 0:
            yield tuple(left)


def every(cpus, parts, number):
    """Return all that can be left when so many VMs have, one by one."""
    found = {tuple(cpus)}
    for _ in range(number):
        found = {left for cpu in found for left in alone(cpu, parts)}
    return found


@hypothesis.given(st.lists(st.integers(0, 5), min_size=1, max_size=4),
                  st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_against_all_ways(cpus, parts):
    """Parts that are dealt at once can be had one VM after the other."""
    number = fits(cpus, *parts)
    parts = sorted(parts, reverse=True)
    left = every(cpus, parts, number)
    took = resource_units.takes(np.array([cpus]), np.array(parts),
                                np.array([number]))[0]
    assert tuple(np.array(cpus) - took) in left
    if len(set(parts)) == 1:
        assert not every(cpus, parts, number + 1)


def test_what_has_no_room_leaves_less_than_nothing():
    assert resource_units.takes(np.array([[40, 40]]), np.array([80]),
                                np.array([1])).tolist() == [[80, 0]]


# -- a site

def test_an_empty_site_decides_what_could_ever_fit():
    run = Run(site((100, 100), (200, 0)))
    for one in (nodes(1, 100, 100), nodes(1, 200)):
        run.scheduler.quote(Terms((one,), 10))
    for one, says in (
            (nodes(2, 200), 'CPU 200, Memory 256 do not fit: the site has '
             'room for 1'),
            (nodes(2, 100, 100), r'2 nodes of CPU 100 \+ 100'),
            (nodes(1, 100, 60, 40), 'room for 0')):
        with pytest.raises(TermsError, match=says):
            run.scheduler.quote(Terms((one,), 10))


def test_where_there_is_one_instance_no_two_can_be_had():
    run = Run(2)
    one = run.submit(lease('a', NodeSet(1, (100, 256),
                                        instances={0: (50, 50)})))
    assert one.state is LeaseState.REJECTED
    assert 'CPU 50 + 50' in one.reason


def test_instances_that_are_not_all():
    with pytest.raises(TermsError, match='instances of CPU are together not'):
        Site(RESOURCES, np.array([[200, 1024]]),
             instances={0: np.array([[100, 50]])})


def test_the_first_is_filled_first():
    run = Run(site((100, 100, 100)))
    one, two = lease('a', nodes(3, 50)), lease('b', nodes(1, 50, 50))
    run.submit(one)
    run.submit(two)
    assert taken(one) == [[100, 50, 0]]
    assert taken(two) == [[0, 50, 50]]


def test_what_is_left_here_and_there_is_not_put_together():
    run = Run(site((100, 100)), Settings(suspension=False))
    first = run.submit(lease('a', nodes(2, 60)))
    assert taken(first) == [[60, 60]]
    whole, small = lease('b', nodes(1, 80)), lease('c', nodes(2, 40))
    run.submit(whole, small)
    assert (whole.booking.begin, small.booking.begin) == (100, 0)


def test_it_has_to_fit_all_the_time():
    """One CPU has enough from 100 on, the other until 90."""
    run = Run(site((100, 100)))
    run.submit(lease('a', nodes(1, 60), start=0, preemptible=False),
               lease('b', nodes(1, 60), start=90, preemptible=False))
    for start, end, cpu, accepted in (
            (20, 90, 50, True), (100, 150, 50, True), (40, 150, 50, False),
            (20, 91, 50, False), (99, 150, 50, False), (40, 150, 40, True)):
        assert run.scheduler.quote(Terms(
            (nodes(1, cpu),), end - start, start=start, preemptible=False)
            ).accepted == accepted, (start, end)


def test_the_next_start_is_when_one_instance_is_free():
    run = Run(site((100, 100)))
    run.submit(lease('a', nodes(1, 60), start=0, duration=70,
                     preemptible=False),
               lease('b', nodes(1, 60), start=0, duration=50,
                     preemptible=False))
    asked = Terms((nodes(1, 80),), 30, immediate=True, preemptible=False)
    offer = run.scheduler.quote(asked)
    assert not offer.accepted and offer.booking.begin == 50


def test_who_is_not_on_the_instance_need_not_give_way():
    run = Run(site((100, 100)))
    three = [lease('a', nodes(1, 60)), lease('b', nodes(1, 60)),
             lease('c', nodes(1, 30))]
    for time, one in enumerate(three):
        run.submit(one, at=time)
    assert [taken(one) for one in three] == [[[60, 0]], [[0, 60]], [[30, 0]]]
    reserved = run.submit(lease('d', nodes(1, 70), start=60, duration=20,
                                preemptible=False), at=20)
    run.until(1000)
    # The youngest would be the first to go.
    assert [one.suspends for one in three] == [0, 1, 0]
    assert reserved.started == 60


def test_node_sets_that_differ():
    run = Run(site((100, 60)))
    one = run.submit(lease('a', nodes(2, 30), nodes(1, 100)))
    # Who needs most has chosen first.
    assert taken(one) == [[100, 60]]
    run.until(200)
    assert (run.scheduler.table.least(200, NEVER)
            == site((100, 60)).columns).all()


def test_it_goes_on_where_its_memory_is_on_any_instance():
    run = Run(site((100, 100)), Settings(durations=OperationTimes(
        suspend_rate=256, resume_rate=256, migration_rate=None)))
    one = run.submit(lease('a', nodes(1, 80)))
    run.submit(lease('b', nodes(2, 100), start=50, duration=20,
                     preemptible=False))
    run.submit(lease('c', nodes(1, 100), start=70, duration=500,
                     preemptible=False))
    run.until(80)
    assert taken(one) == [[0, 80]]
    run.until(1000)
    assert (one.state, one.suspends) == (LeaseState.DONE, 1)


def test_who_was_moved_is_counted_where_it_is():
    run = Run(site((100, 100), (100, 100)))
    one, two = lease('a', nodes(1, 60)), lease('b', nodes(1, 60, 40))
    run.submit(one)
    run.submit(two)
    assert (one.hosts.tolist(), two.hosts.tolist()) == ([0], [1])
    run.scheduler.moved(one, two.booking.vms, 10)
    assert taken(one) == [[0, 60]]
    assert (run.scheduler.table.least(10, 20)[:, len(RESOURCES):].tolist()
            == [[100, 100], [40, 0]])
