"""What comes otherwise than planned, and what becomes of promises then."""

from collections.abc import Sequence
import contextlib
import dataclasses

import numpy as np

from secondary_scheduler.leases.scheduling.lease import Kind, Lease
from secondary_scheduler.leases.scheduling.planned_starts import (
    Promises,
    UnpausableError,
)
from secondary_scheduler.leases.scheduling.schedule_state import Holdings
from secondary_scheduler.leases.scheduling.table import CapacityEntry
from secondary_scheduler.model.lease_states import LeaseState


class Repairs:
    """Makes room that has to be made, and keeps promises nevertheless."""

    def __init__(self, holdings: Holdings, promises: Promises) -> None:
        self._holdings = holdings
        self._promises = promises

    def overrun(self, lease: Lease, until: int) -> None:
        """A suspension takes longer, until about then.

        Who was to begin on its hosts before that begins later: what was
        promised as soon as it can, even if that is late.
        """
        booking = lease.booking
        assert booking is not None
        late = self._clear(
            dataclasses.replace(booking.slot, start=booking.end, end=until),
            sorted((one for one in self._holdings.staying.values()
                    if one.ahead and _begin(one) >= booking.end), key=_begin))
        saving = self._holdings.disks.operation(
            booking.slot.hosts, booking.down, until)
        self._holdings.replace(lease, dataclasses.replace(
            booking, end=until, slot=dataclasses.replace(
                booking.slot, end=until),
            operations=(*booking.operations[:-1], saving)))
        for other in late:
            self._late(other, until)

    def stay_longer(self, lease: Lease, seconds: int) -> None:
        """Keep a lease on its hosts for longer, if there is room.

        A queued lease that was promised these hosts afterwards waits again.
        Where others are sure of them, best effort is suspended before that,
        and goes on later.
        """
        booking = lease.booking
        assert booking is not None
        slot = dataclasses.replace(booking.slot, start=booking.end,
                                   end=booking.end + seconds)
        self._clear(slot, sorted(
            self._holdings.promised.values(), key=_begin, reverse=True))
        if self._holdings.table.holds(slot):
            self._holdings.replace(lease, dataclasses.replace(
                booking, down=booking.down + seconds, end=slot.end,
                slot=dataclasses.replace(booking.slot, end=slot.end)))
        elif lease.terms.preemptible and (
                lease.terms.kind is Kind.BEST_EFFORT):
            self.leave(lease, booking.end)

    def lose(self, lease: Lease) -> None:
        """A lease that held hosts has lost them, and its work."""
        self._promises.withdraw(lease)
        if lease.terms.kind is not Kind.BEST_EFFORT:
            self._holdings.dequeue(lease)
            self._late(lease, self._holdings.now)

    def withhold(self, slot: CapacityEntry) -> None:
        """Keep a part of some hosts from leases.

        Who is in the way gives way until it fits: best effort first, then
        what is promised and has not begun, the latest first.  Others stay:
        who was promised not to be interrupted, and who cannot be suspended.
        """
        late = self._clear(slot, sorted(
            self._holdings.staying.values(), key=lambda one: (
                one.terms.kind is not Kind.BEST_EFFORT, -_begin(one))))
        self._holdings.table.take(slot)
        for other in sorted(late, key=lambda one: one.terms.start or 0):
            self._late(other, self._holdings.now)

    def _clear(self, slot: CapacityEntry,
               others: Sequence[Lease]) -> list[Lease]:
        """Make some of the others go until a slot fits.

        Return those that were promised their time, and have none now.
        """
        late = []
        for other in others:
            booking = other.booking
            assert booking is not None
            if self._holdings.table.holds(slot):
                break
            if booking.begin >= slot.end or booking.end <= slot.start or not (
                    np.isin(booking.slot.hosts, slot.hosts).any()):
                continue
            best_effort = other.terms.kind is Kind.BEST_EFFORT
            if other.ahead:
                self._promises.withdraw(other)
                if not best_effort:
                    self._holdings.dequeue(other)
                    late.append(other)
            elif best_effort:
                self.leave(other, slot.start)
        return late

    def leave(self, lease: Lease, time: int) -> None:
        """Suspend a lease by a time, or as soon as that can be."""
        after = self._promises.left_by(lease, time)
        if after is not None:
            self._holdings.replace(lease, after)
        else:
            with contextlib.suppress(UnpausableError):
                self._promises.suspend(lease)

    def _late(self, lease: Lease, soonest: int) -> None:
        """Keep a promise as well as it still can be kept, if at all."""
        start = max(lease.terms.start or 0, self._holdings.now)
        if lease.terms.kind is Kind.DEADLINE:
            if self._promises.in_time(lease, lease.work, soonest):
                return
        elif any(self._promises.exactly(lease, time)
                 for time in (start, max(start, soonest))):
            return
        booking = self._promises.later(lease)
        if booking is not None:
            # What was found may take others to give way.
            if lease.terms.kind is Kind.DEADLINE:
                self._holdings.settle(lease, booking)
            else:
                self._promises.exactly(lease, booking.begin)
            return
        lease.reason = 'there is no room any more for what it was promised'
        lease.ended = self._holdings.now
        self._holdings.forget(lease)
        self._holdings.become(lease, LeaseState.FAILED)


def _begin(lease: Lease) -> int:
    assert lease.booking is not None
    return lease.booking.begin
