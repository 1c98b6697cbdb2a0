"""The life of a lease: its states, and what may follow on which.

Haizea's machine (2.5 of its specification, where the displaced rows of the
thesis's Table 3.1 are put right).
"""

import enum


class LeaseState(enum.StrEnum):
    """Where a lease is in its life."""

    NEW = 'new'
    PENDING = 'pending'
    REJECTED = 'rejected'
    REJECTED_BY_USER = 'rejected-by-user'
    QUEUED = 'queued'
    SCHEDULED = 'scheduled'
    PREPARING = 'preparing'
    READY = 'ready'
    ACTIVE = 'active'
    SUSPENDING = 'suspending'
    SUSPENDED_PENDING = 'suspended-pending'
    SUSPENDED_QUEUED = 'suspended-queued'
    SUSPENDED_SCHEDULED = 'suspended-scheduled'
    MIGRATING = 'migrating'
    RESUMING = 'resuming'
    RESUMED_READY = 'resumed-ready'
    #: Shown by the engine, which alone observes servers, in place of ACTIVE:
    #: not all of them have run yet, and not all of them run any more; and in
    #: place of a final state: they are not gone yet.
    STARTING = 'starting'
    INTERRUPTED = 'interrupted'
    ENDING = 'ending'
    DONE = 'done'
    CANCELLED = 'cancelled'
    FAILED = 'failed'


#: States that nothing follows on.
FINAL = frozenset(
    {
        LeaseState.REJECTED,
        LeaseState.REJECTED_BY_USER,
        LeaseState.DONE,
        LeaseState.CANCELLED,
        LeaseState.FAILED,
    }
)
#: The lease waits for hosts.
QUEUED = frozenset({LeaseState.QUEUED, LeaseState.SUSPENDED_QUEUED})
#: Hosts are promised to the lease, and it does not hold them yet.
AHEAD = frozenset(
    {
        LeaseState.SCHEDULED,
        LeaseState.PREPARING,
        LeaseState.READY,
        LeaseState.SUSPENDED_SCHEDULED,
        LeaseState.MIGRATING,
    }
)
#: It holds hosts, and its memory is there.
HOLDING = frozenset(
    {LeaseState.RESUMING, LeaseState.RESUMED_READY, LeaseState.ACTIVE})
#: Its image is still to be sent to its hosts.
COMING = frozenset({LeaseState.SCHEDULED, LeaseState.PREPARING})
#: Its memory is on a disk.
SAVED = frozenset({LeaseState.SUSPENDED_PENDING, LeaseState.SUSPENDED_QUEUED,
                   LeaseState.SUSPENDED_SCHEDULED, LeaseState.MIGRATING})

_S = LeaseState
_FOLLOWS: dict[LeaseState, tuple[LeaseState, ...]] = {
    _S.NEW: (_S.PENDING,),
    _S.PENDING: (_S.SCHEDULED, _S.QUEUED, _S.REJECTED, _S.REJECTED_BY_USER),
    _S.SCHEDULED: (_S.PREPARING, _S.QUEUED, _S.READY, _S.PENDING),
    _S.QUEUED: (_S.SCHEDULED,),
    _S.PREPARING: (_S.READY, _S.QUEUED, _S.PENDING),
    _S.READY: (_S.ACTIVE, _S.QUEUED, _S.PENDING),
    _S.ACTIVE: (_S.SUSPENDING, _S.QUEUED, _S.DONE),
    _S.SUSPENDING: (_S.SUSPENDED_PENDING,),
    _S.SUSPENDED_PENDING: (_S.SUSPENDED_QUEUED, _S.SUSPENDED_SCHEDULED),
    _S.SUSPENDED_QUEUED: (_S.SUSPENDED_SCHEDULED,),
    _S.SUSPENDED_SCHEDULED: (_S.SUSPENDED_QUEUED, _S.MIGRATING, _S.RESUMING,
                             _S.SUSPENDED_PENDING),
    _S.MIGRATING: (_S.SUSPENDED_SCHEDULED,),
    _S.RESUMING: (_S.RESUMED_READY,),
    _S.RESUMED_READY: (_S.ACTIVE,),
}
#: Nothing has been promised to the lease yet, so nothing can fail.
_FREE = frozenset({_S.NEW, _S.PENDING})
#: What may follow on each state.  A consumer may cancel whatever is not over,
#: and from its first promise on a lease may fail; one that was promised hosts
#: is queued while others are looked for.
FOLLOWS: dict[LeaseState, frozenset[LeaseState]] = {
    state: frozenset(
        _FOLLOWS.get(state, ())
        + (() if state in FINAL | {_S.NEW} else (_S.CANCELLED,))
        + (() if state in FINAL | _FREE else (_S.FAILED,))
    )
    for state in LeaseState
}


class IllegalTransitionError(Exception):
    """A lease was to go where its state does not lead."""


def check(lease: str, before: LeaseState, after: LeaseState) -> None:
    """Raise IllegalTransitionError unless ``after`` may follow."""
    if after not in FOLLOWS[before]:
        raise IllegalTransitionError(
            f'lease {lease} cannot become {after}: it is {before}, on which '
            + (', '.join(sorted(FOLLOWS[before])) or 'nothing')
            + ' may follow')
