"""How a lease could run: stays that fit, at a time or as early as can be.

Haizea 4.5: with suspension a best-effort lease may begin although it cannot
end before something is in its way; it is saved before that and goes on later.
"""

import dataclasses

import numpy as np

from secondary_scheduler.leases.scheduling import mapping
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.images import (
    ImageLocations,
    Preparation,
)
from secondary_scheduler.leases.scheduling.lease import (
    Booking,
    Kind,
    Lease,
    RemainingWork,
    Terms,
    TermsError,
)
from secondary_scheduler.leases.scheduling.policies import (
    AcceptAll,
    AdmissionPolicy,
    LeastRun,
    Preemption,
)
from secondary_scheduler.leases.scheduling.pricing import Pricing
from secondary_scheduler.leases.scheduling.queue import QueuedLease, Sort
from secondary_scheduler.leases.scheduling.schedule_state import Holdings
from secondary_scheduler.leases.scheduling.selection import (
    HostSelection,
    Quietest,
)
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.table import (
    CapacityEntry,
    SlotTable,
)
from secondary_scheduler.leases.scheduling.types import NEVER, Bools, Ints
from secondary_scheduler.model.lease_order import PRIORITY, QueueOrder


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a site schedules (Haizea 5.1).

    ``reservations`` is how many queued leases may be promised a time ahead:
    0 is no backfilling, 1 aggressive, None as many as wait (conservative).
    ``suspension`` tells that best-effort leases may be suspended; a stretch
    of running that ends in a suspension takes at least the overheads of it
    and ``worthwhile`` times these.  A deadline lease with no more ``slack``
    than this may make others give way; ``rearranging`` names the orders in
    which what has not begun is then planned anew.  Without ``pricing`` all is
    free, and without ``preparation`` images need not be sent.
    """

    reservations: int | None = 1
    suspension: bool = True
    worthwhile: float = 1.0
    slack: float = 2.0
    rearranging: tuple[str, ...] = ('slack', 'deadline')
    durations: OperationTimes = OperationTimes()
    order: QueueOrder = PRIORITY
    admission: AdmissionPolicy = AcceptAll()
    preemption: Preemption = LeastRun()
    selection: HostSelection = Quietest()
    pricing: Pricing | None = None
    preparation: Preparation | None = None


class Planner:
    """Finds stays in what is free; changes nothing."""

    def __init__(self, site: Site, settings: Settings, holdings: Holdings
                 ) -> None:
        self._site = site
        self._settings = settings
        self._holdings = holdings

    def check(self, terms: Terms) -> None:
        """Raise TermsError if not even an empty site could hold a lease."""
        self._site.check(terms)
        if len(terms.nodes) > 1 and mapping.place(
                self._site, SlotTable(self._site.columns), terms, 0, 1, 1,
                [self._site.usable(one) for one in terms.nodes],
                self._order(self._nearby())) is None:
            raise TermsError('its nodes fit the site each kind by itself, but '
                             'not all of them together')

    def overheads(self, terms: Terms) -> tuple[int, int]:
        """Return the least that it takes to load and to save a lease."""
        return self._settings.durations.overheads(
            terms.numbers, self._site.memory_of(terms))

    def saving(self, terms: Terms, vms: tuple[Ints, ...]) -> int:
        """Return how long it takes to save a lease where it is."""
        return self._settings.durations.suspend(
            vms, self._site.memory_of(terms))

    def whole(self, work: RemainingWork) -> int:
        """Return for how long hosts are held to do all that is left."""
        return (work.load_s + work.remaining
                + self._settings.durations.shutdown)

    def ends(self, work: RemainingWork, up: int) -> tuple[int, int]:
        """Return when VMs that run from ``up`` on have done all that is left.

        And when hosts are free then.
        """
        down = min(up + work.remaining, NEVER)
        return down, min(down + self._settings.durations.shutdown, NEVER)

    def least(self, work: RemainingWork) -> int:
        """Return for how long hosts must be free for it to be worth it."""
        whole = self.whole(work)
        if not self.may_save(work.terms):
            return whole
        overheads = self._worthwhile(work.load_s + work.save_s)
        return min(whole, max(overheads, 1))

    def may_save(self, terms: Terms) -> bool:
        """Tell whether a stay may be planned to end in a suspension."""
        return (self._settings.suspension and terms.preemptible
                and terms.kind is Kind.BEST_EFFORT)

    def _worthwhile(self, overheads: int) -> int:
        return int(overheads * (1 + self._settings.worthwhile))

    def waiting(self, lease: Lease) -> QueuedLease:
        """Return a lease as it waits in the queue."""
        work = lease.work
        first = work.terms.nodes[0]
        sort = Sort(first.need, () if self._images(work) is not None
                    else self.delays(work))
        return QueuedLease(
            lease, work, self.least(work), self.rank(lease), sort, first.number
        )

    def rank(self, lease: Lease) -> tuple[float, float, int]:
        """Return a lease's place in the queue, the lowest coming first."""
        return (*self._settings.order.rank(
            lease.terms.priority, lease.submitted), lease.number)

    def _stuck(self, work: RemainingWork) -> bool:
        """Tell whether a lease can only go on where its memory is."""
        return (work.home is not None
                and self._settings.durations.migration_rate is None)

    def _images(self, work: RemainingWork) -> ImageLocations | None:
        """Return the images, if a lease needs one of them."""
        images = self._holdings.images
        return images if images is not None and images.wanted(work) else None

    def sending(self, terms: Terms) -> int:
        """Return how long it takes to send a lease's image."""
        preparation = self._settings.preparation
        return 0 if preparation is None else preparation.seconds(terms)

    def _usable(self, work: RemainingWork, time: int) -> list[Bools | None]:
        """Return which hosts each node set may use then (None: all)."""
        masks = [self._site.usable(one) for one in work.terms.nodes]
        images = self._images(work)
        if images is None:
            return masks
        there = images.reachable(work, time)
        return [there if mask is None else mask & there for mask in masks]

    def _distance(self, work: RemainingWork, time: int) -> Ints:
        images = self._images(work)
        if images is not None:
            return images.distance(work, time)
        return self._holdings.away.get(work.terms.image or '', self._nearby())

    def _nearby(self) -> Ints:
        return np.zeros(self._holdings.table.hosts, dtype=np.int64)

    def _order(self, distance: Ints) -> mapping.Order:
        order = self._settings.selection.order
        return lambda hosts, tenants, free, unchanged: order(
            hosts, tenants, free, unchanged, distance)

    def _moving(self, terms: Terms) -> tuple[int, ...]:
        """Return how many MB of each VM have to move to another host."""
        image = 0 if self._holdings.images is None else terms.image_mb
        return tuple(memory + image for memory in self._site.memory_of(terms))

    def place(self, work: RemainingWork, time: int, least: int
              ) -> mapping.Placement | None:
        """Place a lease for at least so many seconds from a time on."""
        site, table = self._site, self._holdings.table
        if work.home is not None and self._stuck(work):
            return mapping.booking(site, table, work.terms, time, least,
                                   work.home)
        return mapping.place(site, table, work.terms, time, self.whole(work),
                             least, self._usable(work, time),
                             self._order(self._distance(work, time)))

    def held(self, terms: Terms, vms: tuple[Ints, ...], start: int, end: int
             ) -> CapacityEntry:
        """Return what VMs that are so placed hold of their hosts."""
        return mapping.held(self._site, self._holdings.table, terms.nodes,
                            vms, start, end)

    def times(self, work: RemainingWork) -> tuple[int, ...]:
        """Return when, from now on, there are more hosts to begin on.

        Now where its memory or its image is, later where it has to be sent.
        """
        now, images = self._holdings.now, self._images(work)
        if images is not None:
            return tuple(np.unique(images.ready(work)).tolist())
        if work.home is None:
            return (now,)
        nearest = self._settings.durations.nearest(
            work.home, self._moving(work.terms))
        return (now, now + nearest) if nearest else (now,)

    def delays(self, work: RemainingWork) -> tuple[int, ...]:
        """Return in how many seconds there are more hosts; see ``times``."""
        return tuple(time - self._holdings.now for time in self.times(work))

    def soonest(self, work: RemainingWork, time: int) -> int:
        """Return from when on saved memory can be anywhere, not before a time.
        """
        now = self._holdings.now
        moving = 0 if work.home is None else self.times(work)[-1] - now
        return max(time, work.since, now) + moving

    def booking(self, work: RemainingWork, time: int) -> Booking | None:
        """Return how a lease could run from a time on, if it is worth it."""
        holdings, durations = self._holdings, self._settings.durations
        place = self.place(work, time, self.least(work))
        if place is None:
            return None
        hosts = place.slot.hosts
        load, up = 0, time
        if work.home is not None:
            moved = durations.migration(work.home, place.vms,
                                        self._moving(work.terms))
            if moved is None:
                return None
            soonest = max(holdings.now, work.since) + moved
            if time < soonest:
                return self.booking(work, soonest)
            load = durations.resume(place.vms,
                                    self._site.memory_of(work.terms))
            up = holdings.disks.quiet_from(hosts, time, load) + load
        down, end = self.ends(work, up)
        save = self.saving(work.terms, place.vms)
        saves = end > place.until
        operations = []
        if load:
            operations.append(holdings.disks.operation(hosts, up - load, up))
        if saves:
            if not self.may_save(work.terms):
                return None
            end = holdings.disks.quiet_until(hosts, place.until, save)
            down = end - save
            if down <= up or end - time < self._worthwhile(load + save):
                return None
            operations.append(holdings.disks.operation(hosts, down, end))
        return Booking(time, up, down, end, place.vms,
                       dataclasses.replace(place.slot, start=time, end=end),
                       save, saves, operations=tuple(operations))

    def earliest(self, work: RemainingWork, after: int, latest: int = NEVER
                 ) -> Booking | None:
        """Return the first stay from ``after`` on that begins by ``latest``.
        """
        time = after
        while time < min(latest + 1, NEVER):
            found = self._possible(work, time)
            if found is None or found > latest:
                return None
            booking = self.booking(work, found)
            if booking is not None:
                return booking
            time = min([self._holdings.table.next_change(found),
                        *(one for one in self.times(work) if one > found)])
        return None

    def _possible(self, work: RemainingWork, after: int) -> int | None:
        """Return from when on each node set, by itself, has room."""
        if self._stuck(work):
            return after    # few places: each is tried
        table, least = self._holdings.table, self.least(work)
        images = self._images(work)
        first = self._nearby() if images is None else images.ready(work)
        masks = [self._site.usable(one) for one in work.terms.nodes]
        ready = [first if mask is None else np.where(mask, first, NEVER)
                 for mask in masks]
        time = after
        while True:
            before = time
            for one, usable in zip(work.terms.nodes, ready, strict=True):
                found = table.earliest(one.need, one.number, least,
                                       np.maximum(usable, time))
                if found is None:
                    return None
                time = found
            if time == before or len(ready) == 1:
                return time
