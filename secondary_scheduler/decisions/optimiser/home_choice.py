# SPDX-License-Identifier: Apache-2.0

"""Cheapest choice of the runners that stay at home, for one host.

Each host is a small knapsack of its own.  The cost of a runner that is away
from home does not depend on its new host, so the cheapest choices of all hosts
together are a lower bound of each switch (:mod:`.bounds`), and their runners
at home are the beginning of a good configuration (:mod:`.local_search`).
"""

from collections.abc import Mapping, Sequence
import typing

from secondary_scheduler.decisions.optimiser.problem import RunnerClass
from secondary_scheduler.model.configuration import Amounts, MemberState

#: Examined choices for one host; hosts that need more get a relaxed bound.
MOST_NODES = 3000


class Option(typing.NamedTuple):
    """Fate of a runner as its home host sees it.

    :param cost: added to the cost of the switch
    :param at_home: it is at home in the end and needs room there then
    :param at_start: it resumes at home in the first pool that copies memory,
        and needs room there at the start
    """

    cost: int
    at_home: bool
    at_start: bool

    def needed_early(self, one: RunnerClass) -> Amounts:
        """Return the room at home that a runner needs at the start."""
        return one.arrival if self.at_home else one.transit


class HomeChoice(typing.NamedTuple):
    """Choice of one option for each runner at home on a host.

    :param chosen: number of runners of each class with each option
    :param bound: no choice costs less
    """

    chosen: tuple[tuple[RunnerClass, Option, int], ...]
    cost: int
    bound: int


def memory_options(one: RunnerClass) -> tuple[Option, ...]:
    """Return options that cost the memory moved besides the fixed part."""
    return _with_home(one, [Option(0, True, False)],
                      [Option(one.memory_mb, False, False)])


def cost_options(one: RunnerClass, price: int, most: int, *,
                 in_place: bool) -> tuple[Option, ...]:
    """Return options that cost the plan cost besides the fixed part.

    :param price: cost of the first pool that copies memory, which each later
        operation pays at least (Hermenier 2009, section 4.2)
    :param most: operations that copy more are in a later pool
    :param in_place: suspended members resume on their own host only
    """
    memory = one.memory_mb
    late = memory > most
    if one.state is MemberState.RUNNING:
        return _with_home(one, [Option(0, True, False)], [
            Option(memory + price * late, False, False)])
    home = [] if late else [Option(0, True, True)]
    home.append(Option(price, True, False))
    if in_place:
        # The migration waits at least for the pool of the resume.
        away = [] if late else [Option(memory + price, False, True)]
        away.append(Option(2 * memory + 2 * price, False, False))
    else:
        away = [Option(memory + price * (2 * memory > most), False, False)]
    return _with_home(one, home, away)


def _with_home(one: RunnerClass, home: list[Option],
               away: list[Option]) -> tuple[Option, ...]:
    """Return useful options by cost; the last may always be chosen."""
    if one.home is None:
        home = []
    if not one.movable:
        return tuple(sorted(home))
    # A home dearer than a way that needs no room at all is never chosen.
    free = min((option.cost for option in away if not option.at_start),
               default=0)
    return tuple(sorted(
        [option for option in home if option.cost < free
         or (option.cost == free and not option.at_start
             and one.state is MemberState.RUNNING)] + away,
        key=lambda option: (option.cost, not option.at_home)))


def choose_homes(classes: Mapping[RunnerClass, int],
                 options: Mapping[RunnerClass, tuple[Option, ...]],
                 final_free: Sequence[int],
                 start_free: Sequence[int]) -> HomeChoice:
    """Return the cheapest choice for the runners of one host.

    :param classes: number of runners of each class at home there
    :param options: options of each class by cost
    :param final_free: room for runners at the end
    :param start_free: room at the start of the switch
    """
    if not classes:
        return HomeChoice((), 0, 0)
    best = _all_cheapest(classes, options, final_free, start_free)
    if best is not None:
        return best
    search = _HomeSearch(classes, options, final_free, start_free)
    return search.run()


def _all_cheapest(classes: Mapping[RunnerClass, int],
                  options: Mapping[RunnerClass, tuple[Option, ...]],
                  final_free: Sequence[int],
                  start_free: Sequence[int]) -> HomeChoice | None:
    """Return the choice of the cheapest options if the host has room."""
    final = [0] * len(final_free)
    start = [0] * len(start_free)
    cost = 0
    chosen = []
    for one, count in classes.items():
        option = options[one][0]
        chosen.append((one, option, count))
        cost += count * option.cost
        if option.at_home:
            for number, amount in enumerate(one.demand):
                final[number] += count * amount
        if option.at_start:
            for number, amount in enumerate(option.needed_early(one)):
                start[number] += count * amount
    if _fits(final, final_free) and _fits(start, start_free):
        return HomeChoice(tuple(chosen), cost, cost)
    return None


