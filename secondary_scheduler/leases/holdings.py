"""Who holds which hosts and when, who waits for them, and what is due."""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import heapq
import itertools
import typing

from secondary_scheduler.leases import states
from secondary_scheduler.leases.disks import Disks
from secondary_scheduler.leases.images import Images, Preparation
from secondary_scheduler.leases.lease import Kind, Lease, Stay, Work
from secondary_scheduler.leases.queue import Queue, Waiting
from secondary_scheduler.leases.site import Site
from secondary_scheduler.leases.states import State
from secondary_scheduler.leases.table import SlotTable
from secondary_scheduler.leases.types import Ints

#: What is due of a stay.  Of what is due at once, ends come first.
DOWN, END, FREE, BEGIN, UP = range(5)


class Due(typing.NamedTuple):
    """Something that is planned for a time."""

    time: int
    phase: int
    order: int
    stay: Stay | None
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
        self.heard: list[tuple[Lease, State]] = []
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
                 notify: Callable[[Lease, State], object]) -> None:
        self.now = now
        self.table = SlotTable(site.columns, now)
        self.disks = Disks(1 if shared else self.table.hosts)
        self.images = (None if preparation is None else
                       Images(preparation, self.table.hosts, now))
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
        if lease.state is State.SCHEDULED and found is State.PREPARING or (
                lease.state in states.COMING and found is State.READY):
            self.become(lease, found)

    def become(self, lease: Lease, state: State) -> None:
        """Let a lease enter a state, and tell."""
        before = lease.state
        self._remember(lease)
        lease.become(state)
        if self._attempt is None:
            self._notify(lease, before)
        else:
            self._attempt.heard.append((lease, before))

    def enqueue(self, waiting: Waiting) -> None:
        """Let a lease wait for hosts, in the queue's order."""
        self.become(waiting.lease, State.QUEUED if waiting.work.home is None
                    else State.SUSPENDED_QUEUED)
        self.queue.add(waiting)
        self._undo(self.queue.remove, waiting.lease)

    def dequeue(self, lease: Lease) -> None:
        """Take a lease out of the queue."""
        self._undo(self.queue.add, self.queue.remove(lease))

    # -- stays

    def settle(self, lease: Lease, stay: Stay) -> None:
        """Give a lease its hosts from when its stay begins."""
        self.become(lease, State.SCHEDULED if lease.home is None
                    else State.SUSPENDED_SCHEDULED)
        self._take(stay)
        self._send(lease, lease.work, stay)
        lease.stay = stay
        self.staying[lease.number] = lease
        if lease.terms.kind is Kind.DEADLINE:
            self.coming[lease.number] = lease
        self.plan(lease, stay, BEGIN, stay.begin)

    def _send(self, lease: Lease, work: Work, stay: Stay) -> None:
        """Have a lease's image sent where it begins, if it needs it there."""
        if self.images is not None and self.images.wanted(work):
            self.images.assign(lease, stay)
            self._prepare(lease)

    def restore(self, lease: Lease, stay: Stay) -> None:
        """Take a lease with the hosts that it holds or awaits already."""
        self._take(stay)
        if lease.later is not None:
            self._take(lease.later)
        self.staying[lease.number] = lease
        if lease.ahead:
            if lease.terms.kind is Kind.DEADLINE:
                self.coming[lease.number] = lease
            elif lease.terms.kind is Kind.BEST_EFFORT:
                self.promised[lease.number] = lease
            self.plan(lease, stay, BEGIN, stay.begin)
        elif lease.state is State.SUSPENDING:
            self.plan(lease, stay, END, stay.end)
        else:
            if lease.state is State.RESUMING:
                self.plan(lease, stay, UP, stay.up)
            self.plan(lease, stay, DOWN, stay.down)

    def come(self, lease: Lease) -> None:
        """A lease awaits nothing any more: it begins, or has to go."""
        self.promised.pop(lease.number, None)
        self.coming.pop(lease.number, None)

    @contextlib.contextmanager
    def without(self, stay: Stay) -> Iterator[None]:
        """Let what a stay holds be free for a moment."""
        self._give(stay)
        try:
            yield
        finally:
            self._take(stay)

    def replace(self, lease: Lease, stay: Stay) -> None:
        """Let a lease that holds hosts leave them at another time."""
        assert lease.stay is not None
        self._remember(lease)
        self._give(lease.stay)
        self._take(stay)
        lease.stay = stay
        if lease.state is State.RESUMING:
            self.plan(lease, stay, UP, stay.up)
        if lease.state is State.SUSPENDING:
            self.plan(lease, stay, END, stay.end)
        else:
            self.plan(lease, stay, DOWN, stay.down)

    def promise(self, lease: Lease, stay: Stay) -> None:
        """Give a lease hosts for the time after its present stay."""
        assert lease.later is None and lease.stay is not None
        self._remember(lease)
        self._take(stay)
        self._send(lease, lease.work_after(lease.stay), stay)
        lease.later = stay

    def drop(self, lease: Lease) -> Stay:
        """Take a lease's hosts from it, from now on."""
        stay = lease.stay
        assert stay is not None
        self._remember(lease)
        self._give(stay)
        lease.stay = None
        del self.staying[lease.number]
        self.come(lease)
        if lease.later is not None:
            self._give(lease.later)
            lease.later = None
        return stay

    def stop_sending(self, lease: Lease) -> None:
        """Send a lease no image that is not yet on its way."""
        if self.images is not None and lease.home is None:
            self.images.withdraw(lease)

    def leave(self, lease: Lease, seconds: int) -> None:
        """Take a lease's hosts from it, so many seconds from now."""
        stay = self.drop(lease)
        self.forget(lease)
        end = min(self.now + seconds, stay.end)
        if end > self.now:
            self.table.take(dataclasses.replace(
                stay.slot, start=self.now, end=end, tenants=0))
            self.plan(lease, None, FREE, end)

    def forget(self, lease: Lease) -> None:
        """A lease is over."""
        if self.images is not None:
            self.images.leave(lease)

    def _take(self, stay: Stay) -> None:
        self._change(stay, True)
        self._undo(self._change, stay, False)

    def _give(self, stay: Stay) -> None:
        self._change(stay, False)
        self._undo(self._change, stay, True)

    def _change(self, stay: Stay, taken: bool) -> None:
        change = self.table.take if taken else self.table.give
        change(stay.slot)
        operate = self.disks.take if taken else self.disks.give
        for operation in stay.operations:
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

    def plan(self, lease: Lease, stay: Stay | None, phase: int, time: int
             ) -> None:
        """Let something be due of a stay, or of a lease that is over."""
        self._schedule(Due(time, phase, next(self._order), stay, lease))

    def _schedule(self, due: Due) -> None:
        if self._attempt is None:
            heapq.heappush(self._due, due)
        else:
            self._attempt.due.append(due)

    def next_time(self) -> int | None:
        """Return when something is due next."""
        while self._due and self._due[0].lease.stay is not self._due[0].stay:
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
