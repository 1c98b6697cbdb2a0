"""Terms and states."""

import pytest

from secondary_scheduler.leases.scheduling.lease import (
    Kind,
    NodeSet,
    Terms,
    TermsError,
)
from secondary_scheduler.model.lease_states import (
    FINAL,
    FOLLOWS,
    IllegalTransitionError,
    LeaseState,
    check,
)
from tests.unit.leases.scheduling import builders


@pytest.mark.parametrize('asked, kind', (
    ({}, Kind.BEST_EFFORT),
    ({'start': 50}, Kind.RESERVATION),
    ({'start': 50, 'deadline': 150}, Kind.RESERVATION),
    ({'start': 50, 'deadline': 151}, Kind.DEADLINE),
    ({'deadline': 500}, Kind.DEADLINE),
    ({'immediate': True}, Kind.IMMEDIATE),
))
def test_the_kind_follows_from_the_terms(asked, kind):
    assert builders.terms(1, 100, **asked).kind is kind


@pytest.mark.parametrize('nodes, duration, asked, says', (
    ((), 10, {}, 'at least one node'),
    ((NodeSet(0, (1, 1)),), 10, {}, 'at least one node'),
    ((NodeSet(1, (0, 0)),), 10, {}, 'some of a resource'),
    ((NodeSet(1, (1, -1)),), 10, {}, 'less than nothing'),
    ((NodeSet(1, (3, 1), instances={0: (1, 1)}),), 10, {}, 'together what'),
    ((NodeSet(1, (3, 1), instances={0: (3, 0)}),), 10, {}, 'some of each'),
    ((NodeSet(1, (1, 1)),), 0, {}, 'at least a second'),
    ((NodeSet(1, (1, 1)),), 10, {'start': 5, 'deadline': 14}, '9 s'),
))
def test_terms_that_nobody_could_meet(nodes, duration, asked, says):
    with pytest.raises(TermsError, match=says):
        Terms(nodes, duration, **asked)


def test_nothing_follows_on_what_is_final():
    assert all(not FOLLOWS[state] for state in FINAL)
    assert all(FOLLOWS[state] for state in LeaseState if state not in FINAL)


def test_every_state_can_be_reached():
    reached, new = set(), {LeaseState.NEW}
    while new:
        reached |= new
        new = {after for state in new for after in FOLLOWS[state]} - reached
    # The others are only shown, by the engine.
    assert set(LeaseState) - reached == {
        LeaseState.STARTING,
        LeaseState.INTERRUPTED,
        LeaseState.ENDING,
    }


@pytest.mark.parametrize('before, after', (
    (LeaseState.NEW, LeaseState.ACTIVE),
    (LeaseState.NEW, LeaseState.CANCELLED),
    (LeaseState.QUEUED, LeaseState.ACTIVE),
    (LeaseState.PENDING, LeaseState.FAILED),
    (LeaseState.ACTIVE, LeaseState.SUSPENDED_PENDING),
    (LeaseState.ACTIVE, LeaseState.SCHEDULED),
    (LeaseState.SUSPENDING, LeaseState.ACTIVE),
    (LeaseState.DONE, LeaseState.QUEUED)))
def test_what_may_not_follow(before, after):
    with pytest.raises(IllegalTransitionError,
                       match=f'lease 7 cannot become {after}: it is {before}'):
        check('7', before, after)


def test_a_host_has_a_resource_once():
    with pytest.raises(TermsError, match='only once: CPU, CPU'):
        builders.Site(('CPU', 'CPU'), builders.site(1).capacity)
