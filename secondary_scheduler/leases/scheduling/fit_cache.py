"""Who of a long queue need not be tried."""

import numpy as np

from secondary_scheduler.leases.scheduling.lease import Terms
from secondary_scheduler.leases.scheduling.planner import Planner
from secondary_scheduler.leases.scheduling.queue import QueuedLease, Sort
from secondary_scheduler.leases.scheduling.schedule_state import Holdings
from secondary_scheduler.leases.scheduling.types import Ints


class Glance:
    """Tells quickly for which of many leases there is too little room.

    Most of a long queue cannot begin, pass after pass.
    """

    def __init__(self, holdings: Holdings, planner: Planner) -> None:
        self._holdings = holdings
        self._planner = planner
        self._places: dict[tuple[tuple[int, ...], int], Ints] = {}
        self._lasting: dict[Sort, Ints] = {}

    def forget(self) -> None:
        """Something has changed."""
        self._places.clear()
        self._lasting.clear()

    def lasting(self, sort: Sort) -> Ints:
        """Return for how long one VM, two and so on fit, after a delay."""
        found = self._lasting.get(sort)
        if found is None:
            times = [self._holdings.now + delay for delay in sort.delays]
            found, *others = sorted(
                (self._until(sort.need, time) - time for time in times),
                key=len, reverse=True)
            for one in others:
                np.maximum(found[:len(one)], one, out=found[:len(one)])
            self._lasting[sort] = found
        return found

    def has_room(self, terms: Terms) -> bool:
        """Tell whether there are places enough now, however briefly."""
        return all(
            len(self._until(one.need, self._holdings.now)) >= one.number
            for one in terms.nodes)

    def may_start(self, waiting: QueuedLease) -> bool:
        """Tell whether its first node set, by itself, fits for long enough.
        """
        sort = waiting.sort
        if not sort.delays:
            sort = sort._replace(delays=self._planner.delays(waiting.work))
        lasting = self.lasting(sort)
        return (waiting.number <= len(lasting)
                and int(lasting[waiting.number - 1]) >= waiting.least)

    def _until(self, need: tuple[int, ...], time: int) -> Ints:
        """Return until when each place for a VM stands, the longest first."""
        found = self._places.get((need, time))
        if found is None:
            found = self._places[need, time] = self._holdings.table.places(
                need, time)
        return found
