# SPDX-License-Identifier: Apache-2.0

"""Scheduling of the wait queue, with backfilling.

Sotomayor 2010, section 5.1.2 (algorithm 2).
"""

from collections.abc import Iterator

from secondary_scheduler.decisions.queue_pass import serve_queue
from secondary_scheduler.leases.scheduling.fit_cache import FitCache
from secondary_scheduler.leases.scheduling.lease import Booking, Lease
from secondary_scheduler.leases.scheduling.planned_starts import PlannedStarts
from secondary_scheduler.leases.scheduling.planner import Planner
from secondary_scheduler.leases.scheduling.queue import QueuedLease
from secondary_scheduler.leases.scheduling.schedule_state import ScheduleState
from secondary_scheduler.leases.scheduling.transitions import Transitions


class Backfilling:
    """Starts queued leases, and plans the starts of the first that wait.

    ``reservations`` is how many queued leases may have a planned start; None:
    all of them.
    """

    def __init__(self, state: ScheduleState, planner: Planner,
                 planned_starts: PlannedStarts, transitions: Transitions,
                 reservations: int | None) -> None:
        self._state = state
        self._planner = planner
        self._planned_starts = planned_starts
        self._transitions = transitions
        self._reservations = reservations
        self._fit_cache = FitCache(state, planner)

    def schedule_queue(self) -> None:
        """Start queued leases or plan their starts, in queue order.

        The remaining capacity starts leases with a deadline that were booked
        for later, since other leases end early.
        """
        self._fit_cache.clear()
        serve_queue(self._candidates(), self._place,
                    keeps_room=lambda entry: self._reservations == 0)
        self._advance_deadline_leases()

    def replan_planned_starts(self) -> None:
        """Re-plan leases with a planned start after capacity was freed.

        In queue order, withdraw each and start it or plan its start again, so
        that no planned start moves later.  A planned start behind the head of
        the queue is withdrawn in its favour.
        """
        serve_queue(self._withdrawn(), self._place)

    def _withdrawn(self) -> Iterator[QueuedLease]:
        """Withdraw planned starts in queue order, and yield those to re-plan.
        """
        first = next(iter(self._state.queue), None)
        for lease in sorted(self._state.planned.values(),
                            key=self._planner.rank_of):
            self._fit_cache.clear()
            entry = self._planned_starts.requeue(lease)
            if first is None or first.rank >= entry.rank:
                yield entry

    def _advance_deadline_leases(self) -> None:
        """Start leases with a deadline now that are booked for later."""
        for lease in sorted(self._state.deadlines_ahead.values(),
                            key=_planned_start):
            if (lease.terms.start or 0) > self._state.now or not (
                    lease.may_start and self._fit_cache.has_room(lease.terms)):
                continue
            booking = self._planned_starts.earlier_booking(lease)
            if booking is not None:
                self._planned_starts.requeue(lease)
                self.book(lease, booking)

    def _candidates(self) -> Iterator[QueuedLease]:
        """Yield leases that may start or get a planned start, in order.

        Once no more starts may be planned, only leases that may start now.
        Without backfilling all leases, since one that waits blocks the next.
        """
        queue = self._state.queue
        tried: tuple[float, ...] = ()
        for entry in queue:
            if self._reservations != 0 and not self._may_plan():
                break
            tried = entry.rank
            if entry.lease.may_start:
                yield entry
        else:
            return
        begun = True
        while begun:    # and took capacity from the leases behind
            begun = False
            for entry in queue.startable(self._fit_cache.durations):
                if entry.rank > tried and entry.lease.may_start:
                    tried = entry.rank
                    yield entry
                    if begun := entry.lease not in queue:
                        break

    def _may_plan(self) -> bool:
        """Return whether one more queued lease may have a planned start."""
        limit = self._reservations
        return limit is None or len(self._state.planned) < limit

    def _place(self, entry: QueuedLease) -> bool:
        """Start a queued lease or plan its start; return False if neither."""
        return self._start(entry) or self._plan_start(entry)

    def _start(self, entry: QueuedLease) -> bool:
        """Start a queued lease, or transfer what it needs first.

        :returns: False if it does not fit.
        """
        if not self._fit_cache.may_start(entry):
            return False
        for time in self._planner.start_times(entry.work):
            booking = self._planner.find_booking(entry.work, time)
            if booking is not None:
                self.book(entry.lease, booking)
                return True
        return False

    def _plan_start(self, entry: QueuedLease) -> bool:
        """Plan the earliest possible start of a queued lease.

        :returns: False if no more starts may be planned, or it never fits.
        """
        if not self._may_plan():
            return False
        booking = self._planner.find_earliest_booking(
            entry.work, self._planner.start_times(entry.work)[-1] + 1)
        if booking is None:
            return False
        self.book(entry.lease, booking)
        self._state.planned[entry.lease.number] = entry.lease
        return True

    def book(self, lease: Lease, booking: Booking) -> None:
        """Book hosts for a queued lease; begin if the time has come."""
        self._fit_cache.clear()
        self._state.dequeue(lease)
        self._state.book(lease, booking)
        if booking.begin <= self._state.now:
            self._transitions.begin(lease, booking)


def _planned_start(lease: Lease) -> tuple[int, int]:
    assert lease.booking is not None
    return lease.booking.begin, lease.number
