"""Who of a long queue need not be tried."""

from secondary_scheduler.leases.holdings import Holdings
from secondary_scheduler.leases.lease import Terms
from secondary_scheduler.leases.planner import Planner
from secondary_scheduler.leases.queue import Waiting
from secondary_scheduler.leases.types import Ints


class Glance:
    """Tells quickly for which of many leases there is too little room.

    Most of a long queue cannot begin, pass after pass.
    """

    def __init__(self, holdings: Holdings, planner: Planner) -> None:
        self._holdings = holdings
        self._planner = planner
        self._places: dict[tuple[tuple[int, ...], int], Ints] = {}

    def forget(self) -> None:
        """Something has changed."""
        self._places.clear()

    def room(self, need: tuple[int, ...]) -> int:
        """Return how many VMs that take so much fit now."""
        return len(self._until(need, self._holdings.now))

    def has_room(self, terms: Terms) -> bool:
        """Tell whether there are places enough now, however briefly."""
        return all(
            len(self._until(one.need, self._holdings.now)) >= one.number
            for one in terms.nodes)

    def may_start(self, waiting: Waiting) -> bool:
        """Tell whether each node set of a lease, by itself, fits now."""
        for time in self._planner.times(waiting.work):
            for one in waiting.work.terms.nodes:
                until = self._until(one.need, time)
                if (len(until) < one.number
                        or until[one.number - 1] < time + waiting.least):
                    break
            else:
                return True
        return False

    def _until(self, need: tuple[int, ...], time: int) -> Ints:
        """Return until when each place for a VM stands, the longest first."""
        found = self._places.get((need, time))
        if found is None:
            found = self._places[need, time] = self._holdings.table.places(
                need, time)
        return found
