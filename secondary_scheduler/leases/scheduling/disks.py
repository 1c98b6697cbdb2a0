# SPDX-License-Identifier: Apache-2.0

"""Schedule of the disks to which memory is saved, one operation at a time.

Operations that load or save memory exclude each other on each host, or on the
whole site if memory is saved to one storage (Sotomayor 2010, section 7.1; see
reference/errata).
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
    """Loading or saving of memory in [start, end).

    ``disks`` are indices in ascending order.
    """

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
        # Ordered by end; with the longest duration so far.
        self._operations: list[DiskOperation] = []
        self._longest = 0

    def operation(self, hosts: Ints, start: int, end: int) -> DiskOperation:
        """Return an operation on the disks of some hosts.

        :param hosts: indices in ascending order
        """
        return DiskOperation(start, end, hosts if self._number > 1
                             else np.zeros(1, dtype=np.int64))

    def take(self, operation: DiskOperation) -> None:
        """Add an operation."""
        self._longest = max(self._longest, operation.end - operation.start)
        bisect.insort(self._operations, operation, key=_end)

    def give(self, operation: DiskOperation) -> None:
        """Remove an operation, unless it is already forgotten."""
        for index in range(bisect.bisect_left(
                self._operations, operation.end, key=_end),
                len(self._operations)):
            if self._operations[index] is operation:
                del self._operations[index]
                return
            if self._operations[index].end > operation.end:
                return

    def advance(self, now: int) -> None:
        """Forget past operations."""
        past = bisect.bisect_right(self._operations, now, key=_end)
        del self._operations[:past]

    def idle_from(self, hosts: Ints, start: int, length: int) -> int:
        """Return the first time, from ``start`` on, with idle disks.

        :param length: seconds for which the disks must be idle
        """
        while busy := [one.end for one in self._overlapping(
                self.operation(hosts, start, start + length))]:
            start = max(busy)
        return start

    def idle_until(self, hosts: Ints, end: int, length: int,
                   ignored: DiskOperation | None = None) -> int:
        """Return the last end, by ``end``, of an operation on idle disks.

        :param length: duration of the operation
        :param ignored: an operation that does not count
        """
        while busy := [
                one.start for one in self._overlapping(
                    self.operation(hosts, end - length, end))
                if one is not ignored]:
            end = min(busy)
        return end

    def _overlapping(self, wanted: DiskOperation) -> Iterator[DiskOperation]:
        first = bisect.bisect_right(self._operations, wanted.start, key=_end)
        lowest, highest = wanted.span
        for index in range(first, len(self._operations)):
            other = self._operations[index]
            if other.end >= wanted.end + self._longest:
                return
            if (other.start < wanted.end and other.span[0] <= highest
                    and other.span[1] >= lowest
                    and _intersect(other.disks, wanted.disks)):
                yield other


@compiled
def _intersect(some: Ints, others: Ints) -> bool:
    """Return whether two ascending lists have a common element."""
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
