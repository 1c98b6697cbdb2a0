"""Who of a long queue need not be tried."""

from secondary_scheduler.leases.holdings import Holdings, Waiting
from secondary_scheduler.leases.planner import Planner


class Glance:
    """Tells quickly for which of many leases there is too little room.

    Most of a long queue cannot begin, pass after pass.
    """

    def __init__(self, holdings: Holdings, planner: Planner) -> None:
        self._holdings = holdings
        self._planner = planner
        self._places: dict[tuple[tuple[int, ...], int], list[int]] = {}

    def forget(self) -> None:
        """Something has changed."""
        self._places.clear()

    def may_start(self, waiting: Waiting) -> bool:
        """Tell whether each node set of a lease, by itself, fits now."""
        for time in self._planner.times(waiting.work):
            for one in waiting.work.terms.nodes:
                key = one.need, time
                stand = self._places.get(key)
                if stand is None:
                    stand = self._places[key] = (
                        self._holdings.table.places(*key).tolist())
                if (len(stand) < one.number
                        or stand[one.number - 1]
                        < time + waiting.least):
                    break
            else:
                return True
        return False
