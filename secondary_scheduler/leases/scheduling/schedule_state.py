"""Who holds which hosts and when, who waits for them, and what is due."""

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
from secondary_scheduler.leases.scheduling.lease import (
    Booking,
    Kind,
    Lease,
    RemainingWork,
)
from secondary_scheduler.leases.scheduling.queue import Queue, QueuedLease
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.table import SlotTable
from secondary_scheduler.leases.scheduling.types import Ints
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState

#: What is due of a stay.  Of what is due at once, ends come first.
DOWN, END, FREE, BEGIN, UP = range(5)


class Due(typing.NamedTuple):
    """Something that is planned for a time."""

    time: int
    phase: int
    order: int
    booking: Booking | None
    lease: Lease


class InfeasibleError(Exception):
    """Something that was tried cannot be; ``lease`` is what it failed at."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease.id)
        self.lease = lease


class _Attempt:
    """What undoes an attempt; what is told and is due if it succeeds."""

    def __init__(self) -> None:
        self.undo = contextlib.ExitStack()
        self.heard: list[tuple[Lease, LeaseState]] = []
        self.due: list[Due] = []


class Holdings:
    """The hosts of a site, and the leases that hold or await them.

    ``shared`` tells that memory is saved in one place for the whole site;
    without ``preparation`` images need not be sent, and ``away`` tells how
    far some are from each host, shape (hosts,): 0 there, 1 on its way, 2
    elsewhere.
    ``notify`` is told of each lease that entered a state, and which it was in.
    """

    def __init__(self, site: Site, shared: bool,
                 preparation: Preparation | None, now: int,
                 notify: Callable[[Lease, LeaseState], object]) -> None:
        self.now = now
        self.table = SlotTable(site.columns, now)
        self.disks = Disks(1 if shared else self.table.hosts)
        self.images = (None if preparation is None else
                       ImageLocations(preparation, self.table.hosts, now))
        self.away: Mapping[str, Ints] = {}
        self.queue = Queue()
        self.staying: dict[int, Lease] = {}
        # Of those that waited, who was promised a time.
        self.promised: dict[int, Lease] = {}
        # Who will begin later, and by a deadline.
        self.coming: dict[int, Lease] = {}
        self._due: list[Due] = []
        self._order = itertools.count()
        self._notify = notify
        self._attempt: _Attempt | None = None

    def tick(self, now: int) -> None:
        """Let time pass."""
        self.now = now
        self.table.advance(now)
        self.disks.advance(now)
        if self.images is not None:
            for lease in self.images.advance(now):
                self._prepare(lease)

    def _prepare(self, lease: Lease) -> None:
        """Something that is sent for a lease has begun or has arrived."""
        assert self.images is not None
        found = self.images.progress(lease)
        if (
            lease.state is LeaseState.SCHEDULED
            and found is LeaseState.PREPARING
            or (
                lease.state in lease_states.COMING
                and found is LeaseState.READY
            )
        ):
            self.become(lease, found)

    def become(self, lease: Lease, state: LeaseState) -> None:
        """Let a lease enter a state, and tell."""
        before = lease.state
        self._remember(lease)
        lease.become(state)
        if self._attempt is None:
            self._notify(lease, before)
        else:
            self._attempt.heard.append((lease, before))

    def enqueue(self, waiting: QueuedLease) -> None:
        """Let a lease wait for hosts, in the queue's order."""
        self.become(
            waiting.lease,
            LeaseState.QUEUED
            if waiting.work.home is None
            else LeaseState.SUSPENDED_QUEUED,
        )
        self.queue.add(waiting)
        self._undo(self.queue.remove, waiting.lease)

    def dequeue(self, lease: Lease) -> None:
        """Take a lease out of the queue."""
        self._undo(self.queue.add, self.queue.remove(lease))

    # -- stays

    def settle(self, lease: Lease, booking: Booking) -> None:
        """Give a lease its hosts from when its stay begins."""
        self.become(lease, LeaseState.SCHEDULED if lease.home is None
                    else LeaseState.SUSPENDED_SCHEDULED)
        self._take(booking)
        self._send(lease, lease.work, booking)
        lease.booking = booking
        self.staying[lease.number] = lease
        if lease.terms.kind is Kind.DEADLINE:
            self.coming[lease.number] = lease
        self.plan(lease, booking, BEGIN, booking.begin)

    def _send(self, lease: Lease, work: RemainingWork,
              booking: Booking) -> None:
        """Have a lease's image sent where it begins, if it needs it there."""
        if self.images is not None and self.images.wanted(work):
            self.images.assign(lease, booking)
            self._prepare(lease)

    def restore(self, lease: Lease, booking: Booking) -> None:
        """Take a lease with the hosts that it holds or awaits already."""
        self._take(booking)
        if lease.later is not None:
            self._take(lease.later)
        self.staying[lease.number] = lease
        if lease.ahead:
            if lease.terms.kind is Kind.DEADLINE:
                self.coming[lease.number] = lease
            elif lease.terms.kind is Kind.BEST_EFFORT:
                self.promised[lease.number] = lease
            self.plan(lease, booking, BEGIN, booking.begin)
        elif lease.state is LeaseState.SUSPENDING:
            self.plan(lease, booking, END, booking.end)
        else:
            if lease.state is LeaseState.RESUMING:
                self.plan(lease, booking, UP, booking.up)
            self.plan(lease, booking, DOWN, booking.down)

    def come(self, lease: Lease) -> None:
        """A lease awaits nothing any more: it begins, or has to go."""
        self.promised.pop(lease.number, None)
        self.coming.pop(lease.number, None)

    @contextlib.contextmanager
    def without(self, booking: Booking) -> Iterator[None]:
        """Let what a stay holds be free for a moment."""
        self._give(booking)
        try:
            yield
        finally:
            self._take(booking)

    def replace(self, lease: Lease, booking: Booking) -> None:
        """Let a lease that holds hosts leave them at another time."""
        assert lease.booking is not None
        self._remember(lease)
        self._give(lease.booking)
        self._take(booking)
        lease.booking = booking
        if lease.state is LeaseState.RESUMING:
            self.plan(lease, booking, UP, booking.up)
        if lease.state is LeaseState.SUSPENDING:
            self.plan(lease, booking, END, booking.end)
        else:
            self.plan(lease, booking, DOWN, booking.down)

    def promise(self, lease: Lease, booking: Booking) -> None:
        """Give a lease hosts for the time after its present stay."""
        assert lease.later is None and lease.booking is not None
        self._remember(lease)
        self._take(booking)
        self._send(lease, lease.work_after(lease.booking), booking)
        lease.later = booking

    def drop(self, lease: Lease) -> Booking:
        """Take a lease's hosts from it, from now on."""
        booking = lease.booking
        assert booking is not None
        self._remember(lease)
        self._give(booking)
        lease.booking = None
        del self.staying[lease.number]
        self.come(lease)
        if lease.later is not None:
            self._give(lease.later)
            lease.later = None
        return booking

    def stop_sending(self, lease: Lease) -> None:
        """Send a lease no image that is not yet on its way."""
        if self.images is not None and lease.home is None:
            self.images.withdraw(lease)

    def leave(self, lease: Lease, seconds: int) -> None:
        """Take a lease's hosts from it, so many seconds from now."""
        booking = self.drop(lease)
        self.forget(lease)
        end = min(self.now + seconds, booking.end)
        if end > self.now:
            self.table.take(dataclasses.replace(
                booking.slot, start=self.now, end=end, tenants=0))
            self.plan(lease, None, FREE, end)

    def forget(self, lease: Lease) -> None:
        """A lease is over."""
        if self.images is not None:
            self.images.leave(lease)

    def _take(self, booking: Booking) -> None:
        self._change(booking, True)
        self._undo(self._change, booking, False)

    def _give(self, booking: Booking) -> None:
        self._change(booking, False)
        self._undo(self._change, booking, True)

    def _change(self, booking: Booking, taken: bool) -> None:
        change = self.table.take if taken else self.table.give
        change(booking.slot)
        operate = self.disks.take if taken else self.disks.give
        for operation in booking.operations:
            operate(operation)

    # -- what may come to nothing

    @contextlib.contextmanager
    def attempt(self, lease: Lease) -> Iterator[None]:
        """Undo all that was done within for a lease if it cannot be.

        That is said by InfeasibleError, which is raised again.
        """
        images = None if self.images is None else self.images.copy()
        staying, promised, coming = (
            dict(self.staying), dict(self.promised), dict(self.coming))
        outer = self._attempt
        this = self._attempt = _Attempt()
        try:
            yield
        except InfeasibleError:
            self.images, self.staying = images, staying
            self.promised, self.coming = promised, coming
            this.undo.close()
            raise
        finally:
            self._attempt = outer
        self._undo(this.undo.close)
        for one, state in this.heard:
            if outer is None:
                self._notify(one, state)
            else:
                outer.heard.append((one, state))
        for due in this.due:
            self._schedule(due)

    def _remember(self, lease: Lease) -> None:
        """A lease is about to change."""
        if self._attempt is not None:
            self._undo(vars(lease).update, vars(lease).copy())

    def _undo(self, change: Callable[..., object], *arguments: object
              ) -> None:
        """Note what undoes something, if it may come to nothing."""
        if self._attempt is not None:
            self._attempt.undo.callback(change, *arguments)

    # -- what is due

    def plan(self, lease: Lease, booking: Booking | None, phase: int, time: int
             ) -> None:
        """Let something be due of a stay, or of a lease that is over."""
        self._schedule(Due(time, phase, next(self._order), booking, lease))

    def _schedule(self, due: Due) -> None:
        if self._attempt is None:
            heapq.heappush(self._due, due)
        else:
            self._attempt.due.append(due)

    def next_time(self) -> int | None:
        """Return when something is due next."""
        while (
            self._due
            and self._due[0].lease.booking is not self._due[0].booking
        ):
            heapq.heappop(self._due)    # planned otherwise since
        times = [self._due[0].time] if self._due else []
        sent = None if self.images is None else self.images.next_time()
        return min([*times, *([] if sent is None else [sent])], default=None)

    def due(self, now: int) -> Iterator[Due]:
        """Yield what is due up to now, in order; time passes with it."""
        while (time := self.next_time()) is not None and time <= now:
            self.tick(max(time, self.now))
            if self._due and self._due[0].time <= time:
                yield heapq.heappop(self._due)
        self.tick(max(now, self.now))
