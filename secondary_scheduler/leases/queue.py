"""The queue of those that wait for hosts.

It can be long, and only few of it can begin at a time: those of few VMs are
found without looking at the others.
"""

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator
import dataclasses
import operator

from secondary_scheduler.leases.lease import Lease, Work


@dataclasses.dataclass(frozen=True, eq=False)
class Waiting:
    """A lease in the queue, and what is left to do of it.

    ``least`` is for how many seconds hosts must be free for it to be worth
    it; the lowest ``rank`` is served first.
    """

    lease: Lease
    work: Work
    least: int
    rank: tuple[float, float, int]

    @property
    def number(self) -> int:
        """How many VMs its first node set has."""
        return self.work.terms.nodes[0].number

    @property
    def need(self) -> tuple[int, ...] | None:
        """What each of these takes; None if something has to be sent first.
        """
        fresh = self.work.home is None and not self.work.terms.image_mb
        return self.work.terms.nodes[0].need if fresh else None


_rank = operator.attrgetter('rank')
_number = operator.attrgetter('number')


class Queue:
    """Leases that wait for hosts, those of the lowest rank first."""

    def __init__(self) -> None:
        self._in_order: list[Waiting] = []
        self._of: dict[Lease, Waiting] = {}
        # Those whose VMs are alike, the fewest first.
        self._alike: defaultdict[tuple[int, ...] | None, list[Waiting]] = (
            defaultdict(list))

    def __iter__(self) -> Iterator[Waiting]:
        return iter(tuple(self._in_order))

    def add(self, waiting: Waiting) -> None:
        """Let a lease wait."""
        self._of[waiting.lease] = waiting
        bisect.insort(self._in_order, waiting, key=_rank)
        bisect.insort(self._alike[waiting.need], waiting, key=_number)

    def remove(self, lease: Lease) -> Waiting:
        """Let a lease wait no more."""
        waiting = self._of.pop(lease)
        del self._in_order[bisect.bisect_left(
            self._in_order, waiting.rank, key=_rank)]
        self._alike[waiting.need].remove(waiting)
        return waiting

    def small(self, room: Callable[[tuple[int, ...]], int]) -> list[Waiting]:
        """Return those of no more VMs than there is room for now, in order.

        ``room`` tells for how many that take so much.  For who could begin
        somewhat later that is not asked.
        """
        found: list[Waiting] = []
        for need, alike in self._alike.items():
            if alike:
                found += (alike if need is None else alike[:bisect.bisect(
                    alike, room(need), key=_number)])
        return sorted(found, key=_rank)
