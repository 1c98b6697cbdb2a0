# SPDX-License-Identifier: Apache-2.0

"""Lease states and their legal transitions.

Sotomayor 2010, section 3.2.3, table 3.1 (see reference/errata).
"""

import enum


class LeaseState(enum.StrEnum):
    """State of a lease."""

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
    #: Reported only by the engine, which observes servers.  STARTING,
    #: INTERRUPTED and UNKNOWN in place of ACTIVE: some servers have not run
    #: yet, do not run any more, or cannot be observed.  ENDING in place of a
    #: final state: some servers are not deleted yet.  ERROR: the engine
    #: cannot read the lease.
    STARTING = 'starting'
    INTERRUPTED = 'interrupted'
    UNKNOWN = 'unknown'
    ENDING = 'ending'
    ERROR = 'error'
    DONE = 'done'
    CANCELLED = 'cancelled'
    FAILED = 'failed'


#: States without a successor.
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
#: The lease has a booking that has not begun.
AHEAD = frozenset(
    {
        LeaseState.SCHEDULED,
        LeaseState.PREPARING,
        LeaseState.READY,
        LeaseState.SUSPENDED_SCHEDULED,
        LeaseState.MIGRATING,
    }
)
#: The lease holds hosts, and its memory is on them.
HOLDING = frozenset(
    {LeaseState.RESUMING, LeaseState.RESUMED_READY, LeaseState.ACTIVE})
#: Its image has not arrived on its hosts.
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
#: The lease is not accepted yet, so it cannot fail.
_FREE = frozenset({_S.NEW, _S.PENDING})
#: Successors of each state.  Every lease but a new or final one can be
#: cancelled; every accepted one can fail.  A lease that loses its booking is
#: queued or pending until it is booked again.
FOLLOWS: dict[LeaseState, frozenset[LeaseState]] = {
    state: frozenset(
        _FOLLOWS.get(state, ())
        + (() if state in FINAL | {_S.NEW} else (_S.CANCELLED,))
        + (() if state in FINAL | _FREE else (_S.FAILED,))
    )
    for state in LeaseState
}


class IllegalTransitionError(Exception):
    """The state may not follow the present one."""


def check_transition(lease: str, before: LeaseState, after: LeaseState
                     ) -> None:
    """Raise IllegalTransitionError unless ``after`` may follow."""
    if after not in FOLLOWS[before]:
        raise IllegalTransitionError(
            f'lease {lease} cannot become {after}: it is {before}, which '
            'may be followed by '
            + (', '.join(sorted(FOLLOWS[before])) or 'nothing'))
