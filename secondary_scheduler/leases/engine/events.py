"""What the owner of a lease is told, and when."""

from collections.abc import Iterator
import datetime

from secondary_scheduler.leases.api.db.schedules import Told
from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.scheduler import SHORT, SHORT_S
from secondary_scheduler.leases.scheduling.types import NEVER
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState

#: Seconds after its start from which on a reservation is late.
_LATE_S = 3


def moment(seconds: float) -> str:
    """Return a time as ISO 8601, UTC."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime(
        '%Y-%m-%dT%H:%M:%SZ')


def _beside(seconds: float) -> str:
    """Return how long after a moment something is, or before it."""
    return (f'{-seconds:.1f} s before' if seconds < 0
            else f'{seconds:.1f} s after')


def shortfall(record: LeaseRecord) -> str:
    """Return why a lease ends that has not run for its duration.

    '' if it has.
    """
    duration, ran = record.row.duration, int(record.served.seconds)
    if duration is None or duration - ran <= max(
            SHORT_S, SHORT * duration):
        return ''
    cause = record.cause or ('its servers have been deleted' if all(
        node.gone for node in record.nodes) else '')
    return (f'all of its servers ran for {ran} of {duration} s'
            + (f': {cause}' if cause else ''))


def reason(record: LeaseRecord, shown: str) -> str:
    """Return why a lease is in the state that is shown."""
    if shown == LeaseState.INTERRUPTED or (
        record.failing_since is not None and shown not in lease_states.FINAL
    ):
        return record.cause
    return record.lease.reason


def state(record: LeaseRecord) -> str:
    """Return what there is to say of the state that a lease has entered."""
    lease, booking = record.lease, record.lease.booking
    if booking is None:
        return ''
    if lease.ahead:
        return f'from {moment(max(booking.begin, record.boots_until))} on'
    if lease.state is LeaseState.SUSPENDING:
        return f'until about {moment(booking.end)}'
    if booking.down == NEVER:
        return 'as long as its owner likes'
    if lease.state in lease_states.HOLDING:
        return f'until {moment(booking.down)}' + (
            ', when it gives way' if booking.saves or booking.loses else ''
        )
    return ''


def is_being_preempted(record: LeaseRecord, now: float, notice: float) -> bool:
    """Tell whether a lease will have to give way within ``notice`` s."""
    booking = record.lease.booking
    return (
        booking is not None
        and record.lease.state is LeaseState.ACTIVE
        and (booking.saves or booking.loses)
        and booking.down <= now + notice
    )


def of(record: LeaseRecord, now: float, notice: float) -> Iterator[Told]:
    """Yield what is to be said of a lease now, each thing once a stay."""
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
        if record.first('runs'):
            yield Told('running', f'all {len(record.nodes)} servers run'
                       + ('' if due is None else
                          f', {_beside(now - due)} its start'))
    elif due is not None and now > due + _LATE_S and (
            lease.ahead or lease.state is LeaseState.ACTIVE):
        if record.first('late'):
            yield Told('late', 'not all of its servers run, '
                       f'{now - due:.0f} s after its start')
    if is_being_preempted(record, now, notice) and record.first(
            f'notice {booking.down}'):
        yield Told('preemption-notice', 'it gives way at '
                   f'{moment(booking.down)}')
    deadline = lease.terms.deadline
    if (deadline is not None and due is None
            and (lease.later or booking).down > deadline
            and record.first('missed')):
        yield Told('late', 'it will be over at '
                   f'{moment((lease.later or booking).down)}, after its '
                   'deadline')
