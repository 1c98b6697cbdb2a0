"""Promises: exact starts and deadlines, and what gives way for them.

Haizea 4.6 and 4.7, Algorithms 3 to 5.
"""

from collections.abc import Callable
import contextlib
import dataclasses

from secondary_scheduler.leases.scheduling import mapping
from secondary_scheduler.leases.scheduling.lease import (
    Booking,
    Kind,
    Lease,
    RemainingWork,
)
from secondary_scheduler.leases.scheduling.planner import Planner, Settings
from secondary_scheduler.leases.scheduling.preemption import fewest
from secondary_scheduler.leases.scheduling.queue import QueuedLease
from secondary_scheduler.leases.scheduling.schedule_state import (
    Holdings,
    InfeasibleError,
)
from secondary_scheduler.leases.scheduling.types import NEVER
from secondary_scheduler.model.lease_states import LeaseState


class UnpausableError(Exception):
    """A lease cannot be paused; says why."""


class Promises:
    """Makes promises, and keeps those that were made."""

    def __init__(self, settings: Settings, holdings: Holdings,
                 planner: Planner) -> None:
        self._settings = settings
        self._holdings = holdings
        self._planner = planner

    def make(self, lease: Lease) -> bool:
        """Promise a lease what it asks for; tell whether that can be."""
        terms, now = lease.terms, self._holdings.now
        start = now if terms.start is None else terms.start
        if terms.kind is Kind.IMMEDIATE:
            soon = now + self._planner.sending(terms)
            return any(self.exactly(lease, time)
                       for time in self._planner.times(lease.work)
                       if time <= soon)
        if terms.kind is not Kind.DEADLINE:
            return start >= now and self.exactly(lease, start)
        assert terms.deadline is not None
        start = max(start, now)
        slack = (terms.deadline - start) / terms.duration
        return (
            (1 <= slack <= self._settings.slack
             and self.exactly(lease, start))
            or self.in_time(lease, lease.work, start)
            or self._rearranged(lease, start))

    def withdraw(self, lease: Lease) -> QueuedLease:
        """Put a lease that holds nothing yet back into the queue."""
        self._holdings.drop(lease)
        self._holdings.stop_sending(lease)
        waiting = self._planner.waiting(lease)
        self._holdings.enqueue(waiting)
        return waiting

    def at_once(self, lease: Lease) -> Booking | None:
        """Return how a lease that is promised a later time could begin now.
        """
        booking, now = lease.booking, self._holdings.now
        assert booking is not None
        with self._holdings.without(booking):
            sooner = self._planner.booking(lease.work, now)
        return (sooner if sooner is not None and sooner.begin < booking.begin
                and sooner.down <= booking.down else None)

    # -- an exact start

    def exactly(self, lease: Lease, start: int) -> bool:
        """Give a lease hosts from ``start`` on; others may have to go."""
        work = lease.work
        if self._settle_at(lease, work, start):
            return True
        candidates = self._candidates(lease, work, start)
        while True:
            victims = fewest(
                self._holdings.table, start,
                (one for one in candidates
                 if one.ahead or self._end_by(one, start) is not None),
                lambda: self._place(work, start))
            if victims is None:
                return False
            try:
                with self._holdings.attempt(lease):
                    for victim in victims:
                        self._preempt_for(victim, start)
                    if not self._settle_at(lease, work, start):
                        raise InfeasibleError(lease)
                    for victim in victims:
                        self._keep(victim)
                return True
            except InfeasibleError as exc:
                if exc.lease is lease:
                    return False
                candidates.remove(exc.lease)

    def _settle_at(self, lease: Lease, work: RemainingWork,
                   start: int) -> bool:
        place = self._place(work, start)
        if place is None:
            return False
        down = start + work.remaining
        self._holdings.settle(lease, Booking(
            start, start, down, place.slot.end, place.vms, place.slot,
            self._planner.saving(work.terms, place.vms)))
        return True

    def _place(self, work: RemainingWork,
               start: int) -> mapping.Placement | None:
        return self._planner.place(work, start, self._planner.whole(work))

    def _candidates(self, lease: Lease, work: RemainingWork, start: int
                    ) -> list[Lease]:
        """Return who may give way, in the order in which they do."""
        end = start + self._planner.whole(work)
        scored = []
        for other in self._holdings.staying.values():
            booking = other.booking
            assert booking is not None
            if booking.begin >= end or booking.end <= start or other.later:
                continue
            score = self._settings.preemption.score(
                lease, other, start, self._holdings.now)
            if score >= 0:
                scored.append((-score, other.number, other))
        return [other for *_, other in sorted(scored,
                                              key=lambda one: one[:2])]

    # -- giving way

    def _end_by(self, lease: Lease, time: int) -> int | None:
        """Return when a lease that holds hosts leaves to have left by a time.

        None if it cannot.
        """
        booking = lease.booking
        assert booking is not None
        if lease.state is LeaseState.SUSPENDING:
            return None
        if not self._settings.suspension:
            # Whoever has no end would begin anew for nothing.
            return (time if time > booking.up and lease.terms.duration < NEVER
                    else None)
        soonest = max(self._holdings.now, booking.up)
        if time - booking.save_s <= soonest:
            return None     # whatever the disks do
        end = self._holdings.disks.quiet_until(
            booking.slot.hosts, time, booking.save_s,
            booking.operations[-1] if booking.saves else None)
        return end if end - booking.save_s > soonest else None

    def left_by(self, lease: Lease, time: int) -> Booking | None:
        """Return how a lease that holds hosts could have left by a time."""
        booking = lease.booking
        assert booking is not None
        end = self._end_by(lease, time)
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
            operations=(*loading, self._holdings.disks.operation(
                booking.slot.hosts, down, end)))

    def suspend(self, lease: Lease) -> None:
        """Suspend a lease that holds hosts, as soon as that can be."""
        booking = lease.booking
        assert booking is not None
        if not (self._settings.suspension and lease.terms.preemptible):
            raise UnpausableError(f'lease {lease.id} cannot be suspended; it '
                                  'can be cancelled')
        if booking.saves:
            return
        begin = max(self._holdings.now, booking.up) + 1
        after = self.left_by(
            lease, booking.save_s + self._holdings.disks.quiet_from(
                booking.slot.hosts, begin, booking.save_s))
        if after is not None and after.end <= booking.end:
            self._holdings.replace(lease, after)

    def _preempt_for(self, lease: Lease, time: int) -> None:
        """Make a lease leave by a time."""
        if lease.ahead:
            self.withdraw(lease)
            return
        after = self.left_by(lease, time)
        if after is None:
            raise InfeasibleError(lease)
        self._holdings.replace(lease, after)

    def _keep(self, lease: Lease) -> None:
        """Keep what was promised to a lease that had to give way."""
        if lease.terms.kind is not Kind.DEADLINE:
            return
        if lease.booking is None:
            self._holdings.dequeue(lease)
            if not self.in_time(lease, lease.work, lease.terms.start or 0):
                raise InfeasibleError(lease)
            return
        work = lease.work_after(lease.booking)
        later = self._by_deadline(work, lease.booking.end)
        if later is None:
            raise InfeasibleError(lease)
        self._holdings.promise(lease, later)

    # -- deadlines

    def _by_deadline(self, work: RemainingWork, start: int) -> Booking | None:
        """Return the first stay that ends by the deadline."""
        assert work.terms.deadline is not None
        booking = self._planner.earliest(
            work, self._planner.soonest(work, start),
            work.terms.deadline - work.remaining - work.load_s)
        return (booking if booking is not None
                and booking.down <= work.terms.deadline else None)

    def in_time(self, lease: Lease, work: RemainingWork, start: int) -> bool:
        """Give a lease the first hosts by which it meets its deadline."""
        booking = self._by_deadline(work, start)
        if booking is None:
            return False
        self._holdings.settle(lease, booking)
        return True

    def _rearranged(self, lease: Lease, start: int) -> bool:
        """Plan all anew that has not begun, the most urgent first (Alg. 5).

        That is who has least slack, or whose deadline is first: with the
        second no lease is refused that would be taken if nobody gave way.
        """
        now = self._holdings.now
        orders: dict[str, tuple[int, Callable[[Lease], float]]] = {
            'slack': (start, lambda one: (
                ((one.terms.deadline or 0) - now) / one.terms.duration)),
            # Who is to begin in this very second has not begun either.
            'deadline': (now - 1, lambda one: one.terms.deadline or 0)}
        return any(self._reordered(lease, *orders[one])
                   for one in self._settings.rearranging)

    def _reordered(self, lease: Lease, after: int,
                   urgency: Callable[[Lease], float]) -> bool:
        """Plan anew, in this order, all that is to begin after a time.

        Who has no deadline has all the time, and waits again.
        """
        others = [one for one in self._holdings.staying.values()
                  if one.ahead and one.booking is not None
                  and one.booking.begin > after
                  and one.terms.kind in (Kind.DEADLINE, Kind.BEST_EFFORT)]
        if not others:
            return False
        try:
            with self._holdings.attempt(lease):
                for other in others:
                    self.withdraw(other)
                urgent = [one for one in others
                          if one.terms.kind is Kind.DEADLINE]
                for other in urgent:
                    self._holdings.dequeue(other)
                for one in sorted([*urgent, lease], key=urgency):
                    if not self.in_time(one, one.work, one.terms.start or 0):
                        raise InfeasibleError(one)
        except InfeasibleError:
            return False
        return True

    # -- counter-offers

    def later(self, lease: Lease) -> Booking | None:
        """Return the first stay that a lease could have, whatever it asked.

        An exact start may be had before hosts are free, where others end that
        do not give way, or as soon as those that do can have left.
        """
        terms, work, now = lease.terms, lease.work, self._holdings.now
        start = max(terms.start or 0, now)
        sure = self._planner.earliest(work, self._planner.soonest(work, start))
        if terms.kind is Kind.DEADLINE:
            return sure
        times = {start}
        for other in self._holdings.staying.values():
            assert other.booking is not None
            times |= {other.booking.end, now + 1 + other.booking.save_s}
        last = NEVER if sure is None else sure.begin
        for time in sorted(times):
            if start <= time < last:
                found = self._tried(lease, time)
                if found is not None:
                    return found
        return sure

    def _tried(self, lease: Lease, start: int) -> Booking | None:
        """Return the stay that a lease would get at a time."""
        found = None
        with contextlib.suppress(InfeasibleError), self._holdings.attempt(
                lease):
            if self.exactly(lease, start):
                found = lease.booking
            raise InfeasibleError(lease)
        return found
