# SPDX-License-Identifier: Apache-2.0

"""Value of a configuration: that of the switch which sequencing makes."""

from collections.abc import Callable, Collection
import typing

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.optimiser.problem import SwitchProblem
from secondary_scheduler.decisions.sequencing import sequence
from secondary_scheduler.decisions.tasks import apply_moves
from secondary_scheduler.estimation.switch_costs import local_cost
from secondary_scheduler.model.configuration import (
    Configuration,
    Pool,
    Switch,
    natural_key,
)

#: Value of a sequence of pools for an objective.
Measure = Callable[[tuple[Pool, ...]], float]


class Evaluated(typing.NamedTuple):
    """Switch to a target configuration, and its value.

    :param is_equivalent: the switch ends in a viable configuration with the
        states of the sample, and breaks no constraint anew
    :param left: leases with members that do not reach their state
    :param broken: constraints that are broken in the end
    """

    target: Configuration
    switch: Switch
    value: float
    is_equivalent: bool
    left: tuple[str, ...] = ()
    broken: int = 0

    @property
    def rank(self) -> tuple[bool, int, int, float]:
        """Rank among several switches, the best one first.

        A switch that repairs a constraint is better than a cheaper one.
        """
        return (not self.is_equivalent, len(self.left), self.broken,
                self.value)


class Evaluator:
    """Sequences targets within a budget and keeps the best of them.

    A switch counts as many work units as there are members to place.

    :ivar best: the best switch so far; an equivalent one is always better
        than another
    :ivar tried: number of switches
    """

    def __init__(self, problem: SwitchProblem, measure: Measure,
                 budget: Budget) -> None:
        self._problem = problem
        self._measure = measure
        self._budget = budget
        self._broken = self._list_broken(problem.current)
        self._seen: set[tuple[str | None, ...]] = set()
        self.best: Evaluated | None = None
        self.tried = 0

    def try_target(self, target: Configuration,
                   late: Collection[str] = ()) -> Evaluated | None:
        """Sequence a target, unless that was done or the budget is spent.

        The first target is sequenced with any budget.

        :param late: members that do not move in stage one
        """
        key = (*(target.members[name].host for name in self._problem.runners),
               *sorted(late))
        if key in self._seen or not self._pay():
            return None
        self._seen.add(key)
        self.tried += 1
        found = self.evaluate(target, late)
        if self.best is None or found.rank < self.best.rank:
            self.best = found
        return found

    @property
    def is_equivalent(self) -> bool:
        """Whether the best switch reaches the states of the sample."""
        return self.best is not None and self.best.is_equivalent

    def is_optimal(self, bound: float) -> bool:
        """Return whether the best switch has the value of a bound."""
        best = self.best
        return (best is not None and best.is_equivalent
                and best.value <= bound)

    def evaluate(self, target: Configuration,
                 late: Collection[str] = ()) -> Evaluated:
        """Return the switch to a target and its value.

        :param late: members that do not move in stage one
        """
        switch = (self._sequence_stages(target, late) if late
                  else sequence(self._problem.current, target))
        reached = switch.reached
        members = self._problem.sample.members
        left = {one.lease for name, one in reached.members.items()
                if one.state is not members[name].state}
        broken = self._list_broken(reached)
        equivalent = (not left and self._problem.has_room(reached)
                      and broken <= self._broken)
        return Evaluated(reached if equivalent else target, switch,
                         self._measure(switch.pools), equivalent,
                         tuple(sorted(left, key=natural_key)), len(broken))

    def _sequence_stages(self, target: Configuration, late: Collection[str]
                         ) -> Switch:
        """Return a switch in two parts, the first without some members.

        The first part ends with the first pool that copies memory.
        """
        current = self._problem.current
        members = dict(current.members)
        pools: list[Pool] = []
        for pool in sequence(current, target.with_members(
                current.members[name] for name in late)).pools:
            pools.append(pool)
            members |= {one.name: one for one in apply_moves(members, pool)}
            if any(map(local_cost, pool)):
                break
        after = sequence(current.with_members(
            members[move.member] for pool in pools for move in pool), target)
        return Switch((*pools, *after.pools), after.reached, after.kept)

    def _list_broken(self, configuration: Configuration) -> set[str]:
        """Return descriptions of all broken constraints."""
        constraints = self._problem.current.constraints
        if not constraints:
            return set()
        hosts = {name: (member.host,)
                 for name, member in configuration.members.items()
                 if member.host is not None and member.held is not None}
        return set().union(*(one.broken(hosts) for one in constraints))

    def _pay(self) -> bool:
        price = len(self._problem.runners)
        if self.best is not None and self._budget.units < price:
            self._budget.truncated = True
            return False
        self._budget.units = max(0, self._budget.units - price)
        return True
