"""What becomes of leases: the queue, promises, and who gives way.

Haizea 4.5 to 4.7.  The clock is passed in; nothing here acts on a cloud.
What is planned comes true by itself in ``advance`` unless something else is
reported before: that a lease ended early (``finish``), say.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import itertools

from secondary_scheduler.leases.scheduling.fit_cache import Glance
from secondary_scheduler.leases.scheduling.lease import (
    Booking,
    Kind,
    Lease,
    Terms,
    TermsError,
)
from secondary_scheduler.leases.scheduling.planned_starts import (
    Promises,
    UnpausableError,
)
from secondary_scheduler.leases.scheduling.planner import Planner, Settings
from secondary_scheduler.leases.scheduling.policies import RefusedError
from secondary_scheduler.leases.scheduling.pricing import price
from secondary_scheduler.leases.scheduling.queue import QueuedLease
from secondary_scheduler.leases.scheduling.replanning import Repairs
from secondary_scheduler.leases.scheduling.schedule_state import (
    BEGIN,
    DOWN,
    END,
    UP,
    Holdings,
    InfeasibleError,
)
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.table import (
    CapacityEntry,
    SlotTable,
)
from secondary_scheduler.leases.scheduling.types import Ints
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import HOLDING, LeaseState

#: Seconds, and part of its duration, by which a lease may run for less than
#: that and be done nevertheless.
SHORT_S, SHORT = 10, 0.01


def _unheard(lease: Lease, before: LeaseState) -> None:
    """Nobody wants to know."""


@dataclasses.dataclass(frozen=True)
class ScheduleOffer:
    """What a lease would get for its terms, or in place of them.

    ``stay`` is what it could have at the earliest, None if nothing ever; it
    is what was asked for if that would be ``accepted``.  Who waits already
    may come before best effort.  ``rate`` is for a node and a second.
    """

    accepted: bool
    rate: float
    price: float
    booking: Booking | None


class Scheduler:
    """Decides for all leases of a site.

    ``notify`` is told of each lease that enters a state, and which it was in.
    """

    def __init__(
        self,
        site: Site,
        settings: Settings,
        now: int = 0,
        notify: Callable[[Lease, LeaseState], object] = _unheard,
    ) -> None:
        self._settings = settings
        self._holdings = Holdings(site, settings.durations.shared,
                                  settings.preparation, now, notify)
        self._planner = Planner(site, settings, self._holdings)
        self._promises = Promises(settings, self._holdings, self._planner)
        self._repairs = Repairs(self._holdings, self._promises)
        self._fit_cache = Glance(self._holdings, self._planner)
        self._numbers = itertools.count()
        self._withheld: list[CapacityEntry] = []

    @property
    def now(self) -> int:
        """The present time."""
        return self._holdings.now

    @property
    def table(self) -> SlotTable:
        """What is free, and when."""
        return self._holdings.table

    @property
    def queue(self) -> tuple[Lease, ...]:
        """The leases that wait for hosts, in order."""
        return tuple(one.lease for one in self._holdings.queue)

    @property
    def away(self) -> Mapping[str, Ints]:
        """How far images are that need not be sent; see ``Holdings``."""
        return self._holdings.away

    @away.setter
    def away(self, away: Mapping[str, Ints]) -> None:
        self._holdings.away = away

    def next_time(self) -> int | None:
        """Return when something is due next."""
        return self._holdings.next_time()

    # -- what is reported

    def submit(self, lease: Lease) -> None:
        """Take a request; it is rejected, queued or scheduled."""
        lease.number = next(self._numbers)
        lease.load_s, lease.save_s = self._planner.overheads(lease.terms)
        self._holdings.become(lease, LeaseState.PENDING)
        try:
            self._planner.check(lease.terms)
            self._settings.admission.check(lease, self.now)
        except (TermsError, RefusedError) as exc:
            self._reject(lease, str(exc))
            return
        pricing, terms = self._settings.pricing, lease.terms
        rate = self._rate(terms)
        lease.price = price(terms, rate)
        affordable = terms.max_rate is None or rate <= terms.max_rate
        if not (self._accept(lease) if affordable
                else self._could(lease)[0]):
            self._reject(lease, 'there is no room for it at its time')
            return
        if pricing is not None:
            pricing.hear(terms.user, rate, affordable)
        if not affordable:
            self._reject(lease, f'at {rate:g} for a node and a second it is '
                         f'more than {terms.max_rate:g}',
                         LeaseState.REJECTED_BY_USER)

    def _accept(self, lease: Lease) -> bool:
        """Queue a lease, or promise it what it asks for, if that can be."""
        if lease.terms.kind is not Kind.BEST_EFFORT:
            return self._promises.make(lease)
        self._holdings.enqueue(self._planner.waiting(lease))
        return True

    def _could(self, lease: Lease) -> tuple[bool, Booking | None]:
        """Tell whether a lease could be accepted; nothing comes of it.

        And what it would be promised.
        """
        accepted, booking = False, None
        with contextlib.suppress(InfeasibleError), self._holdings.attempt(
                lease):
            accepted, booking = self._accept(lease), lease.booking
            raise InfeasibleError(lease)
        return accepted, booking

    def quote(self, terms: Terms) -> ScheduleOffer:
        """Return what a new lease would get; nothing comes of it.

        :raises TermsError: if it could not be met on an empty site.
        :raises RefusedError: if it is not let in.
        """
        lease = Lease('', terms, self.now, number=-1, state=LeaseState.PENDING)
        lease.load_s, lease.save_s = self._planner.overheads(terms)
        self._planner.check(terms)
        self._settings.admission.check(lease, self.now)
        accepted, booking = self._could(lease)
        if terms.kind is Kind.BEST_EFFORT:
            booking = self._planner.earliest(lease.work, self.now)
        elif not accepted:
            booking = self._promises.later(lease)
        rate = self._rate(terms)
        return ScheduleOffer(accepted, rate, price(terms, rate), booking)

    def _rate(self, terms: Terms) -> float:
        pricing = self._settings.pricing
        return 0.0 if pricing is None else pricing.rate(terms)

    def _reject(self, lease: Lease, reason: str,
                state: LeaseState = LeaseState.REJECTED) -> None:
        lease.reason, lease.ended = reason, self.now
        self._holdings.become(lease, state)

    def restore(self, leases: Sequence[Lease]) -> None:
        """Take leases as they were when they were kept.

        Those that are over, or still to be submitted, are none of them.
        """
        for lease in leases:
            lease.load_s, lease.save_s = self._planner.overheads(lease.terms)
            if lease.booking is None:
                self._holdings.queue.add(self._planner.waiting(lease))
            else:
                self._holdings.restore(lease, lease.booking)
        self._numbers = itertools.count(
            1 + max((one.number for one in leases), default=-1))

    def adopt(self, lease: Lease, vms: tuple[Ints, ...], now: int) -> None:
        """Take a best-effort lease whose VMs run already, where they are.

        Each array of ``vms``, one for a node set, has the shape (hosts,).  It
        leaves before what was promised there.  What is withheld is not in its
        way: it is withheld anew with the lease in the table.
        """
        self._holdings.tick(now)
        lease.number = next(self._numbers)
        lease.load_s, lease.save_s = self._planner.overheads(lease.terms)
        self._holdings.become(lease, LeaseState.PENDING)
        self._holdings.enqueue(self._planner.waiting(lease))
        down, end = self._planner.ends(lease.work, now)
        for one in self._withheld:
            self.table.give(one)
        slot = self._planner.held(lease.terms, vms, now, end)
        until = self.table.until(slot.hosts, slot.amounts, now)
        for one in self._withheld:
            self.table.take(one)
        self._settle(lease, Booking(now, now, down, end, vms, slot,
                                    self._planner.saving(lease.terms, vms)))
        if until < end:
            self._repairs.leave(lease, until)

    def lost(self, lease: Lease, now: int) -> None:
        """A lease's VMs do not run where they should, and cannot be saved.

        It begins anew, at once if it was promised its time.
        """
        self._holdings.tick(now)
        lease.served, lease.started, lease.home = 0, None, None
        lease.requeues += 1
        self._repairs.lose(lease)
        self._look_again()

    def moved(self, lease: Lease, vms: tuple[Ints, ...], now: int) -> None:
        """Somebody has moved VMs of a lease that holds hosts.

        Each array of ``vms``, one for a node set, has the shape (hosts,).
        """
        self._holdings.tick(now)
        booking = lease.booking
        assert booking is not None
        with self._holdings.without(booking):
            slot = self._planner.held(lease.terms, vms, booking.slot.start,
                                      booking.slot.end)
        self._holdings.replace(
            lease,
            dataclasses.replace(
                booking,
                vms=vms,
                slot=slot,
                save_s=self._planner.saving(lease.terms, vms),
                operations=tuple(
                    self._holdings.disks.operation(
                        slot.hosts, one.start, one.end
                    )
                    for one in booking.operations
                ),
            ),
        )

    def finish(self, lease: Lease, now: int) -> None:
        """A lease has ended by itself, before it had to."""
        self._holdings.tick(now)
        booking = lease.booking
        if lease.state is not LeaseState.ACTIVE or booking is None:
            raise lease_states.IllegalTransitionError(
                f'lease {lease.id} cannot have ended: it is {lease.state}')
        lease.served += now - booking.up
        self._leave(lease)
        if now < booking.down:
            self._look_again()

    def delay(self, lease: Lease, seconds: int, now: int,
              longer: bool = True) -> None:
        """A lease's VMs have not run for so many of the past seconds.

        These are not served.  It stays on its hosts for as much longer if
        there is room, and if it is to stay ``longer`` at all.
        """
        self._holdings.tick(now)
        booking = lease.booking
        if lease.state is not LeaseState.ACTIVE or booking is None:
            raise lease_states.IllegalTransitionError(
                f'lease {lease.id} cannot be delayed: it is {lease.state}')
        lease.served -= seconds
        if longer and not (booking.saves or booking.loses):
            self._repairs.stay_longer(lease, seconds)

    def saved(self, lease: Lease, now: int) -> None:
        """A lease has been suspended, before it was planned to be."""
        self._holdings.tick(now)
        self._end(lease, self._suspending(lease))
        self._look_again()

    def overrun(self, lease: Lease, until: int) -> None:
        """Suspending a lease takes longer than planned, until about then."""
        if until <= self._suspending(lease).end:
            raise ValueError(f'lease {lease.id} was planned to take that long')
        self._repairs.overrun(lease, until)

    def cancel(self, lease: Lease, now: int) -> None:
        """A lease's owner wants it no more."""
        self._stop(lease, LeaseState.CANCELLED, now)

    def fail(self, lease: Lease, reason: str, now: int) -> None:
        """A lease cannot run, or not go on."""
        lease.reason = reason
        self._stop(lease, LeaseState.FAILED, now)

    def _stop(self, lease: Lease, state: LeaseState, now: int) -> None:
        """Take its hosts from a lease, and end it."""
        lease_states.check(lease.id, lease.state, state)
        self._holdings.tick(now)
        booking = lease.booking
        if booking is None:
            self._holdings.dequeue(lease)
        elif lease.ahead:
            self._holdings.drop(lease)
        else:
            if lease.state is LeaseState.ACTIVE:
                lease.served += now - booking.up
            self._holdings.leave(lease, self._settings.durations.shutdown)
        self._holdings.forget(lease)
        lease.ended = now
        self._holdings.become(lease, state)
        self._look_again()

    def pause(self, lease: Lease, now: int) -> None:
        """A best-effort lease is not to run until it is told to.

        One that runs is suspended.

        :raises UnpausableError: if it was promised hosts at a time, or runs
            and cannot be suspended.
        """
        self._holdings.tick(now)
        if lease.terms.kind is not Kind.BEST_EFFORT:
            raise UnpausableError(f'lease {lease.id} was promised its time; '
                                  'it can be cancelled')
        if lease.ahead:
            self._promises.withdraw(lease)
        elif lease.state in HOLDING:
            self._promises.suspend(lease)
        lease.paused = True
        self._look_again()

    def unpause(self, lease: Lease, now: int) -> None:
        """A lease that was paused may run again."""
        self._holdings.tick(now)
        lease.paused = False

    def withhold(self, slots: Sequence[CapacityEntry], now: int) -> None:
        """Keep parts of hosts from leases, in place of what was kept before.

        That is what a primary is expected to take.  Who is in the way gives
        way, as far as it can.
        """
        self._holdings.tick(now)
        for slot in self._withheld:
            self._holdings.table.give(slot)
        self._withheld = list(slots)
        for slot in slots:
            self._repairs.withhold(slot)
        self._look_again()

    @staticmethod
    def _suspending(lease: Lease) -> Booking:
        if lease.state is not LeaseState.SUSPENDING or lease.booking is None:
            raise lease_states.IllegalTransitionError(
                f'lease {lease.id} is {lease.state}, not being suspended')
        return lease.booking

    def _look_again(self) -> None:
        """What was promised for later can perhaps be had sooner.

        One after the other, in the queue's order, so that nobody's time is
        later than before; but a promise that came before somebody's turn is
        given up for them.
        """
        first = next(iter(self._holdings.queue), None)
        for lease in sorted(self._holdings.promised.values(),
                            key=self._planner.rank):
            self._fit_cache.forget()
            waiting = self._promises.withdraw(lease)
            if first is not None and first.rank < waiting.rank:
                continue
            if not self._start(waiting):
                self._promise(waiting)

    def advance(self, now: int) -> None:
        """Let what is planned up to now come true."""
        for due in self._holdings.due(now):
            if due.booking is not None:
                _HAPPENS[due.phase](self, due.lease, due.booking)

    # -- what comes true

    def _begin(self, lease: Lease, booking: Booking) -> None:
        if not lease.ahead:
            return      # it has begun when its time came
        self._holdings.come(lease)
        become = self._holdings.become
        lease.hosts = booking.slot.hosts
        if lease.home is None:
            if lease.state is not LeaseState.READY:
                become(lease, LeaseState.READY)
            self._run(lease)
        else:
            if any((old != new).any() for old, new
                   in zip(lease.home, booking.vms, strict=True)):
                become(lease, LeaseState.MIGRATING)
                become(lease, LeaseState.SUSPENDED_SCHEDULED)
            lease.home = None
            lease.resumes += 1
            lease.suspended_s += self.now - lease.saved_at
            become(lease, LeaseState.RESUMING)
            self._holdings.plan(lease, booking, UP, booking.up)
        self._holdings.plan(lease, booking, DOWN, booking.down)

    def _up(self, lease: Lease, booking: Booking) -> None:
        self._holdings.become(lease, LeaseState.RESUMED_READY)
        self._run(lease)

    def _run(self, lease: Lease) -> None:
        if lease.started is None:
            lease.started = self.now
        self._holdings.become(lease, LeaseState.ACTIVE)

    def _down(self, lease: Lease, booking: Booking) -> None:
        lease.served += booking.down - booking.up
        if booking.saves:
            lease.suspends += 1
            self._holdings.become(lease, LeaseState.SUSPENDING)
            self._holdings.plan(lease, booking, END, booking.end)
        elif booking.loses:
            lease.served, lease.started = 0, None
            lease.requeues += 1
            self._release(lease)
        else:
            duration = lease.terms.duration
            short = duration - lease.served > max(
                SHORT_S, SHORT * duration)
            self._leave(lease, LeaseState.FAILED if short else LeaseState.DONE)

    def _end(self, lease: Lease, booking: Booking) -> None:
        lease.home, lease.saved_at = booking.vms, self.now
        self._holdings.become(lease, LeaseState.SUSPENDED_PENDING)
        self._release(lease)

    def _release(self, lease: Lease) -> None:
        """Let a lease that had to give way wait, or go on as promised."""
        later = lease.later
        self._holdings.drop(lease)
        self._holdings.enqueue(self._planner.waiting(lease))
        if later is None:
            self._holdings.stop_sending(lease)
        else:
            self._holdings.dequeue(lease)
            self._holdings.settle(lease, later)

    def _leave(self, lease: Lease,
               state: LeaseState = LeaseState.DONE) -> None:
        """A lease is over; its hosts are free once its VMs are shut down."""
        self._holdings.leave(lease, self._settings.durations.shutdown)
        lease.ended = self.now
        self._holdings.become(lease, state)

    # -- the queue

    def fill(self) -> None:
        """Go through the queue, and start or promise what can be.

        What then is left goes to those who were promised a later time: since
        leases end early, much that had to wait need not (Haizea REQ-032).
        """
        self._fit_cache.forget()
        for waiting in self._hopeful():
            if waiting.lease.paused:
                continue
            if not (self._start(waiting) or self._promise(waiting)) and (
                    self._settings.reservations == 0):
                break
        self._pull_forward()

    def _pull_forward(self) -> None:
        """Let those begin now who by their deadline would begin later."""
        for lease in sorted(self._holdings.coming.values(), key=_promised_at):
            if (lease.terms.start or 0) > self.now or (
                    not self._fit_cache.has_room(lease.terms)):
                continue
            booking = self._promises.at_once(lease)
            if booking is not None:
                self._promises.withdraw(lease)
                self._settle(lease, booking)

    def _hopeful(self) -> Iterator[QueuedLease]:
        """Yield who may begin or be promised a time, in order.

        Once no more can be promised a time, only who fits now.
        """
        queue = self._holdings.queue
        tried: tuple[float, ...] = ()
        for waiting in queue:
            if self._settings.reservations != 0 and not self._may_promise():
                break
            tried = waiting.rank
            yield waiting
        begun = True
        while begun:    # and took room from those behind
            begun = False
            for waiting in queue.fitting(self._fit_cache.lasting):
                if waiting.rank > tried:
                    tried = waiting.rank
                    yield waiting
                    if begun := waiting.lease not in queue:
                        break

    def _may_promise(self) -> bool:
        """Tell whether one more queued lease may be promised a time."""
        limit = self._settings.reservations
        return limit is None or len(self._holdings.promised) < limit

    def _start(self, waiting: QueuedLease) -> bool:
        """Let a queued lease begin at once, if it can."""
        if not self._fit_cache.may_start(waiting):
            return False
        for time in self._planner.times(waiting.work):
            booking = self._planner.booking(waiting.work, time)
            if booking is not None:
                self._settle(waiting.lease, booking)
                return True
        return False

    def _promise(self, waiting: QueuedLease) -> bool:
        """Promise a queued lease the earliest time that it can have."""
        if not self._may_promise():
            return False
        booking = self._planner.earliest(
            waiting.work, self._planner.times(waiting.work)[-1] + 1)
        if booking is None:
            return False
        self._settle(waiting.lease, booking)
        self._holdings.promised[waiting.lease.number] = waiting.lease
        return True

    def _settle(self, lease: Lease, booking: Booking) -> None:
        """Let a queued lease have hosts."""
        self._fit_cache.forget()
        self._holdings.dequeue(lease)
        self._holdings.settle(lease, booking)
        if booking.begin <= self.now:
            self._begin(lease, booking)


def _promised_at(lease: Lease) -> tuple[int, int]:
    assert lease.booking is not None
    return lease.booking.begin, lease.number


_HAPPENS: dict[int, Callable[[Scheduler, Lease, Booking], None]] = {
    BEGIN: Scheduler._begin, UP: Scheduler._up, DOWN: Scheduler._down,
    END: Scheduler._end}
