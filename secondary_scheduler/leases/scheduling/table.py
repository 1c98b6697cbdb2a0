# SPDX-License-Identifier: Apache-2.0

"""Slot table: free capacity of each host over time.

Sotomayor 2010, section 4.2.4.  All hosts share a few arrays that are searched
by compiled loops; this keeps admission fast on thousands of hosts.
"""

import dataclasses
import functools
import typing

import numpy as np
from numpy.typing import NDArray

from secondary_scheduler.leases.scheduling import steps
from secondary_scheduler.leases.scheduling.types import NEVER, Ints

#: Factor by which a failed search for a start looks further ahead.  The first
#: search looks one duration ahead, since most leases fit soon.
_SEARCH_GROWTH = 8


@dataclasses.dataclass(frozen=True, eq=False)
class CapacityEntry:
    """Capacity taken from hosts in [start, end), in whole seconds.

    ``hosts``, shape (n,), are indices in ascending order; ``amounts`` has the
    shape (resources, n).  ``tenants`` is how many leases take it: 1, or 0 if
    it is not taken by a lease.
    """

    start: int
    end: int
    hosts: Ints
    amounts: Ints
    tenants: int = 1


class SlotTable:
    """Free capacity of each host, from ``now`` on.

    ``capacity`` has the shape (hosts, columns): the resources, then the units
    of resources that have several (``Site.columns``).
    """

    def __init__(self, capacity: NDArray[np.integer[typing.Any]],
                 now: int = 0) -> None:
        self.capacity = capacity.astype(np.int64)
        self.now = now
        hosts, resources = capacity.shape
        self._edges = np.full((8, hosts), now, dtype=np.int64)
        self._tenants = np.zeros((8, hosts), dtype=np.int64)
        self._free = np.zeros((8, hosts, resources), dtype=np.int64)
        self._free[0] = capacity
        self._lengths = np.ones(hosts, dtype=np.int64)
        # Nothing changes after this time.
        self._last = now

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return len(self._lengths)

    # -- changes

    def take(self, slot: CapacityEntry) -> None:
        """Take the capacity of an entry."""
        self._change(slot, 1)

    def give(self, slot: CapacityEntry) -> None:
        """Return the capacity of an entry, from now on."""
        self._change(slot, -1)

    def advance(self, now: int) -> None:
        """Forget the time before ``now``."""
        self.now = max(now, self.now)

    def _change(self, slot: CapacityEntry, sign: int) -> None:
        start = max(slot.start, self.now)
        if start >= slot.end:
            return
        if not steps.has_spare_steps(self._edges, self._tenants, self._free,
                                     self._lengths, slot.hosts, self.now):
            self._widen()
        steps.change(self._edges, self._tenants, self._free, self._lengths,
                     slot.hosts, slot.amounts, start, slot.end, sign,
                     slot.tenants, self.now)
        self._last = max(self._last, start if slot.end >= NEVER else slot.end)

    def _widen(self) -> None:
        """Double the number of steps that a host can have."""
        for name in ('_edges', '_tenants', '_free'):
            old = getattr(self, name)
            setattr(self, name, np.concatenate((old, np.zeros_like(old))))

    # -- queries

    def free_vms(self, need: tuple[int, ...], start: int, end: int) -> Ints:
        """Return how many VMs fit on each host for all of [start, end).

        :param need: amounts of the first resources, at least one positive
        """
        found = np.empty(self.hosts, dtype=np.int64)
        steps.free_vms(self._edges, self._free, self._lengths, _array(need),
                       start, end, found)
        return found

    def vm_end_times(self, need: tuple[int, ...], time: int) -> Ints:
        """Return the end of each place for a VM at ``time``, the latest first.

        A host on which k VMs fit has k places, which end when fewer fit.
        """
        found = steps.vm_end_times(self._edges, self._free, self._lengths,
                                   _array(need), time)
        return np.sort(found)[::-1]

    def fits_until(self, hosts: Ints, amounts: Ints, start: int) -> int:
        """Return how long amounts fit on all of some hosts.

        :param amounts: shape (resources, hosts)
        :returns: the time at which they stop to fit: ``start`` if they do not
            fit at all, NEVER if they always fit
        """
        return steps.fits_until(self._edges, self._free, self._lengths, hosts,
                                amounts, start)

    def has_room(self, slot: CapacityEntry) -> bool:
        """Return whether the capacity of an entry is free."""
        return (slot.start >= slot.end or self.fits_until(
            slot.hosts, slot.amounts, slot.start) >= slot.end)

    def state_at(self, time: int) -> tuple[Ints, Ints, Ints]:
        """Return number of leases, free capacity and next change per host.

        Shapes (hosts,), (columns, hosts), (hosts,).
        """
        here, changes = np.empty((2, self.hosts), dtype=np.int64)
        left = np.empty(self.capacity.shape[::-1], dtype=np.int64)
        steps.state_at(self._edges, self._tenants, self._free, self._lengths,
                       time, here, left, changes)
        return here, left, changes

    def least_free(self, start: int, end: int) -> Ints:
        """Return the least free capacity of each host in [start, end).

        Shape (hosts, columns).
        """
        found = np.empty_like(self.capacity)
        steps.least_free(self._edges, self._free, self._lengths, start, end,
                         found)
        return found

    def earliest_start(self, need: tuple[int, ...], number: int,
                       duration: int, ready: Ints) -> int | None:
        """Return the first time at which VMs fit for a whole duration.

        :param number: how many VMs
        :param duration: at least 1 s
        :param ready: first usable time of each host, shape (hosts,); NEVER:
            not usable
        :returns: None if they never fit
        """
        usable = ready[ready < NEVER]
        if not len(usable):
            return None
        soonest, last = int(usable.min()), max(int(usable.max()), self._last)
        ahead = duration
        while True:
            found = steps.first_start(number, *steps.find_places(
                self._edges, self._free, self._lengths, _array(need),
                duration, ready, soonest + ahead + duration))
            if found < NEVER:
                return found
            if soonest + ahead >= last:
                return None
            ahead *= _SEARCH_GROWTH

    def next_change(self, time: int) -> int:
        """Return the first change of any host after a time, or NEVER."""
        return steps.next_change(self._edges, self._lengths, time)


@functools.lru_cache(maxsize=1024)
def _array(need: tuple[int, ...]) -> Ints:
    """Return a need as an array; few needs differ, so they are cached."""
    return np.array(need)
