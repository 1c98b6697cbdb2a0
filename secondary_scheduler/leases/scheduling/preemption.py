"""Who has to go so that a lease fits at its time (Haizea 4.6, Algorithm 4)."""

import bisect
from collections.abc import Callable, Iterator
import dataclasses
import itertools

from secondary_scheduler.leases.scheduling.lease import Lease
from secondary_scheduler.leases.scheduling.mapping import Placement
from secondary_scheduler.leases.scheduling.table import (
    CapacityEntry,
    SlotTable,
)

#: Returns where a lease fits in what is free at the moment, if anywhere.
PlaceCallback = Callable[[], Placement | None]


def fewest(
    table: SlotTable, start: int, leases: Iterator[Lease], place: PlaceCallback
) -> list[Lease] | None:
    """Return who of some leases has to go by ``start``, the first go first.

    The more go, the more room there is; who is not in the way of the place
    that is found need not go.  None if all of them are too few.
    """
    leaving = _Leaving(table, start, place)
    enough, fits = 0, False
    while not fits:
        # Twice as many each time: seldom do most of them have to go.
        too_few = enough
        enough += leaving.add(itertools.islice(leases, max(enough, 1)))
        if enough == too_few:
            leaving.without(0)
            return None
        fits = leaving.without(enough) is not None
    number = 1 + bisect.bisect_left(
        range(1, enough), True, lo=too_few,
        key=lambda number: leaving.without(number) is not None)
    return leaving.in_the_way(number)


class _Leaving:
    """What a table has room for if the first so many of some leases go."""

    def __init__(self, table: SlotTable, start: int,
                 place: PlaceCallback) -> None:
        self._table = table
        self._start = start
        self._place = place
        self._leases: list[Lease] = []
        self._slots: list[CapacityEntry] = []
        self._gone = 0

    def add(self, leases: Iterator[Lease]) -> int:
        """Take some more leases into account; return how many these are."""
        before = len(self._leases)
        self._leases += leases
        for lease in self._leases[before:]:
            assert lease.booking is not None
            self._slots.append(
                dataclasses.replace(
                    lease.booking.slot,
                    start=max(self._start, lease.booking.begin),
                )
            )
        return len(self._leases) - before

    def without(self, number: int) -> Placement | None:
        """Let so many leases be gone, and return where there is room then."""
        for slot in self._slots[self._gone:number]:
            self._table.give(slot)
        for slot in self._slots[number:self._gone]:
            self._table.take(slot)
        self._gone = number
        return self._place()

    def in_the_way(self, number: int) -> list[Lease]:
        """Return who of so many must go; the table is left as it was."""
        place = self.without(number)
        assert place is not None
        self._table.take(place.slot)
        victims = []
        for index in reversed(range(number)):
            if self._table.holds(self._slots[index]):
                self._table.take(self._slots[index])
            else:
                victims.append(index)
        self._table.give(place.slot)
        for index in victims:
            self._table.take(self._slots[index])
        return [self._leases[index] for index in reversed(victims)]
