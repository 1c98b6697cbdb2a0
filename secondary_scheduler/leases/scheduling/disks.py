"""Who loads or saves memory where and when: one at a time (Haizea 4.8).

On each host, or on the whole site where memory is kept in one place, such
operations exclude each other, since they share a disk or a link (AMB-7).
"""

import bisect
from collections.abc import Iterator
import dataclasses
import functools

import numpy as np

from secondary_scheduler.leases.scheduling.steps import compiled
from secondary_scheduler.leases.scheduling.types import Ints


@dataclasses.dataclass(frozen=True, eq=False)
class DiskOperation:
    """Loading or saving in [start, end), on disks in ascending order."""

    start: int
    end: int
    disks: Ints

    @functools.cached_property
    def span(self) -> tuple[int, int]:
        """The first and the last disk."""
        return int(self.disks[0]), int(self.disks[-1])


class Disks:
    """The disks of a site; ``number`` is 1 for one that all hosts share."""

    def __init__(self, number: int) -> None:
        self._number = number
        # In the order of their ends, and what is longest ever.
        self._operations: list[DiskOperation] = []
        self._longest = 0

    def operation(self, hosts: Ints, start: int, end: int) -> DiskOperation:
        """Return what it takes to load or save what is on some hosts.

        These are indices in ascending order.
        """
        return DiskOperation(start, end, hosts if self._number > 1
                             else np.zeros(1, dtype=np.int64))

    def take(self, operation: DiskOperation) -> None:
        """Enter an operation."""
        self._longest = max(self._longest, operation.end - operation.start)
        bisect.insort(self._operations, operation, key=_end)

    def give(self, operation: DiskOperation) -> None:
        """Remove an operation, if it is not past and forgotten."""
        for index in range(bisect.bisect_left(
                self._operations, operation.end, key=_end),
                len(self._operations)):
            if self._operations[index] is operation:
                del self._operations[index]
                return
            if self._operations[index].end > operation.end:
                return

    def advance(self, now: int) -> None:
        """Forget what is past."""
        past = bisect.bisect_right(self._operations, now, key=_end)
        del self._operations[:past]

    def quiet_from(self, hosts: Ints, start: int, length: int) -> int:
        """Return from when on nobody else loads or saves there."""
        while busy := [one.end for one in self._in_the_way(
                self.operation(hosts, start, start + length))]:
            start = max(busy)
        return start

    def quiet_until(self, hosts: Ints, end: int, length: int,
                    but: DiskOperation | None = None) -> int:
        """Return the last time by which somebody can have saved there.

        ``but`` is in nobody's way.
        """
        while busy := [one.start for one in self._in_the_way(
                self.operation(hosts, end - length, end)) if one is not but]:
            end = min(busy)
        return end

    def _in_the_way(self, wanted: DiskOperation) -> Iterator[DiskOperation]:
        first = bisect.bisect_right(self._operations, wanted.start, key=_end)
        lowest, highest = wanted.span
        for index in range(first, len(self._operations)):
            other = self._operations[index]
            if other.end >= wanted.end + self._longest:
                return
            if (other.start < wanted.end and other.span[0] <= highest
                    and other.span[1] >= lowest
                    and _meet(other.disks, wanted.disks)):
                yield other


@compiled
def _meet(some: Ints, others: Ints) -> bool:
    """Tell whether two ascending lists have something in common."""
    one = other = 0
    while one < len(some) and other < len(others):
        if some[one] == others[other]:
            return True
        if some[one] < others[other]:
            one += 1
        else:
            other += 1
    return False


def _end(operation: DiskOperation) -> int:
    return operation.end
