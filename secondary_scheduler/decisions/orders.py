# SPDX-License-Identifier: Apache-2.0

"""Search for an order of tasks that needs no bypass.

A pool takes all tasks that are feasible, and so may take room that another
task needs first.  Where this ends in a cycle, the search tries other orders.
It is exhaustive for a few tasks, and gives up after a number of steps.
"""

from collections.abc import Sequence

from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.tasks import Order, Task

#: Most tasks that are tested for room in one search.
_MOST_TESTS = 20_000
#: Most tasks of one search.
_MOST_TASKS = 60


def find_order(free: FreeRoom, tasks: Sequence[Task]) -> list[Order] | None:
    """Return an order in which all tasks are feasible one after another.

    :param free: room before the first task; it is the same afterwards
    :returns: the orders of tasks, which identify them; None if no order was
        found
    """
    steps = [*tasks, *(one for task in tasks for one in task.then)]
    if len(steps) > _MOST_TASKS:
        return None
    return _OrderSearch(free, steps).run()


class _OrderSearch:
    """Depth-first search over sets of tasks that are done.

    A task is *harmless* if all pending tasks of its hosts have room there at
    once.  It is done immediately, since that blocks none of them.
    """

    def __init__(self, free: FreeRoom, steps: list[Task]) -> None:
        self.free = free
        self.steps = steps
        self.wanted: dict[str, list[int]] = {}
        number_of = {one: number for number, one in enumerate(steps)}
        self.parents = {number_of[one]: number_of[task]
                        for task in steps for one in task.then}
        self.pending = dict.fromkeys(range(len(steps)))
        self.done: list[int] = []
        self.seen: set[frozenset[int]] = set()
        self.tests = 0
        for task in steps:
            for host, amounts in task.takes:
                wanted = self.wanted.setdefault(host, [0] * len(amounts))
                _add(wanted, amounts, 1)

    def run(self) -> list[Order] | None:
        found = self._search()
        orders = [self.steps[number].order for number in self.done]
        while self.done:
            self._undo()
        return orders if found else None

    def _search(self) -> bool:
        """Do all pending tasks, or none of them."""
        begun = len(self.done)
        self._do_harmless()
        if not self.pending:
            return True
        state = frozenset(self.pending)
        if state not in self.seen and self.tests < _MOST_TESTS:
            self.seen.add(state)
            for number in list(self.pending):
                if self._fits(number):
                    self._do(number)
                    if self._search():
                        return True
                    self._undo()
        while len(self.done) > begun:
            self._undo()
        return False

    def _do_harmless(self) -> None:
        again = True
        while again:
            again = False
            for number in list(self.pending):
                if self._fits(number) and all(
                        self.free.fits(host, tuple(self.wanted[host]))
                        for host, _ in self.steps[number].takes):
                    self._do(number)
                    again = True

    def _fits(self, number: int) -> bool:
        self.tests += 1
        return self.parents.get(number) not in self.pending and all(
            self.free.fits(host, amounts)
            for host, amounts in self.steps[number].takes)

    def _do(self, number: int) -> None:
        del self.pending[number]
        self.done.append(number)
        task = self.steps[number]
        for host, amounts in task.takes:
            self.free.take(host, amounts)
            _add(self.wanted[host], amounts, -1)
        for host, amounts in task.gives:
            self.free.give(host, amounts)

    def _undo(self) -> None:
        number = self.done.pop()
        self.pending[number] = None
        task = self.steps[number]
        for host, amounts in task.takes:
            self.free.give(host, amounts)
            _add(self.wanted[host], amounts, 1)
        for host, amounts in task.gives:
            self.free.take(host, amounts)


def _add(total: list[int], amounts: Sequence[int], sign: int) -> None:
    for number, amount in enumerate(amounts):
        total[number] += sign * amount
