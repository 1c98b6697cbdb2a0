# SPDX-License-Identifier: Apache-2.0

"""Largest sets of elements without an order between any two.

Operations without dependencies between them may run at the same time.  This
is a part of the checker, which shares no code with the decisions.
"""

from collections import deque
from collections.abc import Callable, Sequence
import typing

T = typing.TypeVar('T')


def heaviest_antichain(weights: Sequence[int],
                       precedes: Callable[[int, int], bool]) -> int:
    """Return the largest total weight of unordered elements.

    It equals the least number of chains that cover each element as often as
    its weight says (Dilworth 1950), which a maximum flow yields.

    :param weights: weights of elements, which are numbered from 0
    :param precedes: strict order of elements by their numbers; transitive
    """
    elements = range(len(weights))
    after = [[other for other in elements if precedes(one, other)]
             for one in elements]
    # Each unit of flow links an element to the next one of its chain.
    last, first = list(weights), list(weights)
    flow: list[dict[int, int]] = [{} for _one in elements]
    for one in elements:
        for other in after[one]:
            amount = min(last[one], first[other])
            if amount:
                flow[other][one] = amount
                last[one] -= amount
                first[other] -= amount
    while path := _augmenting_path(after, last, first, flow):
        amount = min(last[path[0]], first[path[-1]], *(
            flow[path[step]][path[step + 1]]
            for step in range(1, len(path) - 1, 2)))
        last[path[0]] -= amount
        first[path[-1]] -= amount
        for step in range(0, len(path), 2):
            one, other = path[step], path[step + 1]
            flow[other][one] = flow[other].get(one, 0) + amount
            if step:
                flow[path[step - 1]][one] -= amount
    return sum(last)


def _augmenting_path(after: Sequence[Sequence[int]], last: Sequence[int],
                     first: Sequence[int], flow: Sequence[dict[int, int]]
                     ) -> list[int]:
    """Return a shortest path of links to add and to remove, in turns.

    It has an element, its new successor, a former predecessor of that one,
    its new successor, and so on.  An empty one means that there is none.
    """
    # Successors found, with the predecessors by which they were found.
    found: dict[int, int] = {}
    reached: dict[int, int | None] = {
        one: None for one, left in enumerate(last) if left}
    ready = deque(reached)
    while ready:
        one = ready.popleft()
        for other in after[one]:
            if other in found:
                continue
            found[other] = one
            if first[other]:
                return _trace(other, found, reached)
            for former, amount in flow[other].items():
                if amount and former not in reached:
                    reached[former] = other
                    ready.append(former)
    return []


def _trace(end: int, found: dict[int, int], reached: dict[int, int | None]
           ) -> list[int]:
    path = []
    other: int | None = end
    while other is not None:
        path += [other, found[other]]
        other = reached[found[other]]
    return path[::-1]


def count_chains(elements: Sequence[T], precedes: Callable[[T, T], bool]
                 ) -> int:
    """Return an upper bound of the number of unordered elements.

    It is the number of chains that are found one element at a time.

    :param elements: each after those that precede it
    """
    ends: list[T] = []
    for one in elements:
        for place in range(len(ends) - 1, -1, -1):
            if precedes(ends[place], one):
                ends.append(ends.pop(place))
                ends[-1] = one
                break
        else:
            ends.append(one)
    return len(ends)
