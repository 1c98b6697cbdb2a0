# SPDX-License-Identifier: Apache-2.0

"""Dependencies between the operations of a plan, direct and indirect.

This is a part of the checker, which shares no code with the decisions.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence

from secondary_scheduler.plans.operations import Operation, Plan


def sort_by_dependencies(plan: Plan) -> list[Operation]:
    """Return the operations, each after those that it waits for.

    Operations on a cycle, and those after one, are left out.
    """
    waits = {one.id: len(set(one.after)) for one in plan.operations}
    followers = defaultdict(list)
    for one in plan.operations:
        for other in set(one.after):
            followers[other].append(one)
    ready = deque(one for one in plan.operations if not waits[one.id])
    order = []
    while ready:
        order.append(ready.popleft())
        for one in followers[order[-1].id]:
            waits[one.id] -= 1
            if not waits[one.id]:
                ready.append(one)
    return order


class Reachability:
    """Operations that must have ended before others start.

    They are bit sets of numbers within a component, which is a set of
    operations that depend on each other or on a common one.  So the size of a
    set is that of the component.

    :param order: operations without cycles, each after those it waits for
    """

    def __init__(self, order: Sequence[Operation]) -> None:
        self.order = order
        self._component = _components(order)
        self._bit: dict[int, int] = {}
        self._before: dict[int, int] = {}
        numbers: Counter[int] = Counter()
        for one in order:
            component = self._component[one.id]
            self._bit[one.id] = 1 << numbers[component]
            numbers[component] += 1
            before = 0
            for other in one.after:
                before |= self._before[other] | self._bit[other]
            self._before[one.id] = before

    def precedes(self, one: Operation | None, other: Operation | None
                 ) -> bool:
        """Return whether one operation must end before the other starts.

        None stands for an operation that never ends or has long started, so
        the result is False.
        """
        return (one is not None and other is not None
                and self._component[one.id] == self._component[other.id]
                and bool(self._before[other.id] & self._bit[one.id]))

    def locate(self, one: Operation) -> tuple[int, int]:
        """Return the component of an operation, and its bit there."""
        return self._component[one.id], self._bit[one.id]

    def before(self, one: Operation) -> int:
        """Return the operations that must end before, as bits.

        They are all in the component of the operation.
        """
        return self._before[one.id]

    def wait_alike(self, one: Operation, other: Operation) -> bool:
        """Return whether two operations wait for the same ones."""
        before = self._before[one.id]
        return before == self._before[other.id] and (
            not before
            or self._component[one.id] == self._component[other.id])


def _components(order: Sequence[Operation]) -> dict[int, int]:
    """Return a number of the component of each operation."""
    parent = {one.id: one.id for one in order}

    def root(one: int) -> int:
        while parent[one] != one:
            parent[one] = one = parent[parent[one]]
        return one

    for operation in order:
        for other in operation.after:
            parent[root(other)] = root(operation.id)
    return {one: root(one) for one in parent}
