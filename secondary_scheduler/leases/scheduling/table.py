"""The slot table: what each host has left, from now on (Haizea 4.1).

All hosts' futures lie in a few arrays, so one question is asked of all of
them at once, in compiled loops; that is what makes admission quick on
thousands of hosts.
"""

import dataclasses
import functools
import typing

import numpy as np
from numpy.typing import NDArray

from secondary_scheduler.leases.scheduling import steps
from secondary_scheduler.leases.scheduling.types import NEVER, Ints

#: Most often VMs fit soon, so first only what begins within their duration is
#: looked at; as often as that does not do, what begins so many times later.
_FURTHER = 8


@dataclasses.dataclass(frozen=True, eq=False)
class CapacityEntry:
    """What one lease holds of some hosts from ``start`` until ``end``.

    ``hosts``, shape (n,), are indices in ascending order; ``amounts``, shape
    (resources, n), is held of each.  Times are whole seconds, the end is the
    first that is free again.  ``tenants`` is 0 for what is no lease.
    """

    start: int
    end: int
    hosts: Ints
    amounts: Ints
    tenants: int = 1


class SlotTable:
    """What each host has left, second by second.

    ``capacity`` has the shape (hosts, resources), among which are, at the
    end, the instances of those that have several (``Site.columns``).  Nothing
    is said of the time before ``now``.
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
        # After which nothing changes.
        self._last = now

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return len(self._lengths)

    # -- changes

    def take(self, slot: CapacityEntry) -> None:
        """Enter a slot."""
        self._change(slot, 1)

    def give(self, slot: CapacityEntry) -> None:
        """Remove a slot that was entered, or what is left of it."""
        self._change(slot, -1)

    def advance(self, now: int) -> None:
        """Forget the time before ``now``."""
        self.now = max(now, self.now)

    def _change(self, slot: CapacityEntry, sign: int) -> None:
        start = max(slot.start, self.now)
        if start >= slot.end:
            return
        if not steps.fitting(self._edges, self._tenants, self._free,
                             self._lengths, slot.hosts, self.now):
            self._widen()
        steps.change(self._edges, self._tenants, self._free, self._lengths,
                     slot.hosts, slot.amounts, start, slot.end, sign,
                     slot.tenants, self.now)
        self._last = max(self._last, start if slot.end >= NEVER else slot.end)

    def _widen(self) -> None:
        """Make room for more steps."""
        for name in ('_edges', '_tenants', '_free'):
            old = getattr(self, name)
            setattr(self, name, np.concatenate((old, np.zeros_like(old))))

    # -- questions

    def room(self, need: tuple[int, ...], start: int, end: int) -> Ints:
        """Return how many VMs fit on each host for all of [start, end).

        ``need`` is what one VM takes of each of the first resources, at least
        one of them more than nothing.
        """
        found = np.empty(self.hosts, dtype=np.int64)
        steps.room(self._edges, self._free, self._lengths, _array(need),
                   start, end, found)
        return found

    def places(self, need: tuple[int, ...], time: int) -> Ints:
        """Return until when each place for a VM at ``time`` stands.

        A host on which k of them fit has k places, which end when fewer fit.
        Sorted, the longest first.
        """
        found = steps.places(self._edges, self._free, self._lengths,
                             _array(need), time)
        return np.sort(found)[::-1]

    def until(self, hosts: Ints, amounts: Ints, start: int) -> int:
        """Return until when all these hosts hold these amounts.

        ``amounts`` has the shape (resources, hosts).  It is ``start`` where
        they do not fit at all, and NEVER where they always do.
        """
        return steps.until(self._edges, self._free, self._lengths, hosts,
                           amounts, start)

    def holds(self, slot: CapacityEntry) -> bool:
        """Tell whether there is room for a slot."""
        return (slot.start >= slot.end or self.until(
            slot.hosts, slot.amounts, slot.start) >= slot.end)

    def at(self, time: int) -> tuple[Ints, Ints, Ints]:
        """Return leases, what is free and until when nothing changes there.

        Shapes (hosts,), (resources, hosts), (hosts,).
        """
        here, changes = np.empty((2, self.hosts), dtype=np.int64)
        left = np.empty(self.capacity.shape[::-1], dtype=np.int64)
        steps.at(self._edges, self._tenants, self._free, self._lengths, time,
                 here, left, changes)
        return here, left, changes

    def least(self, start: int, end: int) -> Ints:
        """Return the least that hosts have left in [start, end).

        Shape (hosts, resources).
        """
        found = np.empty_like(self.capacity)
        steps.least(self._edges, self._free, self._lengths, start, end, found)
        return found

    def earliest(self, need: tuple[int, ...], number: int, duration: int,
                 ready: Ints) -> int | None:
        """Return when first ``number`` VMs fit for all of ``duration`` >= 1.

        ``ready``, shape (hosts,), is from when each host can be used (NEVER:
        not at all).  None if they never fit.
        """
        usable = ready[ready < NEVER]
        if not len(usable):
            return None
        soonest, last = int(usable.min()), max(int(usable.max()), self._last)
        ahead = duration
        while True:
            found = steps.first(number, *steps.stretches(
                self._edges, self._free, self._lengths, _array(need),
                duration, ready, soonest + ahead + duration))
            if found < NEVER:
                return found
            if soonest + ahead >= last:
                return None
            ahead *= _FURTHER

    def next_change(self, time: int) -> int:
        """Return when after a time anything changes on any host, or NEVER."""
        return steps.next_change(self._edges, self._lengths, time)


@functools.lru_cache(maxsize=1024)
def _array(need: tuple[int, ...]) -> Ints:
    """Return a need as compiled loops want it; there are few different ones.
    """
    return np.array(need)
