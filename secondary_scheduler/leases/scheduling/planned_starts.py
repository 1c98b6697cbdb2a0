# SPDX-License-Identifier: Apache-2.0

"""Guaranteed starts: exact starts, deadlines, and preemption for them.

Sotomayor 2010, sections 5.1.3, 5.2 and 5.3 (algorithms 3 to 5).
"""

from collections.abc import Callable
import contextlib
import dataclasses

from secondary_scheduler.leases.scheduling import mapping
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import (
    Booking,
    Lease,
    RemainingWork,
)
from secondary_scheduler.leases.scheduling.planner import Planner, Settings
from secondary_scheduler.leases.scheduling.preemption import select_preemptees
from secondary_scheduler.leases.scheduling.queue import QueuedLease
from secondary_scheduler.leases.scheduling.schedule_state import (
    InfeasibleError,
    ScheduleState,
)
from secondary_scheduler.leases.scheduling.types import NEVER
from secondary_scheduler.model.lease_states import LeaseState


class UnpausableError(Exception):
    """The lease cannot be paused; the message gives the reason."""


class PlannedStarts:
    """Books hosts at requested times, preempting other leases if needed."""

    def __init__(self, settings: Settings, state: ScheduleState,
                 planner: Planner) -> None:
        self._settings = settings
        self._state = state
        self._planner = planner

    def book_as_requested(self, lease: Lease) -> bool:
        """Book hosts that fulfil the terms of a lease; False if infeasible."""
        terms, now = lease.terms, self._state.now
        start = now if terms.start is None else terms.start
        if terms.kind is LeaseKind.IMMEDIATE:
            soon = now + self._planner.image_transfer_time(terms)
            return any(self.book_exact_start(lease, time)
                       for time in self._planner.start_times(lease.work)
                       if time <= soon)
        if terms.kind is not LeaseKind.DEADLINE:
            return start >= now and self.book_exact_start(lease, start)
        assert terms.deadline is not None
        start = max(start, now)
        slack = (terms.deadline - start) / terms.duration
        return (
            (1 <= slack <= self._settings.slack
             and self.book_exact_start(lease, start))
            or self.book_before_deadline(lease, lease.work, start)
            or self._replan_by_urgency(lease, start))

    def requeue(self, lease: Lease) -> QueuedLease:
        """Withdraw the booking of a lease and queue the lease."""
        self._state.release(lease)
        self._state.cancel_transfers(lease)
        entry = self._planner.queue_entry(lease)
        self._state.enqueue(entry)
        return entry

    def earlier_booking(self, lease: Lease) -> Booking | None:
        """Return a booking that begins now, for a lease booked for later.

        None unless it begins earlier and its VMs stop no later.
        """
        booking, now = lease.booking, self._state.now
        assert booking is not None
        with self._state.temporarily_released(booking):
            sooner = self._planner.find_booking(lease.work, now)
        return (sooner if sooner is not None and sooner.begin < booking.begin
                and sooner.down <= booking.down else None)

    def book_free_hosts(self, lease: Lease, start: int) -> bool:
        """Book free hosts as guaranteed; False if there are none.

        :param start: exact start, if the lease has no deadline
        """
        if lease.terms.kind is LeaseKind.DEADLINE:
            return self.book_before_deadline(lease, lease.work,
                                             lease.terms.start or 0)
        return self._book_at(lease, lease.work, start)

    # -- an exact start

    def book_exact_start(self, lease: Lease, start: int) -> bool:
        """Book hosts from ``start`` on, preempting leases if needed.

        :returns: False if infeasible; nothing has changed then.
        """
        work = lease.work
        if self._book_at(lease, work, start):
            return True
        candidates = self._preemption_candidates(lease, work, start)
        while True:
            preemptees = select_preemptees(
                self._state.table, start,
                (one for one in candidates
                 if one.ahead or self._latest_end(one, start) is not None),
                lambda: self._place_vms(work, start))
            if preemptees is None:
                return False
            try:
                with self._state.attempt(lease):
                    for preemptee in preemptees:
                        self._preempt_by(preemptee, start)
                    if not self._book_at(lease, work, start):
                        raise InfeasibleError(lease)
                    for preemptee in preemptees:
                        self._keep_deadline(preemptee)
                return True
            except InfeasibleError as exc:
                if exc.lease is lease:
                    return False
                candidates.remove(exc.lease)

    def _book_at(self, lease: Lease, work: RemainingWork,
                 start: int) -> bool:
        place = self._place_vms(work, start)
        if place is None:
            return False
        down = start + work.remaining
        self._state.book(lease, Booking(
            start, start, down, place.slot.end, place.vms, place.slot,
            self._planner.suspend_time(work.terms, place.vms)))
        return True

    def _place_vms(self, work: RemainingWork,
                   start: int) -> mapping.Placement | None:
        return self._planner.place_vms(
            work, start, self._planner.total_time(work))

    def _preemption_candidates(self, lease: Lease, work: RemainingWork,
                               start: int) -> list[Lease]:
        """Return leases that may be preempted, the highest score first."""
        end = start + self._planner.total_time(work)
        scored = []
        for other in self._state.booked.values():
            booking = other.booking
            assert booking is not None
            if booking.begin >= end or booking.end <= start or other.later:
                continue
            score = self._settings.preemption.score(
                lease, other, start, self._state.now)
            if score >= 0:
                scored.append((-score, other.number, other))
        return [other for *_, other in sorted(scored,
                                              key=lambda one: one[:2])]

    # -- preemption

    def _latest_end(self, lease: Lease, time: int) -> int | None:
        """Return the latest end by ``time`` of a booking cut short.

        None if the lease cannot be preempted by then.
        """
        booking = lease.booking
        assert booking is not None
        if lease.state is LeaseState.SUSPENDING:
            return None
        if not self._settings.suspension:
            # A lease without an end would restart for nothing.
            return (time if time > booking.up and lease.terms.duration < NEVER
                    else None)
        soonest = max(self._state.now, booking.up)
        if time - booking.save_s <= soonest:
            return None     # too late, even if the disks are idle
        end = self._state.disks.idle_until(
            booking.slot.hosts, time, booking.save_s,
            booking.operations[-1] if booking.saves else None)
        return end if end - booking.save_s > soonest else None

    def shortened_booking(self, lease: Lease, time: int) -> Booking | None:
        """Return the booking of a lease, cut short to end by ``time``.

        It ends in a suspension, or in the loss of its work where suspension
        is disabled.  None if the lease cannot be preempted by then.
        """
        booking = lease.booking
        assert booking is not None
        end = self._latest_end(lease, time)
        if end is None:
            return None
        slot = dataclasses.replace(booking.slot, end=end)
        if not self._settings.suspension:
            return dataclasses.replace(booking, down=end, end=end, loses=True,
                                       slot=slot)
        down = end - booking.save_s
        loading = booking.operations[:1] if booking.up > booking.begin else ()
        return dataclasses.replace(
            booking, down=down, end=end, saves=True, loses=False, slot=slot,
            operations=(*loading, self._state.disks.operation(
                booking.slot.hosts, down, end)))

    def suspend_lease(self, lease: Lease) -> None:
        """Suspend a lease that holds hosts, as early as possible.

        :raises UnpausableError: if it cannot be suspended.
        """
        booking = lease.booking
        assert booking is not None
        if not (self._settings.suspension and lease.terms.preemptible):
            raise UnpausableError(f'lease {lease.id} cannot be suspended; it '
                                  'can be cancelled')
        if booking.saves:
            return
        begin = max(self._state.now, booking.up) + 1
        after = self.shortened_booking(
            lease, booking.save_s + self._state.disks.idle_from(
                booking.slot.hosts, begin, booking.save_s))
        if after is not None and after.end <= booking.end:
            self._state.replace_booking(lease, after)

    def _preempt_by(self, lease: Lease, time: int) -> None:
        """Requeue or suspend a lease so that its hosts are free by a time."""
        if lease.ahead:
            self.requeue(lease)
            return
        after = self.shortened_booking(lease, time)
        if after is None:
            raise InfeasibleError(lease)
        self._state.replace_booking(lease, after)

    def _keep_deadline(self, lease: Lease) -> None:
        """Book hosts for a preempted lease that has a deadline.

        :raises InfeasibleError: if the deadline cannot be met any more.
        """
        if lease.terms.kind is not LeaseKind.DEADLINE:
            return
        if lease.booking is None:
            self._state.dequeue(lease)
            if not self.book_before_deadline(lease, lease.work,
                                             lease.terms.start or 0):
                raise InfeasibleError(lease)
            return
        work = lease.work_after(lease.booking)
        later = self._find_before_deadline(work, lease.booking.end)
        if later is None:
            raise InfeasibleError(lease)
        self._state.book_later(lease, later)

    # -- deadlines

    def _find_before_deadline(self, work: RemainingWork,
                              start: int) -> Booking | None:
        """Return the first booking that meets the deadline, if any."""
        assert work.terms.deadline is not None
        booking = self._planner.find_earliest_booking(
            work, self._planner.earliest_start(work, start),
            work.terms.deadline - work.remaining - work.load_s)
        return (booking if booking is not None
                and booking.down <= work.terms.deadline else None)

    def book_before_deadline(self, lease: Lease, work: RemainingWork,
                             start: int) -> bool:
        """Book the first hosts that meet the deadline; False if infeasible."""
        booking = self._find_before_deadline(work, start)
        if booking is None:
            return False
        self._state.book(lease, booking)
        return True

    def _replan_by_urgency(self, lease: Lease, start: int) -> bool:
        """Re-plan leases that have not begun, the most urgent first.

        Sotomayor 2010, algorithm 5.  The order is by slack or by deadline.
        Ordering by deadline accepts every lease that is feasible without
        preemption if all are placed by their deadlines.
        """
        now = self._state.now
        orders: dict[str, tuple[int, Callable[[Lease], float]]] = {
            'slack': (start, lambda one: (
                ((one.terms.deadline or 0) - now) / one.terms.duration)),
            # A lease that begins in this very second counts as not begun.
            'deadline': (now - 1, lambda one: one.terms.deadline or 0)}
        return any(self._replan_in_order(lease, *orders[one])
                   for one in self._settings.deadline_replanning_orders)

    def _replan_in_order(self, lease: Lease, after: int,
                         urgency: Callable[[Lease], float]) -> bool:
        """Re-plan all leases that begin after a time, in order of urgency.

        Best-effort leases are requeued.
        """
        others = [one for one in self._state.booked.values()
                  if one.ahead and one.booking is not None
                  and one.booking.begin > after
                  and one.terms.kind in (LeaseKind.DEADLINE,
                                         LeaseKind.BEST_EFFORT)]
        if not others:
            return False
        try:
            with self._state.attempt(lease):
                for other in others:
                    self.requeue(other)
                urgent = [one for one in others
                          if one.terms.kind is LeaseKind.DEADLINE]
                for other in urgent:
                    self._state.dequeue(other)
                for one in sorted([*urgent, lease], key=urgency):
                    if not self.book_before_deadline(one, one.work,
                                                     one.terms.start or 0):
                        raise InfeasibleError(one)
        except InfeasibleError:
            return False
        return True

    # -- counter-offers

    def next_possible_booking(self, lease: Lease) -> Booking | None:
        """Return the first feasible booking, at or after the requested start.

        For an exact start these times are tried before hosts become free:
        ends of other bookings, and the earliest ends of suspensions.
        """
        terms, work, now = lease.terms, lease.work, self._state.now
        start = max(terms.start or 0, now)
        sure = self._planner.find_earliest_booking(
            work, self._planner.earliest_start(work, start))
        if terms.kind is LeaseKind.DEADLINE:
            return sure
        times = {start}
        for other in self._state.booked.values():
            assert other.booking is not None
            times |= {other.booking.end, now + 1 + other.booking.save_s}
        last = NEVER if sure is None else sure.begin
        for time in sorted(times):
            if start <= time < last:
                found = self._try_exact_start(lease, time)
                if found is not None:
                    return found
        return sure

    def _try_exact_start(self, lease: Lease, start: int) -> Booking | None:
        """Return the booking a lease would get at a time; change nothing."""
        found = None
        with contextlib.suppress(InfeasibleError), self._state.attempt(
                lease):
            if self.book_exact_start(lease, start):
                found = lease.booking
            raise InfeasibleError(lease)
        return found
