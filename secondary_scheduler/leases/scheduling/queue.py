# SPDX-License-Identifier: Apache-2.0

"""The queue of leases that wait for hosts.

Leases of the same shape are grouped, so that the few that can start are found
without trying every lease of a long queue.
"""

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator
import dataclasses
import itertools
import operator
import typing

from secondary_scheduler.leases.scheduling.lease import Lease, RemainingWork
from secondary_scheduler.leases.scheduling.types import Ints


class LeaseShape(typing.NamedTuple):
    """Need of each VM, and seconds after which more hosts can be used.

    ``delays`` is empty if these change with time.
    """

    need: tuple[int, ...]
    delays: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class QueuedLease:
    """A lease in the queue.

    Hosts must be free for ``minimum_s`` seconds, or the lease does not start.
    The lowest ``rank`` is served first.  ``shape`` and ``number`` describe
    the VMs of its first node set.
    """

    lease: Lease
    minimum_s: int
    rank: tuple[float, float, int]
    shape: LeaseShape
    number: int

    @property
    def work(self) -> RemainingWork:
        """The remaining work of the lease."""
        return self.lease.work


_rank = operator.attrgetter('rank')
_minimum_s = operator.attrgetter('minimum_s')


class Queue:
    """Leases that wait for hosts, ordered by rank."""

    def __init__(self) -> None:
        self._in_order: list[QueuedLease] = []
        self._of: dict[Lease, QueuedLease] = {}
        # By shape and number of VMs, the shortest minimum time first.
        self._alike: defaultdict[
            LeaseShape, defaultdict[int, list[QueuedLease]]] = (
            defaultdict(lambda: defaultdict(list)))

    def __iter__(self) -> Iterator[QueuedLease]:
        return iter(tuple(self._in_order))

    def __contains__(self, lease: Lease) -> bool:
        return lease in self._of

    def add(self, entry: QueuedLease) -> None:
        """Add a lease."""
        self._of[entry.lease] = entry
        bisect.insort(self._in_order, entry, key=_rank)
        bisect.insort(self._alike[entry.shape][entry.number], entry,
                      key=_minimum_s)

    def remove(self, lease: Lease) -> QueuedLease:
        """Remove and return a lease."""
        entry = self._of.pop(lease)
        del self._in_order[bisect.bisect_left(
            self._in_order, entry.rank, key=_rank)]
        numbers = self._alike[entry.shape]
        numbers[entry.number].remove(entry)
        if not numbers[entry.number]:
            del numbers[entry.number]
        if not numbers:
            del self._alike[entry.shape]
        return entry

    def startable(self, durations: Callable[[LeaseShape], Ints]
                  ) -> list[QueuedLease]:
        """Return leases that may start now or after their delays, in order.

        ``durations`` returns for how long one VM of a shape, two and so on
        fit.  Leases whose delays change are always included.
        """
        found: list[QueuedLease] = []
        for shape, numbers in self._alike.items():
            if not shape.delays:
                found += itertools.chain(*numbers.values())
                continue
            fits = durations(shape)
            for number, alike in numbers.items():
                if number <= len(fits):
                    found += alike[:bisect.bisect(alike, fits[number - 1],
                                                  key=_minimum_s)]
        return sorted(found, key=_rank)
