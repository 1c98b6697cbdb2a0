# SPDX-License-Identifier: Apache-2.0

"""Events and texts that report the progress of a lease to its owner."""

from collections.abc import Iterator

from secondary_scheduler.leases.api.db.changes import NewEvent
from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.transitions import SHORT, SHORT_S
from secondary_scheduler.leases.scheduling.types import NEVER
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.reading.times import format_time

#: Seconds after its start from which on a reservation is late.
_LATE_S = 3


def _format_offset(seconds: float) -> str:
    """Return a distance in time as words: before or after a moment."""
    return (f'{-seconds:.1f} s before' if seconds < 0
            else f'{seconds:.1f} s after')


def describe_unreachable(record: LeaseRecord) -> str:
    """Return since when the cell of a lease's servers does not answer.

    '' while it does.
    """
    if record.unreachable_since is None:
        return ''
    consequence = ''
    if record.lease.state in lease_states.FINAL:
        consequence = '; its servers are deleted as soon as it does'
    elif record.unseen:
        consequence = '; whether its servers run is unknown'
    elif any(not (node.server or node.gone) for node in record.nodes):
        consequence = '; its servers boot as soon as it does'
    return ('the cell of its servers has not answered Nova since '
            + format_time(record.unreachable_since) + consequence)


def describe_shortfall(record: LeaseRecord) -> str:
    """Return the reason for an end before the lease's duration was served.

    '' if the duration was served.
    """
    duration, ran = record.row.duration, int(record.served.seconds)
    if duration is None or duration - ran <= max(
            SHORT_S, SHORT * duration):
        return ''
    # A server that is being deleted has been "under way" before.
    cause = ('its servers have been deleted' if all(
        node.gone for node in record.nodes) else record.cause)
    return (f'all of its servers ran for {ran} of {duration} s'
            + (f': {cause}' if cause else ''))


def state_reason(record: LeaseRecord, shown: str) -> str:
    """Return the reason for the state that is shown to the owner."""
    if record.unreachable_since is not None and (
            shown not in lease_states.FINAL):
        return '; '.join(filter(None, (
            record.lease.reason, describe_unreachable(record))))
    if record.lost_right and record.lacks_server:
        return record.lost_right
    if shown == LeaseState.INTERRUPTED or (
        record.failing_since is not None and shown not in lease_states.FINAL
    ):
        return record.cause
    return record.lease.reason


def describe_state(record: LeaseRecord) -> str:
    """Return the text of the event for a state that the lease has entered."""
    lease, booking = record.lease, record.lease.booking
    if booking is None:
        return ''
    if lease.ahead:
        start = format_time(max(booking.begin, record.boots_until))
        return f'from {start} on'
    if lease.state is LeaseState.SUSPENDING:
        return f'until about {format_time(booking.end)}'
    if booking.down == NEVER:
        return 'as long as its owner likes'
    if lease.state in lease_states.HOLDING:
        return f'until {format_time(booking.down)}' + (
            ', when it is preempted' if booking.saves or booking.loses else ''
        )
    return ''


def is_being_preempted(record: LeaseRecord, now: float, notice: float) -> bool:
    """Return whether a running lease is preempted within ``notice`` s."""
    booking = record.lease.booking
    return (
        booking is not None
        and record.lease.state is LeaseState.ACTIVE
        and (booking.saves or booking.loses)
        and booking.down <= now + notice
    )


def due_events(record: LeaseRecord, now: float, notice: float
               ) -> Iterator[NewEvent]:
    """Yield the events of a lease that are due, each once in a booking."""
    lease, booking = record.lease, record.lease.booking
    if booking is None:
        return
    start = lease.terms.start
    due = (
        None
        if start is None or lease.terms.kind is not LeaseKind.RESERVATION
        else start + record.boot_s
    )
    if lease.state is LeaseState.ACTIVE and record.served.since is not None:
        if record.register_event('runs'):
            yield NewEvent('running', f'all {len(record.nodes)} servers run'
                       + ('' if due is None else
                          f', {_format_offset(now - due)} its start'))
    elif due is not None and now > due + _LATE_S and (
            lease.ahead or lease.state is LeaseState.ACTIVE):
        if record.register_event('late'):
            yield NewEvent('late', 'not all of its servers run, '
                       f'{now - due:.0f} s after its start')
    if is_being_preempted(record, now, notice) and record.register_event(
            f'notice {booking.down}'):
        yield NewEvent('preemption-notice', 'it is preempted at '
                   f'{format_time(booking.down)}')
    deadline = lease.terms.deadline
    if (deadline is not None and due is None
            and (lease.later or booking).down > deadline
            and record.register_event('missed')):
        yield NewEvent('late', 'it will be over at '
                   f'{format_time((lease.later or booking).down)}, after its '
                   'deadline')
