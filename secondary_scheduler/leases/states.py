"""The life of a lease: its states, and what may follow on which.

Haizea's machine (2.5 of its specification, where the displaced rows of the
thesis's Table 3.1 are put right).
"""

import enum


class State(enum.StrEnum):
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
FINAL = frozenset({State.REJECTED, State.REJECTED_BY_USER, State.DONE,
                   State.CANCELLED, State.FAILED})
#: The lease waits for hosts.
QUEUED = frozenset({State.QUEUED, State.SUSPENDED_QUEUED})
#: Hosts are promised to the lease, and it does not hold them yet.
AHEAD = frozenset({State.SCHEDULED, State.PREPARING, State.READY,
                   State.SUSPENDED_SCHEDULED, State.MIGRATING})
#: It holds hosts, and its memory is there.
HOLDING = frozenset({State.RESUMING, State.RESUMED_READY, State.ACTIVE})
#: Its image is still to be sent to its hosts.
COMING = frozenset({State.SCHEDULED, State.PREPARING})
#: Its memory is on a disk.
SAVED = frozenset({State.SUSPENDED_PENDING, State.SUSPENDED_QUEUED,
                   State.SUSPENDED_SCHEDULED, State.MIGRATING})

_S = State
_FOLLOWS: dict[State, tuple[State, ...]] = {
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
FOLLOWS: dict[State, frozenset[State]] = {state: frozenset(
    _FOLLOWS.get(state, ())
    + (() if state in FINAL | {_S.NEW} else (_S.CANCELLED,))
    + (() if state in FINAL | _FREE else (_S.FAILED,))) for state in State}


class IllegalTransitionError(Exception):
    """A lease was to go where its state does not lead."""


def check(lease: str, before: State, after: State) -> None:
    """Raise IllegalTransitionError unless ``after`` may follow."""
    if after not in FOLLOWS[before]:
        raise IllegalTransitionError(
            f'lease {lease} cannot become {after}: it is {before}, on which '
            + (', '.join(sorted(FOLLOWS[before])) or 'nothing')
            + ' may follow')
