# SPDX-License-Identifier: Apache-2.0

"""Lower bounds of every switch to the states of a sample.

A bound speaks of each sequence of pools with these properties:

* it starts at the current configuration and ends in a viable one with the
  states of the sample;
* each pool is feasible at its start, with both ends of its operations charged
  (Hermenier 2009, section 4.1);
* suspends and deletes of the sample are in the first pool, since these are
  always feasible.

*Memory moved.*  Suspends and resumes are the same in each switch.  A runner
away from home in the end was migrated, or resumed elsewhere, and copied its
memory once more.  The runners at home fit there together in the end, so each
host is a knapsack of its own, and the sum of their optima is a bound.  Other
operations, such as those of a bypass, only add memory.

*Plan cost.*  Let P be the cost of the first pool that copies memory.  Each
operation in a later pool pays its own memory and at least P more.  All
operations up to this pool fit into the room at the start together, or into the
room of deleted members, since only deletes, boots and copies of nothing come
before it.  An operation that copies more than P is in a later pool.  So for a
given P each runner has a least cost by its fate at home, and each host is a
knapsack again.  Runners that find no room at the start on any host pay P too.
The bound is the least over all possible P.

*Span.*  The longest operation is in one of the pools.  The runners that cost
more than T away from home have to fit at home; the least such T is a bound.
"""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import functools

from secondary_scheduler.decisions.optimiser.home_choice import (
    HomeChoice,
    Option,
    choose_homes,
    cost_options,
    memory_options,
)
from secondary_scheduler.decisions.optimiser.problem import (
    RunnerClass,
    SwitchProblem,
)
from secondary_scheduler.model.configuration import MemberState, Move, Pool
from secondary_scheduler.model.operation_kinds import OperationKind

#: Most prices of the first pool that are told apart.
MOST_PRICES = 12


@dataclasses.dataclass(frozen=True)
class HomeChoices:
    """Cheapest choices of all hosts together.

    :param price: least cost of the first pool for which these are the
        cheapest, 0 where waiting costs nothing
    :param most: greatest cost of the first pool
    :param bound: no switch at this price costs less
    """

    price: int
    most: int
    hosts: tuple[HomeChoice, ...]
    bound: int

    @functools.cached_property
    def settled(self) -> tuple[bool, ...]:
        """Whether all runners of a host run there and stay.

        That choice is the cheapest at every price.
        """
        return tuple(all(
            option.at_home and one.state is MemberState.RUNNING
            for one, option, _count in choice.chosen)
            for choice in self.hosts)


def memory_choices(problem: SwitchProblem) -> HomeChoices:
    """Return the choices that move the least memory."""
    return _choose(problem, 0, -1, memory_options, problem.start_free)


def cost_choices(problem: SwitchProblem, memory: HomeChoices
                 ) -> list[HomeChoices]:
    """Return the cheapest choices for each price, those of least bound first.

    The least of their bounds is a bound of the plan cost.

    :param memory: the choices that move the least memory
    """
    start = early_room(problem)
    late = count_late(problem, start)
    found = []
    for price, most in _prices(problem):
        choices = _choose(problem, price, most, functools.partial(
            cost_options, price=price, most=most,
            in_place=problem.current.resumes_in_place), start, memory)
        found.append(dataclasses.replace(choices, bound=max(
            choices.bound, memory.bound + price * late)))
    return sorted(found, key=lambda one: one.bound)


def span_choices(problem: SwitchProblem) -> HomeChoices:
    """Return the choices with the fewest operations above the span's bound.

    Each operation in a later pool, or above the bound, costs more than all
    memory together.
    """
    most = span_bound(problem)
    price = 1 + 2 * sum(one.memory_mb * count
                        for one, count in problem.class_counts.items())
    return _choose(problem, price, most, functools.partial(
        cost_options, price=price, most=most,
        in_place=problem.current.resumes_in_place), early_room(problem))


def early_room(problem: SwitchProblem) -> list[tuple[int, ...]]:
    """Return the room of all pools up to the first that copies memory.

    Runners whose claim is larger than their demand free the difference when
    they resume.
    """
    room = [list(free) for free in problem.start_free]
    if not any(problem.suspended_mb):
        for free, removed in zip(room, problem.removed, strict=True):
            free[:] = map(sum, zip(free, removed, strict=True))
    for free, classes in zip(room, problem.at_home, strict=True):
        for one, count in classes.items():
            for number, (claim, demand) in enumerate(
                    zip(one.claim, one.demand, strict=True)):
                free[number] += count * max(0, claim - demand)
    return [tuple(free) for free in room]


