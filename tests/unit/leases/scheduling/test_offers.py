"""What leases are offered: terms that can be met, and in place of others."""

import pytest

from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.lease import Kind, TermsError
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.policies import (
    MinimumNotice,
    NoPreemption,
    NoReservations,
    RefusedError,
)
from secondary_scheduler.leases.scheduling.pricing import Constant
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.scheduling.builders import Run, lease, terms


class Options:
    reservation_notice = 100


def reservation(nodes, duration, start):
    return terms(nodes, duration, start=start, preemptible=False)


def test_what_can_be_had_is_offered_as_asked():
    run = Run(3, Settings(pricing=Constant(2.0)))
    offer = run.scheduler.quote(reservation(2, 50, 10))
    assert (offer.accepted, offer.booking.begin) == (True, 10)
    assert (offer.rate, offer.price) == (2.0, 200.0)


def test_nothing_comes_of_it():
    run = Run(3)
    run.submit(lease('a', 3, 100, start=50, preemptible=False))
    before = run.scheduler.table.at(60)[0].tolist()
    for asked in (reservation(2, 50, 60), reservation(2, 50, 200),
                  terms(1, 10, deadline=1000), terms(3, 10)):
        run.scheduler.quote(asked)
    assert run.scheduler.table.at(60)[0].tolist() == before
    assert run.story == {'a': ['pending', 'scheduled']}
    assert not run.scheduler.queue


def test_the_next_possible_start():
    run = Run(3, Settings(durations=OperationTimes(shutdown=5)))
    run.submit(lease('a', 2, 100, start=50, preemptible=False))
    offer = run.scheduler.quote(reservation(2, 50, 60))
    assert (offer.accepted, offer.booking.begin) == (False, 155)


def test_the_next_possible_start_makes_others_give_way():
    """As soon as who is in the way can have been suspended."""
    run = Run(1)
    run.submit(lease('a', 1, 1000))
    offer = run.scheduler.quote(reservation(1, 50, 10))
    assert (offer.accepted, offer.booking.begin) == (False, 22)
    run = Run(1, Settings(preemption=NoPreemption()))
    run.submit(lease('a', 1, 1000))
    assert run.scheduler.quote(reservation(1, 50, 10)).booking.begin == 1000


@pytest.mark.parametrize('start', (0, 10, 60, 149))
def test_what_is_offered_would_be_accepted(start):
    run = Run(3)
    run.submit(lease('a', 2, 100, start=50, preemptible=False),
               lease('b', 1, 500))
    offer = run.scheduler.quote(reservation(3, 50, start))
    taken = lease('r', 3, 50, start=offer.booking.begin, preemptible=False)
    run.submit(taken)
    assert taken.state is LeaseState.SCHEDULED


def test_a_deadline_that_can_be_met():
    run = Run(1, Settings(preemption=NoPreemption()))
    run.submit(lease('a', 1, 100, preemptible=False))
    asked = terms(1, 50, deadline=140)
    assert asked.kind is Kind.DEADLINE
    offer = run.scheduler.quote(asked)
    assert (offer.accepted, offer.booking.begin, offer.booking.down) == (
        False, 100, 150)


def test_best_effort_begins_when_there_is_room():
    run = Run(1, Settings(suspension=False))
    run.submit(lease('a', 1, 100))
    offer = run.scheduler.quote(terms(1, 10))
    assert (offer.accepted, offer.booking.begin) == (True, 100)


def test_what_no_site_could_hold_is_said_so():
    with pytest.raises(TermsError, match='room for 3'):
        Run(3).scheduler.quote(terms(4, 10))


# -- admission

def test_no_reservations():
    run = Run(3, Settings(admission=NoReservations()))
    refused, let_in = (lease('a', 1, 10, start=50), lease('b', 1, 10))
    run.submit(refused, let_in)
    assert refused.state is LeaseState.REJECTED
    assert 'ask for a deadline' in refused.reason
    assert let_in.state is LeaseState.ACTIVE


def test_notice():
    run = Run(3, Settings(admission=MinimumNotice(Options)))
    late, just = (lease(name, 1, 10, start=start)
                  for name, start in (('a', 149), ('b', 150)))
    run.submit(late, just, at=50)
    assert late.state is LeaseState.REJECTED and '150' in late.reason
    assert just.state is LeaseState.SCHEDULED
    with pytest.raises(RefusedError, match='at least 100 s'):
        run.scheduler.quote(terms(1, 10, start=149))
