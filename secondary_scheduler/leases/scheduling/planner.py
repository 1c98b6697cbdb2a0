# SPDX-License-Identifier: Apache-2.0

"""Planner: feasible bookings of a lease, at a time or as early as possible.

Sotomayor 2010, sections 5.1.2 and 5.2.  With suspension, a best-effort lease
may begin although it cannot end before other bookings of its hosts begin; it
is suspended before them and resumes later.
"""

from collections.abc import Iterable
import dataclasses

import numpy as np

from secondary_scheduler.leases.scheduling import mapping
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.images import (
    ImageLocations,
    Preparation,
)
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import (
    Booking,
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
from secondary_scheduler.leases.scheduling.queue import LeaseShape, QueuedLease
from secondary_scheduler.leases.scheduling.schedule_state import ScheduleState
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
    """Scheduling settings of a site.

    * ``reservations``: number of queued leases that may have a planned start:
      0 no backfilling, 1 aggressive, None all (conservative).
    * ``suspension``: best-effort leases may be suspended.
    * ``minimum_run_factor``: least run time before a suspension, as a multiple
      of the time to resume and suspend.
    * ``slack``: highest slack with which a deadline lease may preempt others.
    * ``deadline_replanning_orders``: orders in which leases that have not
      begun are re-planned for a deadline.
    * ``pricing``: None: leases are free.
    * ``preparation``: None: no images are transferred.
    """

    reservations: int | None = 1
    suspension: bool = True
    minimum_run_factor: float = 1.0
    slack: float = 2.0
    deadline_replanning_orders: tuple[str, ...] = ('slack', 'deadline')
    durations: OperationTimes = OperationTimes()
    order: QueueOrder = PRIORITY
    admission: AdmissionPolicy = AcceptAll()
    preemption: Preemption = LeastRun()
    selection: HostSelection = Quietest()
    pricing: Pricing | None = None
    preparation: Preparation | None = None


class Planner:
    """Finds bookings in the free capacity; changes nothing."""

    def __init__(self, site: Site, settings: Settings, state: ScheduleState
                 ) -> None:
        self._site = site
        self._settings = settings
        self._state = state

    def check_terms(self, terms: Terms) -> None:
        """Raise TermsError if an empty site could not hold a lease."""
        self._site.check_terms(terms)
        if len(terms.nodes) > 1 and mapping.place_vms(
                self._site, SlotTable(self._site.columns), terms, 0, 1, 1,
                [self._site.usable_hosts(one) for one in terms.nodes],
                self._host_order(self._zero_distance())) is None:
            raise TermsError('each of its node sets fits the site, but not '
                             'all of them together')

    def minimum_overheads(self, terms: Terms) -> tuple[int, int]:
        """Return the least times to load and to save a lease, in seconds."""
        return self._settings.durations.minimum_overheads(
            terms.numbers, self._site.memory_of(terms))

    def suspend_time(self, terms: Terms, vms: tuple[Ints, ...]) -> int:
        """Return the seconds to suspend a placed lease."""
        return self._settings.durations.suspend_time(
            vms, self._site.memory_of(terms))

    def total_time(self, work: RemainingWork) -> int:
        """Return for how long hosts are booked to finish a lease."""
        return (work.load_s + work.remaining
                + self._settings.durations.shutdown)

    def end_times(self, work: RemainingWork, up: int) -> tuple[int, int]:
        """Return when VMs that run from ``up`` on stop, and hosts are free."""
        down = min(up + work.remaining, NEVER)
        return down, min(down + self._settings.durations.shutdown, NEVER)

    def minimum_time(self, work: RemainingWork) -> int:
        """Return for how long hosts must be free to begin a lease."""
        whole = self.total_time(work)
        if not self.may_suspend(work.terms):
            return whole
        least = self._minimum_with_overheads(work.load_s + work.save_s)
        return min(whole, max(least, 1))

    def may_suspend(self, terms: Terms) -> bool:
        """Return whether a booking may be planned to end in a suspension."""
        return (self._settings.suspension and terms.preemptible
                and terms.kind is LeaseKind.BEST_EFFORT)

    def _minimum_with_overheads(self, overheads: int) -> int:
        return int(overheads * (1 + self._settings.minimum_run_factor))

    def queue_entry(self, lease: Lease) -> QueuedLease:
        """Return the queue entry of a lease."""
        work = lease.work
        first = work.terms.nodes[0]
        shape = LeaseShape(first.need, () if self._needed_images(work)
                           is not None else self.start_delays(work))
        return QueuedLease(lease, self.minimum_time(work),
                           self.rank_of(lease), shape, first.number)

    def rank_of(self, lease: Lease) -> tuple[float, float, int]:
        """Return the rank of a lease in the queue; the lowest is first."""
        return (*self._settings.order.rank(
            lease.terms.priority, lease.submitted), lease.number)

    def _cannot_move(self, work: RemainingWork) -> bool:
        """Return whether a lease can only resume on its former hosts."""
        return (work.home is not None
                and self._settings.durations.migration_rate is None)

    def _needed_images(self, work: RemainingWork) -> ImageLocations | None:
        """Return the image locations, if a lease needs an image."""
        images = self._state.images
        return (images if images is not None and images.is_needed(work)
                else None)

    def image_transfer_time(self, terms: Terms) -> int:
        """Return the seconds to transfer the image of a lease."""
        preparation = self._settings.preparation
        return 0 if preparation is None else preparation.seconds(terms)

    def _usable_hosts(self, work: RemainingWork, time: int
                      ) -> list[Bools | None]:
        """Return the hosts each node set may use at a time (None: all)."""
        masks = [self._site.usable_hosts(one) for one in work.terms.nodes]
        images = self._needed_images(work)
        if images is None:
            return masks
        there = images.reachable(work, time)
        return [there if mask is None else mask & there for mask in masks]

    def _image_distance(self, work: RemainingWork, time: int) -> Ints:
        images = self._needed_images(work)
        if images is not None:
            return images.distance(work, time)
        return self._state.image_distance.get(work.terms.image or '',
                                              self._zero_distance())

    def _zero_distance(self) -> Ints:
        return np.zeros(self._state.table.hosts, dtype=np.int64)

    def _host_order(self, distance: Ints) -> mapping.HostOrder:
        order = self._settings.selection.order
        return lambda hosts, tenants, free, unchanged: order(
            hosts, tenants, free, unchanged, distance)

    def _mb_to_move(self, terms: Terms) -> tuple[int, ...]:
        """Return the MB to move per VM when it resumes on another host."""
        image = 0 if self._state.images is None else terms.image_mb
        return tuple(memory + image for memory in self._site.memory_of(terms))

    def place_vms(self, work: RemainingWork, time: int, least: int
                  ) -> mapping.Placement | None:
        """Place a lease from a time on, for at least ``least`` seconds."""
        site, table = self._site, self._state.table
        if work.home is not None and self._cannot_move(work):
            return mapping.place_unmoved(site, table, work.terms, time, least,
                                         work.home)
        usable = self._usable_hosts(work, time)
        order = self._host_order(self._image_distance(work, time))
        choice = work.choice if work.home is None else None
        tried: Iterable[list[Bools | None]] = [usable] if choice is None else (
            choice.masks(usable, group) for group in choice.groups)
        return next(filter(None, (
            mapping.place_vms(
                site, table, work.terms, time, self.total_time(work), least,
                masks, order, NEVER if choice is None else choice.most)
            for masks in tried)), None)

    def capacity_entry(self, terms: Terms, vms: tuple[Ints, ...], start: int,
                       end: int) -> CapacityEntry:
        """Return the capacity taken by placed VMs."""
        return mapping.capacity_entry(self._site, self._state.table,
                                      terms.nodes, vms, start, end)

    def start_times(self, work: RemainingWork) -> tuple[int, ...]:
        """Return times from now on at which more hosts can be used.

        Hosts with the memory or the image of a lease can be used now, others
        after its transfer.
        """
        now, images = self._state.now, self._needed_images(work)
        if images is not None:
            return tuple(np.unique(images.ready(work)).tolist())
        if work.home is None:
            return (now,)
        moved = self._settings.durations.first_move_time(
            work.home, self._mb_to_move(work.terms))
        return (now, now + moved) if moved else (now,)

    def start_delays(self, work: RemainingWork) -> tuple[int, ...]:
        """Return seconds after which more hosts can be used."""
        return tuple(time - self._state.now
                     for time in self.start_times(work))

    def earliest_start(self, work: RemainingWork, time: int) -> int:
        """Return when saved memory can be on any host, at or after a time."""
        now = self._state.now
        moving = 0 if work.home is None else self.start_times(work)[-1] - now
        return max(time, work.since, now) + moving

    def find_booking(self, work: RemainingWork, time: int) -> Booking | None:
        """Return a booking that begins at a time.

        It begins later if saved memory has to be moved first.  None if there
        is no room, or not for the minimum time.
        """
        state, durations = self._state, self._settings.durations
        place = self.place_vms(work, time, self.minimum_time(work))
        if place is None:
            return None
        hosts = place.slot.hosts
        load, up = 0, time
        if work.home is not None:
            moved = durations.migration_time(work.home, place.vms,
                                             self._mb_to_move(work.terms))
            if moved is None:
                return None
            soonest = max(state.now, work.since) + moved
            if time < soonest:
                return self.find_booking(work, soonest)
            load = durations.resume_time(place.vms,
                                         self._site.memory_of(work.terms))
            up = state.disks.idle_from(hosts, time, load) + load
        down, end = self.end_times(work, up)
        save = self.suspend_time(work.terms, place.vms)
        saves = end > place.until
        operations = []
        if load:
            operations.append(state.disks.operation(hosts, up - load, up))
        if saves:
            if not self.may_suspend(work.terms):
                return None
            end = state.disks.idle_until(hosts, place.until, save)
            down = end - save
            if down <= up or (
                    end - time < self._minimum_with_overheads(load + save)):
                return None
            operations.append(state.disks.operation(hosts, down, end))
        return Booking(time, up, down, end, place.vms,
                       dataclasses.replace(place.slot, start=time, end=end),
                       save, saves, operations=tuple(operations))

    def find_earliest_booking(self, work: RemainingWork, after: int,
                              latest: int = NEVER) -> Booking | None:
        """Return the first booking in [after, latest], None if there is none.
        """
        time = after
        while time < min(latest + 1, NEVER):
            found = self._earliest_with_room(work, time)
            if found is None or found > latest:
                return None
            booking = self.find_booking(work, found)
            if booking is not None:
                return booking
            time = min([
                self._state.table.next_change(found),
                *(one for one in self.start_times(work) if one > found)])
        return None

    def _earliest_with_room(self, work: RemainingWork, after: int
                            ) -> int | None:
        """Return the first time at which each node set alone has room."""
        if self._cannot_move(work):
            return after    # its former hosts are checked at each change
        table, least = self._state.table, self.minimum_time(work)
        images = self._needed_images(work)
        first = self._zero_distance() if images is None else images.ready(work)
        masks = [self._site.usable_hosts(one) for one in work.terms.nodes]
        if work.choice is not None and work.home is None:
            # An upper bound: all groups count at once.
            masks = work.choice.masks(
                masks, np.any(work.choice.groups, axis=0))
        ready = [first if mask is None else np.where(mask, first, NEVER)
                 for mask in masks]
        time = after
        while True:
            before = time
            for one, usable in zip(work.terms.nodes, ready, strict=True):
                found = table.earliest_start(one.need, one.number, least,
                                             np.maximum(usable, time))
                if found is None:
                    return None
                time = found
            if time == before or len(ready) == 1:
                return time
