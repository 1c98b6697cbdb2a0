# SPDX-License-Identifier: Apache-2.0

"""Re-planning after deviations: overruns, lost hosts, reduced capacity."""

from collections.abc import Sequence
import contextlib
import dataclasses

import numpy as np

from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import Lease
from secondary_scheduler.leases.scheduling.planned_starts import (
    PlannedStarts,
    UnpausableError,
)
from secondary_scheduler.leases.scheduling.planner import Planner
from secondary_scheduler.leases.scheduling.schedule_state import ScheduleState
from secondary_scheduler.leases.scheduling.table import CapacityEntry
from secondary_scheduler.model.lease_states import LeaseState


class Replanner:
    """Clears capacity, and re-plans the leases that lose it."""

    def __init__(self, state: ScheduleState, planner: Planner,
                 planned_starts: PlannedStarts) -> None:
        self._state = state
        self._planner = planner
        self._planned_starts = planned_starts

    def extend_suspension(self, lease: Lease, until: int) -> None:
        """Keep the hosts of a suspension that takes until about then.

        Leases that begin on its hosts before that are re-planned; guaranteed
        starts as early as possible, even if late.
        """
        booking = lease.booking
        assert booking is not None
        late = self._clear(
            dataclasses.replace(booking.slot, start=booking.end, end=until),
            sorted((one for one in self._state.booked.values()
                    if one.ahead and _begin(one) >= booking.end), key=_begin))
        saving = self._state.disks.operation(
            booking.slot.hosts, booking.down, until)
        self._state.replace_booking(lease, dataclasses.replace(
            booking, end=until, slot=dataclasses.replace(
                booking.slot, end=until),
            operations=(*booking.operations[:-1], saving)))
        for other in late:
            self._rebook(other, until)

    def extend_run(self, lease: Lease, seconds: int) -> None:
        """Keep a lease on its hosts for longer, if there is room.

        Queued leases with a planned start on these hosts are requeued.  If
        the hosts are booked otherwise, a preemptible best-effort lease is
        suspended at its end and continues later.
        """
        booking = lease.booking
        assert booking is not None
        slot = dataclasses.replace(booking.slot, start=booking.end,
                                   end=booking.end + seconds)
        self._clear(slot, sorted(
            self._state.planned.values(), key=_begin, reverse=True))
        if self._state.table.has_room(slot):
            self._state.replace_booking(lease, dataclasses.replace(
                booking, down=booking.down + seconds, end=slot.end,
                slot=dataclasses.replace(booking.slot, end=slot.end)))
        elif lease.terms.preemptible and (
                lease.terms.kind is LeaseKind.BEST_EFFORT):
            self.suspend_by(lease, booking.end)

    def follow_move(self, lease: Lease) -> None:
        """Keep the starts that a moved lease is in the way of.

        Leases that have not begun get other hosts.  If none are free at a
        guaranteed start, the moved lease is suspended before it.
        """
        for other in sorted((one for one in self._state.booked.values()
                             if one.ahead and one is not lease), key=_begin):
            if not self._is_blocked(other, lease):
                continue
            booking = other.booking
            assert booking is not None
            for late in self._clear(booking.slot, [other]):
                if not self._planned_starts.book_free_hosts(
                        late, booking.begin):
                    if self._planner.may_suspend(lease.terms):
                        self.suspend_by(lease, booking.begin)
                    self._rebook(late, self._state.now)

    def _is_blocked(self, lease: Lease, by: Lease) -> bool:
        """Return whether the booking of a lease has no room beside another.
        """
        booking, other = lease.booking, by.booking
        assert booking is not None and other is not None
        if booking.begin >= other.end or booking.end <= other.begin or not (
                np.isin(booking.slot.hosts, other.slot.hosts).any()):
            return False
        with self._state.temporarily_released(booking):
            return not self._state.table.has_room(booking.slot)

    def restart_lost(self, lease: Lease) -> None:
        """Re-plan a lease that has lost its hosts and its work."""
        self._planned_starts.requeue(lease)
        if lease.terms.kind is not LeaseKind.BEST_EFFORT:
            self._state.dequeue(lease)
            self._rebook(lease, self._state.now)

    def withhold(self, slot: CapacityEntry) -> None:
        """Withhold capacity of some hosts from leases.

        Leases are preempted until it fits: best effort first, then leases
        that have not begun, the latest first.  Running leases that are not
        best effort or cannot be suspended stay.
        """
        late = self._clear(slot, sorted(
            self._state.booked.values(), key=lambda one: (
                one.terms.kind is not LeaseKind.BEST_EFFORT, -_begin(one))))
        self._state.table.take(slot)
        for other in sorted(late, key=lambda one: one.terms.start or 0):
            self._rebook(other, self._state.now)

    def _clear(self, slot: CapacityEntry,
               others: Sequence[Lease]) -> list[Lease]:
        """Preempt some of the others until a slot fits.

        Return leases with a guaranteed start that have no booking now.
        """
        late = []
        for other in others:
            booking = other.booking
            assert booking is not None
            if self._state.table.has_room(slot):
                break
            if booking.begin >= slot.end or booking.end <= slot.start or not (
                    np.isin(booking.slot.hosts, slot.hosts).any()):
                continue
            best_effort = other.terms.kind is LeaseKind.BEST_EFFORT
            if other.ahead:
                self._planned_starts.requeue(other)
                if not best_effort:
                    self._state.dequeue(other)
                    late.append(other)
            elif best_effort:
                self.suspend_by(other, slot.start)
        return late

    def suspend_by(self, lease: Lease, time: int) -> None:
        """Suspend a lease by a time, or as early as possible after it."""
        after = self._planned_starts.shortened_booking(lease, time)
        if after is not None:
            self._state.replace_booking(lease, after)
        else:
            with contextlib.suppress(UnpausableError):
                self._planned_starts.suspend_lease(lease)

    def _rebook(self, lease: Lease, soonest: int) -> None:
        """Book a lease with a guaranteed start as close to it as possible.

        The lease fails if no booking is feasible.
        """
        start = max(lease.terms.start or 0, self._state.now)
        if lease.terms.kind is LeaseKind.DEADLINE:
            if self._planned_starts.book_before_deadline(
                    lease, lease.work, soonest):
                return
        elif any(self._planned_starts.book_exact_start(lease, time)
                 for time in (start, max(start, soonest))):
            return
        booking = self._planned_starts.next_possible_booking(lease)
        if booking is not None:
            # An exact start that was found may need preemption.
            if lease.terms.kind is LeaseKind.DEADLINE:
                self._state.book(lease, booking)
            else:
                self._planned_starts.book_exact_start(lease, booking.begin)
            return
        lease.reason = 'there is no room left for its guaranteed start'
        lease.ended = self._state.now
        self._state.forget_images(lease)
        self._state.enter_state(lease, LeaseState.FAILED)


def _begin(lease: Lease) -> int:
    assert lease.booking is not None
    return lease.booking.begin