def count_late(problem: SwitchProblem,
               start: Sequence[Sequence[int]]) -> int:
    """Return a number of runners that have no room at the start.

    The smallest arrivals are counted against the room of all open hosts.
    """
    arrivals = [one.arrival for one in problem.classes
                if one.state is not MemberState.RUNNING]
    most = 0
    for number in range(len(problem.current.dimensions)):
        room = sum(max(0, free[number]) for free in start)
        fitting = 0
        for amount in sorted(arrival[number] for arrival in arrivals):
            if amount > room:
                break
            room -= amount
            fitting += 1
        most = max(most, len(arrivals) - fitting)
    return most


def span_bound(problem: SwitchProblem) -> int:
    """Return a bound of the sum over pools of their longest operation."""
    thresholds = [max(problem.suspended_mb, default=0), max(
        (one.memory_mb if one.home is not None else _away_mb(one)
         for one in problem.classes
         if one.state is MemberState.SUSPENDED), default=0)]
    for classes, free in zip(problem.at_home, problem.final_free,
                             strict=True):
        used = [0] * len(free)
        for cost, one in sorted(
                ((_away_mb(one), one) for one in classes),
                key=lambda pair: -pair[0]):
            used = [amount + classes[one] * more for amount, more in zip(
                used, one.demand, strict=True)]
            if any(0 < amount > most
                   for amount, most in zip(used, free, strict=True)):
                thresholds.append(cost)
                break
    return max(thresholds)


def _away_mb(one: RunnerClass) -> int:
    """Return the least span of a switch that takes the runner from home.

    In place, the resume and the migration after it are in two pools.
    """
    return one.memory_mb * (2 if one.state is MemberState.SUSPENDED else 1)


def time_bound(problem: SwitchProblem,
               time_of: Callable[[tuple[Pool, ...]], float]) -> float:
    """Return a bound of the predicted time: the longest operation.

    Only operations of each equivalent switch count: suspends, and resumes at
    home.
    """
    return max((time_of(((move,),)) for move in _certain_moves(problem)),
               default=0.0)


def _certain_moves(problem: SwitchProblem) -> Iterable[Move]:
    for name, member in problem.current.members.items():
        wanted = problem.sample.members[name].state
        if (member.state is MemberState.RUNNING
                and wanted is MemberState.SUSPENDED):
            yield Move(OperationKind.SUSPEND, name, member.lease, member.host,
                       None, member.memory_mb)
        elif (member.state is MemberState.SUSPENDED
              and wanted is MemberState.RUNNING):
            yield Move(OperationKind.RESUME, name, member.lease, member.host,
                       member.host, member.memory_mb)


def _choose(problem: SwitchProblem, price: int, most: int,
            options_of: Callable[[RunnerClass], tuple[Option, ...]],
            start: Sequence[Sequence[int]],
            known: HomeChoices | None = None) -> HomeChoices:
    """Return the cheapest choices of all hosts.

    Resumed runners without a home that they may run on are away.

    :param options_of: returns the options of runners by all that they depend
        on: state, memory, and whether they have a home or may leave it
    :param known: choices at another price
    """
    of_kind: dict[object, tuple[Option, ...]] = {}
    options = {}
    for one in problem.class_counts:
        if one.state is not MemberState.WAITING:
            kind = (one.state, one.memory_mb, one.home is None, one.movable)
            if kind not in of_kind:
                of_kind[kind] = options_of(one)
            options[one] = of_kind[kind]
    bound = problem.fixed_mb + sum(
        count * options[one][0].cost
        for one, count in problem.class_counts.items()
        if one.home is None and options.get(one))
    found = []
    for number, classes in enumerate(problem.at_home):
        choice = (known.hosts[number]
                  if known is not None and known.settled[number]
                  else choose_homes(classes, options,
                                    problem.final_free[number],
                                    start[number]))
        bound += choice.bound
        found.append(choice)
    return HomeChoices(price, most, tuple(found), bound)


def _prices(problem: SwitchProblem) -> list[tuple[int, int]]:
    """Return the possible costs of the first pool that copies memory.

    Of many possible costs several make one interval, from its least to its
    greatest cost: operations pay the one, and are late above the other.
    """
    least = max(problem.suspended_mb, default=0)
    moving = [one for one in problem.class_counts
              if one.state is not MemberState.WAITING]
    possible = {one.memory_mb for one in moving} | {least}
    if not problem.current.resumes_in_place:
        possible |= {2 * one.memory_mb for one in moving
                     if one.state is MemberState.SUSPENDED}
    if (least == 0 and len(possible) > 1
            and all(one.memory_mb for one in moving)):
        possible.remove(0)
    prices = sorted(price for price in possible if price >= least)
    size = -(-len(prices) // MOST_PRICES)
    return [(prices[first], prices[min(first + size, len(prices)) - 1])
            for first in range(0, len(prices), size)]
