# SPDX-License-Identifier: Apache-2.0

"""Schedule state: bookings, wait queue and event queue."""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import heapq
import itertools
import typing

from secondary_scheduler.leases.scheduling.disks import Disks
from secondary_scheduler.leases.scheduling.images import (
    ImageLocations,
    Preparation,
)
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import (
    Booking,
    Lease,
    RemainingWork,
)
from secondary_scheduler.leases.scheduling.queue import Queue, QueuedLease
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.table import SlotTable
from secondary_scheduler.leases.scheduling.types import Ints
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState

#: Phases of a booking, in the order in which events of one second occur.
DOWN, END, FREE, BEGIN, UP = range(5)


class DueEvent(typing.NamedTuple):
    """A phase of a booking, planned for a time."""

    time: int
    phase: int
    order: int
    booking: Booking | None
    lease: Lease


class InfeasibleError(Exception):
    """An attempt failed; ``lease`` is the lease that could not be booked."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease.id)
        self.lease = lease


class _Attempt:
    """Undo steps of an attempt, and the effects deferred to its success."""

    def __init__(self) -> None:
        self.undo = contextlib.ExitStack()
        self.notifications: list[tuple[Lease, LeaseState]] = []
        self.events: list[DueEvent] = []


class ScheduleState:
    """Hosts of a site with their bookings, queued leases and due events.

    ``shared``: memory is saved to one storage of the whole site.  Without
    ``preparation`` no images are transferred.  ``notify`` is called with each
    lease that entered a state, and its previous state.

    ``image_distance`` gives, for some images, the distance from each host,
    shape (hosts,): 0 present, 1 in transfer, 2 absent.
    """

    def __init__(self, site: Site, shared: bool,
                 preparation: Preparation | None, now: int,
                 notify: Callable[[Lease, LeaseState], object]) -> None:
        self.now = now
        self.table = SlotTable(site.columns, now)
        self.disks = Disks(1 if shared else self.table.hosts)
        self.images = (None if preparation is None else
                       ImageLocations(preparation, self.table.hosts, now))
        self.image_distance: Mapping[str, Ints] = {}
        self.queue = Queue()
        # Leases with a booking, by number.
        self.booked: dict[int, Lease] = {}
        # Best-effort leases with a planned start.
        self.planned: dict[int, Lease] = {}
        # Leases with a deadline that have not begun.
        self.deadlines_ahead: dict[int, Lease] = {}
        self._events: list[DueEvent] = []
        self._order = itertools.count()
        self._notify = notify
        self._attempt: _Attempt | None = None

    def advance_clock(self, now: int) -> None:
        """Set the present time and forget the past."""
        self.now = now
        self.table.advance(now)
        self.disks.advance(now)
        if self.images is not None:
            for lease in self.images.advance(now):
                self._update_preparation(lease)

    def _update_preparation(self, lease: Lease) -> None:
        """Set the lease state that follows from its image transfers."""
        assert self.images is not None
        found = self.images.preparation_state(lease)
        if (
            lease.state is LeaseState.SCHEDULED
            and found is LeaseState.PREPARING
            or (
                lease.state in lease_states.COMING
                and found is LeaseState.READY
            )
        ):
            self.enter_state(lease, found)

    def enter_state(self, lease: Lease, state: LeaseState) -> None:
        """Change the state of a lease and notify."""
        before = lease.state
        self._save_for_undo(lease)
        lease.enter_state(state)
        if self._attempt is None:
            self._notify(lease, before)
        else:
            self._attempt.notifications.append((lease, before))

    def enqueue(self, entry: QueuedLease) -> None:
        """Add a lease to the wait queue."""
        self.enter_state(
            entry.lease,
            LeaseState.QUEUED
            if entry.work.home is None
            else LeaseState.SUSPENDED_QUEUED,
        )
        self.queue.add(entry)
        self._on_undo(self.queue.remove, entry.lease)

    def dequeue(self, lease: Lease) -> None:
        """Remove a lease from the wait queue."""
        self._on_undo(self.queue.add, self.queue.remove(lease))

    # -- bookings

    def book(self, lease: Lease, booking: Booking) -> None:
        """Give a booking to a lease that has none."""
        self.enter_state(lease, LeaseState.SCHEDULED if lease.home is None
                         else LeaseState.SUSPENDED_SCHEDULED)
        self._take(booking)
        self._assign_image(lease, lease.work, booking)
        lease.booking = booking
        self.booked[lease.number] = lease
        if lease.terms.kind is LeaseKind.DEADLINE:
            self.deadlines_ahead[lease.number] = lease
        self.add_event(lease, booking, BEGIN, booking.begin)

    def _assign_image(self, lease: Lease, work: RemainingWork,
                      booking: Booking) -> None:
        """Plan the transfers of the image that a booking needs, if any."""
        if self.images is not None and self.images.is_needed(work):
            self.images.assign(lease, booking)
            self._update_preparation(lease)

    def restore(self, lease: Lease, booking: Booking) -> None:
        """Take over a stored lease with its booking."""
        self._take(booking)
        if lease.later is not None:
            self._take(lease.later)
        self.booked[lease.number] = lease
        if lease.ahead:
            if lease.terms.kind is LeaseKind.DEADLINE:
                self.deadlines_ahead[lease.number] = lease
            elif lease.terms.kind is LeaseKind.BEST_EFFORT:
                self.planned[lease.number] = lease
            self.add_event(lease, booking, BEGIN, booking.begin)
        elif lease.state is LeaseState.SUSPENDING:
            self.add_event(lease, booking, END, booking.end)
        else:
            if lease.state is LeaseState.RESUMING:
                self.add_event(lease, booking, UP, booking.up)
            self.add_event(lease, booking, DOWN, booking.down)

    def forget_planned_start(self, lease: Lease) -> None:
        """Forget that a lease is ahead: it begins or loses its booking."""
        self.planned.pop(lease.number, None)
        self.deadlines_ahead.pop(lease.number, None)

    @contextlib.contextmanager
    def temporarily_released(self, booking: Booking) -> Iterator[None]:
        """Return the capacity of a booking while the context is active."""
        self._give(booking)
        try:
            yield
        finally:
            self._take(booking)

    def replace_booking(self, lease: Lease, booking: Booking) -> None:
        """Replace the booking of a lease that holds its hosts."""
        assert lease.booking is not None
        self._save_for_undo(lease)
        self._give(lease.booking)
        self._take(booking)
        lease.booking = booking
        if lease.state is LeaseState.RESUMING:
            self.add_event(lease, booking, UP, booking.up)
        if lease.state is LeaseState.SUSPENDING:
            self.add_event(lease, booking, END, booking.end)
        else:
            self.add_event(lease, booking, DOWN, booking.down)

    def book_later(self, lease: Lease, booking: Booking) -> None:
        """Give a lease a second booking, after its present one."""
        assert lease.later is None and lease.booking is not None
        self._save_for_undo(lease)
        self._take(booking)
        self._assign_image(lease, lease.work_after(lease.booking), booking)
        lease.later = booking

    def release(self, lease: Lease) -> Booking:
        """Remove the bookings of a lease; return the present one."""
        booking = lease.booking
        assert booking is not None
        self._save_for_undo(lease)
        self._give(booking)
        lease.booking = None
        del self.booked[lease.number]
        self.forget_planned_start(lease)
        if lease.later is not None:
            self._give(lease.later)
            lease.later = None
        return booking

    def cancel_transfers(self, lease: Lease) -> None:
        """Cancel the image transfers of a lease that have not begun."""
        if self.images is not None and lease.home is None:
            self.images.withdraw(lease)

    def release_after(self, lease: Lease, seconds: int) -> None:
        """Remove the bookings of a lease; its hosts stay taken for a time.

        They are free after ``seconds``, or at the end of the booking.
        """
        booking = self.release(lease)
        self.forget_images(lease)
        end = min(self.now + seconds, booking.end)
        if end > self.now:
            self.table.take(dataclasses.replace(
                booking.slot, start=self.now, end=end, tenants=0))
            self.add_event(lease, None, FREE, end)

    def forget_images(self, lease: Lease) -> None:
        """Forget the images of a lease that is over."""
        if self.images is not None:
            self.images.forget_lease(lease)

    def _take(self, booking: Booking) -> None:
        self._change(booking, True)
        self._on_undo(self._change, booking, False)

    def _give(self, booking: Booking) -> None:
        self._change(booking, False)
        self._on_undo(self._change, booking, True)

    def _change(self, booking: Booking, taken: bool) -> None:
        change = self.table.take if taken else self.table.give
        change(booking.slot)
        operate = self.disks.take if taken else self.disks.give
        for operation in booking.operations:
            operate(operation)

    # -- attempts

    @contextlib.contextmanager
    def attempt(self, lease: Lease) -> Iterator[None]:
        """Undo the changes made for a lease if InfeasibleError is raised.

        The error is raised again.  Notifications and events wait until the
        outermost attempt has succeeded.
        """
        images = None if self.images is None else self.images.copy()
        booked, planned, deadlines_ahead = (
            dict(self.booked), dict(self.planned), dict(self.deadlines_ahead))
        outer = self._attempt
        this = self._attempt = _Attempt()
        try:
            yield
        except InfeasibleError:
            self.images, self.booked = images, booked
            self.planned, self.deadlines_ahead = planned, deadlines_ahead
            this.undo.close()
            raise
        finally:
            self._attempt = outer
        self._on_undo(this.undo.close)
        for one, state in this.notifications:
            if outer is None:
                self._notify(one, state)
            else:
                outer.notifications.append((one, state))
        for event in this.events:
            self._schedule(event)

    def _save_for_undo(self, lease: Lease) -> None:
        """Save the attributes of a lease that is about to change."""
        if self._attempt is not None:
            self._on_undo(vars(lease).update, vars(lease).copy())

    def _on_undo(self, change: Callable[..., object], *arguments: object
                 ) -> None:
        """Record an undo step, if an attempt is active."""
        if self._attempt is not None:
            self._attempt.undo.callback(change, *arguments)

    # -- events

    def add_event(self, lease: Lease, booking: Booking | None, phase: int,
                  time: int) -> None:
        """Plan a phase of a booking (None: of a lease that is over)."""
        self._schedule(
            DueEvent(time, phase, next(self._order), booking, lease))

    def _schedule(self, event: DueEvent) -> None:
        if self._attempt is None:
            heapq.heappush(self._events, event)
        else:
            self._attempt.events.append(event)

    def next_time(self) -> int | None:
        """Return the time of the next event, None if there is none."""
        while (
            self._events
            and self._events[0].lease.booking is not self._events[0].booking
        ):
            heapq.heappop(self._events)     # the booking was replaced
        times = [self._events[0].time] if self._events else []
        sent = None if self.images is None else self.images.next_time()
        return min([*times, *([] if sent is None else [sent])], default=None)

    def due_events(self, now: int) -> Iterator[DueEvent]:
        """Yield the events up to ``now`` in order, advancing the clock."""
        while (time := self.next_time()) is not None and time <= now:
            self.advance_clock(max(time, self.now))
            if self._events and self._events[0].time <= time:
                yield heapq.heappop(self._events)
        self.advance_clock(max(now, self.now))