def _fits(needed: Sequence[int], free: Sequence[int]) -> bool:
    """Return whether room suffices; zero fits on overloaded hosts too."""
    return all(amount == 0 or amount <= most
               for amount, most in zip(needed, free, strict=True))


class _HomeSearch:
    """Depth-first branch and bound over the runners of one host."""

    def __init__(self, classes: Mapping[RunnerClass, int],
                 options: Mapping[RunnerClass, tuple[Option, ...]],
                 final_free: Sequence[int],
                 start_free: Sequence[int]) -> None:
        order = sorted(classes, key=lambda one: (
            one.movable, options[one][0].cost - options[one][-1].cost,
            [-amount for amount in one.demand]))
        self.units = [one for one in order for _ in range(classes[one])]
        self.options = options
        self.final_free = tuple(final_free)
        self.start_free = tuple(start_free)
        self.rest = [0] * (len(self.units) + 1)
        for number in range(len(self.units) - 1, -1, -1):
            self.rest[number] = (self.rest[number + 1]
                                 + options[self.units[number]][0].cost)
        self.nodes = 0
        self.best_cost: int | None = None
        self.best: list[int] = []
        self.path: list[int] = []

    def run(self) -> HomeChoice:
        """Return the best choice found and a bound of all choices."""
        if self._has_room_for_immovable():
            self._descend(0, 0, self.final_free, self.start_free)
        relaxed = self._relaxed()
        if self.best_cost is None:
            # Immovable runners overload the host; the caller finds that no
            # configuration exists.
            self.best = [len(self.options[one]) - 1 for one in self.units]
            self.best_cost = sum(
                self.options[one][-1].cost for one in self.units)
            return HomeChoice(self._chosen(), self.best_cost, relaxed)
        exact = self.nodes < MOST_NODES
        return HomeChoice(self._chosen(), self.best_cost,
                          self.best_cost if exact else relaxed)

    def _has_room_for_immovable(self) -> bool:
        """Return whether all immovable runners fit in the end."""
        return _fits([sum(one.demand[number] for one in self.units
                          if not one.movable)
                      for number in range(len(self.final_free))],
                     self.final_free)

    def _chosen(self) -> tuple[tuple[RunnerClass, Option, int], ...]:
        counts: dict[tuple[RunnerClass, Option], int] = {}
        for one, number in zip(self.units, self.best, strict=True):
            key = one, self.options[one][number]
            counts[key] = counts.get(key, 0) + 1
        return tuple((one, option, count)
                     for (one, option), count in counts.items())

    def _descend(self, depth: int, cost: int, final: tuple[int, ...],
                 start: tuple[int, ...]) -> None:
        if (self.best_cost is not None
                and cost + self.rest[depth] >= self.best_cost):
            return
        if depth == len(self.units):
            self.best_cost = cost
            self.best = list(self.path)
            return
        self.nodes += 1
        if self.nodes >= MOST_NODES and self.best_cost is not None:
            return
        one = self.units[depth]
        same = depth > 0 and self.units[depth - 1] == one
        options = self.options[one]
        for number in range(self.path[-1] if same else 0, len(options)):
            option = options[number]
            next_final, next_start = final, start
            if option.at_home:
                if not _fits(one.demand, final):
                    continue
                next_final = _less(final, one.demand)
            if option.at_start:
                if not _fits(option.needed_early(one), start):
                    continue
                next_start = _less(start, option.needed_early(one))
            self.path.append(number)
            self._descend(depth + 1, cost + option.cost, next_final,
                          next_start)
            self.path.pop()

    def _relaxed(self) -> int:
        """Return the bound of the relaxation to one dimension at a time.

        The room at the start counts for nothing, and a runner may be at home
        in part (Dantzig 1957).
        """
        best = self.rest[0]
        for number, room in enumerate(self.final_free):
            total = 0
            savings = []
            for one in self.units:
                options = self.options[one]
                home = min((option.cost for option in options
                            if option.at_home), default=None)
                away = min((option.cost for option in options
                            if not option.at_home), default=None)
                if away is None or home is None or home >= away:
                    total += min(option.cost for option in options)
                    continue
                total += away
                savings.append((away - home, one.demand[number]))
            savings.sort(key=lambda pair: -pair[0] / (pair[1] or 1e-9))
            left = max(0, room)
            saved = 0.0
            for saving, weight in savings:
                part = min(1.0, left / weight) if weight else 1.0
                saved += part * saving
                left -= int(part * weight)
            # One unit more than the float says keeps the bound below.
            best = max(best, total - int(saved + 1))
        return best


def _less(free: tuple[int, ...], amounts: Amounts) -> tuple[int, ...]:
    return tuple(left - amount
                 for left, amount in zip(free, amounts, strict=True))
