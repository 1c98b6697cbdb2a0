# SPDX-License-Identifier: Apache-2.0

"""Simulation of a workload of leases with the lease scheduler."""

from collections.abc import Callable, Sequence
import dataclasses
import heapq
import itertools
import math

from secondary_scheduler.leases.scheduling.lease import Lease
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.scheduler import Scheduler
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.model.lease_states import HOLDING, LeaseState
from secondary_scheduler.simulation.workloads.requests import TraceRequest

#: Share of the planned time by which a late suspension is extended.
_LONGER = 0.25
#: States in which a lease occupies hosts.
_OCCUPYING = HOLDING | {LeaseState.SUSPENDING}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Outcome of a requested lease.

    ``held`` has the intervals in which it occupied hosts.
    """

    lease: Lease
    request: TraceRequest
    held: tuple[tuple[int, int], ...] = ()


def _silent(share: float) -> None:
    """Default progress callback; does nothing."""


class LeaseSimulation:
    """Environment of a scheduler: requests arrive, and leases end.

    A suspension takes the time of the model, times a factor that ``stretch``
    draws for each.
    """

    def __init__(self, site: Site, settings: Settings,
                 requests: Sequence[TraceRequest],
                 stretch: Callable[[], float] | None = None) -> None:
        self.scheduler = Scheduler(site, settings, notify=self._hear)
        self._arrivals = sorted(requests, key=lambda one: one.arrival)
        self._requests: dict[Lease, TraceRequest] = {}
        self._begun: dict[Lease, int] = {}
        self._held: dict[Lease, list[tuple[int, int]]] = {}
        self._ends: list[tuple[int, int, Lease, int]] = []
        self._order = itertools.count()
        self._margin = settings.durations.margin
        self._stretch = stretch
        self._saves: list[tuple[int, int, Lease, int]] = []

    def run(self, progress: Callable[[float], object] = _silent
            ) -> list[Outcome]:
        """Run until no lease is left that can run."""
        scheduler = self.scheduler
        coming = 0
        total = len(self._arrivals)
        while True:
            times = [time for time in (
                self._arrivals[coming].arrival if coming < total else None,
                self._next_end(), self._saves[0][0] if self._saves else None,
                scheduler.next_time()) if time is not None]
            if not times:
                break
            now = min(times)
            while (end := self._next_end()) is not None and end <= now:
                scheduler.finish(heapq.heappop(self._ends)[2], now)
            while self._saves and self._saves[0][0] <= now:
                self._save(*heapq.heappop(self._saves))
            scheduler.advance(now)
            while coming < total and self._arrivals[coming].arrival <= now:
                self._arrive(self._arrivals[coming])
                coming += 1
                if not coming % 100:
                    progress(coming / total)
            scheduler.fill()
        progress(1.0)
        return [Outcome(one, request, tuple(self._held.get(one, ())))
                for one, request in self._requests.items()]

    def _arrive(self, request: TraceRequest) -> None:
        lease = Lease(request.id, request.terms, request.arrival)
        self._requests[lease] = request
        self.scheduler.submit(lease)

    def _save(self, now: int, order: int, lease: Lease, ends: int) -> None:
        """Report a finished suspension, or extend a late one."""
        if now >= ends:
            self.scheduler.end_suspension(lease, now)
            return
        assert lease.booking is not None
        # Its true end is not known to the scheduler; check again then.
        length = lease.booking.end - lease.booking.down
        until = lease.booking.end + math.ceil(_LONGER * length)
        self.scheduler.extend_suspension(lease, until)
        heapq.heappush(self._saves, (min(ends, until), order, lease, ends))

    def _next_end(self) -> int | None:
        while self._ends:
            time, _, lease, up = self._ends[0]
            if (lease.state is LeaseState.ACTIVE and lease.booking is not None
                    and lease.booking.up == up):
                return time
            heapq.heappop(self._ends)   # it was stopped before
        return None

    def _hear(self, lease: Lease, before: LeaseState) -> None:
        now = self.scheduler.now
        if lease.state in _OCCUPYING:
            self._begun.setdefault(lease, now)
        elif before in _OCCUPYING:
            self._held.setdefault(lease, []).append(
                (self._begun.pop(lease), now))
        if lease.state is LeaseState.ACTIVE and lease.booking is not None:
            left = self._requests[lease].runs - lease.served
            heapq.heappush(self._ends, (
                now + left, next(self._order), lease, lease.booking.up))
        if lease.state is LeaseState.SUSPENDING and self._stretch is not None:
            assert lease.booking is not None
            length = lease.booking.end - now
            ends = now + max(1, math.ceil(
                self._stretch() * length / (1 + self._margin)))
            heapq.heappush(self._saves, (min(ends, lease.booking.end),
                                         next(self._order), lease, ends))
