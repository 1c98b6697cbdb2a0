"""The queue of those that wait for hosts.

It can be long, and only few of it can begin at a time: these are found
without looking at each of the others.
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


class Sort(typing.NamedTuple):
    """What leases have in common: what each of their VMs takes.

    They could begin in so many seconds, where they are and elsewhere;
    ``delays`` is empty if that changes.
    """

    need: tuple[int, ...]
    delays: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class QueuedLease:
    """A lease in the queue, and what is left to do of it.

    ``least`` is for how many seconds hosts must be free for it to be worth
    it; the lowest ``rank`` is served first.  ``sort`` and ``number`` are of
    the VMs of its first node set.
    """

    lease: Lease
    work: RemainingWork
    least: int
    rank: tuple[float, float, int]
    sort: Sort
    number: int


_rank = operator.attrgetter('rank')
_least = operator.attrgetter('least')


class Queue:
    """Leases that wait for hosts, those of the lowest rank first."""

    def __init__(self) -> None:
        self._in_order: list[QueuedLease] = []
        self._of: dict[Lease, QueuedLease] = {}
        # Those of a sort with so many VMs, who is content with the least
        # time first.
        self._alike: defaultdict[Sort, defaultdict[int, list[QueuedLease]]] = (
            defaultdict(lambda: defaultdict(list)))

    def __iter__(self) -> Iterator[QueuedLease]:
        return iter(tuple(self._in_order))

    def __contains__(self, lease: Lease) -> bool:
        return lease in self._of

    def add(self, waiting: QueuedLease) -> None:
        """Let a lease wait."""
        self._of[waiting.lease] = waiting
        bisect.insort(self._in_order, waiting, key=_rank)
        bisect.insort(self._alike[waiting.sort][waiting.number], waiting,
                      key=_least)

    def remove(self, lease: Lease) -> QueuedLease:
        """Let a lease wait no more."""
        waiting = self._of.pop(lease)
        del self._in_order[bisect.bisect_left(
            self._in_order, waiting.rank, key=_rank)]
        numbers = self._alike[waiting.sort]
        numbers[waiting.number].remove(waiting)
        if not numbers[waiting.number]:
            del numbers[waiting.number]
        if not numbers:
            del self._alike[waiting.sort]
        return waiting

    def fitting(self, lasting: Callable[[Sort], Ints]) -> list[QueuedLease]:
        """Return those that could begin now, or after their delays, in order.

        ``lasting`` tells of each sort for how long one VM, two and so on fit.
        Whose delays change is among them in any case.
        """
        found: list[QueuedLease] = []
        for sort, numbers in self._alike.items():
            if not sort.delays:
                found += itertools.chain(*numbers.values())
                continue
            fits = lasting(sort)
            for number, alike in numbers.items():
                if number <= len(fits):
                    found += alike[:bisect.bisect(alike, fits[number - 1],
                                                  key=_least)]
        return sorted(found, key=_rank)
