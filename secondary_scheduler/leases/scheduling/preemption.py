# SPDX-License-Identifier: Apache-2.0

"""Selection of leases to preempt (Sotomayor 2010, section 5.2, algorithm 4).
"""

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

#: Places a lease in the present free capacity; returns None if it cannot.
PlaceCallback = Callable[[], Placement | None]


def select_preemptees(
    table: SlotTable, start: int, leases: Iterator[Lease], place: PlaceCallback
) -> list[Lease] | None:
    """Select leases to preempt at ``start`` so that ``place`` succeeds.

    Return the shortest prefix of ``leases`` whose preemption is enough,
    without the leases that do not overlap the resulting placement.  None if
    preempting all of them is not enough.
    """
    without = _WithoutLeases(table, start, place)
    enough, fits = 0, False
    while not fits:
        # Twice as many each time: most of them are seldom needed.
        too_few = enough
        enough += without.add(itertools.islice(leases, max(enough, 1)))
        if enough == too_few:
            without.place_without(0)
            return None
        fits = without.place_without(enough) is not None
    number = 1 + bisect.bisect_left(
        range(1, enough), True, lo=too_few,
        key=lambda number: without.place_without(number) is not None)
    return without.overlapping(number)


class _WithoutLeases:
    """The slot table without the first so many of some leases."""

    def __init__(self, table: SlotTable, start: int,
                 place: PlaceCallback) -> None:
        self._table = table
        self._start = start
        self._place = place
        self._leases: list[Lease] = []
        self._slots: list[CapacityEntry] = []
        self._removed = 0

    def add(self, leases: Iterator[Lease]) -> int:
        """Add more leases; return how many these are."""
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

    def place_without(self, number: int) -> Placement | None:
        """Remove the first ``number`` leases from the table, and place."""
        for slot in self._slots[self._removed:number]:
            self._table.give(slot)
        for slot in self._slots[number:self._removed]:
            self._table.take(slot)
        self._removed = number
        return self._place()

    def overlapping(self, number: int) -> list[Lease]:
        """Return leases among the first ``number`` that must be preempted.

        The table is restored.
        """
        place = self.place_without(number)
        assert place is not None
        self._table.take(place.slot)
        preemptees = []
        for index in reversed(range(number)):
            if self._table.has_room(self._slots[index]):
                self._table.take(self._slots[index])
            else:
                preemptees.append(index)
        self._table.give(place.slot)
        for index in preemptees:
            self._table.take(self._slots[index])
        return [self._leases[index] for index in reversed(preemptees)]
