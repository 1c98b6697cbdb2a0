# SPDX-License-Identifier: Apache-2.0

"""Value of a configuration: that of the switch which sequencing makes."""

from collections.abc import Callable
import typing

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.optimiser.problem import SwitchProblem
from secondary_scheduler.decisions.sequencing import sequence
from secondary_scheduler.model.configuration import (
    Configuration,
    Pool,
    Switch,
)

#: Value of a sequence of pools for an objective.
Measure = Callable[[tuple[Pool, ...]], float]


class Evaluated(typing.NamedTuple):
    """Switch to a target configuration, and its value.

    :param is_equivalent: the switch ends in a viable configuration with the
        states of the sample
    """

    target: Configuration
    switch: Switch
    value: float
    is_equivalent: bool


class Evaluator:
    """Sequences targets within a budget and keeps the best of them.

    A switch counts as many work units as there are members to place.

    :ivar best: the best switch so far; an equivalent one is always better
        than another
    """

    def __init__(self, problem: SwitchProblem, measure: Measure,
                 budget: Budget) -> None:
        self._problem = problem
        self._measure = measure
        self._budget = budget
        self._seen: set[tuple[str | None, ...]] = set()
        self.best: Evaluated | None = None

    def try_target(self, target: Configuration) -> Evaluated | None:
        """Sequence a target, unless that was done or the budget is spent.

        The first target is sequenced with any budget.
        """
        key = tuple(target.members[name].host
                    for name in self._problem.runners)
        if key in self._seen or not self._pay():
            return None
        self._seen.add(key)
        found = self.evaluate(target)
        best = self.best
        if best is None or (not found.is_equivalent, found.value) < (
                not best.is_equivalent, best.value):
            self.best = found
        return found

    def is_optimal(self, bound: float) -> bool:
        """Return whether the best switch has the value of a bound."""
        best = self.best
        return (best is not None and best.is_equivalent
                and best.value <= bound)

    def evaluate(self, target: Configuration) -> Evaluated:
        """Return the switch to a target and its value."""
        switch = sequence(self._problem.current, target)
        reached = switch.reached
        members = self._problem.sample.members
        equivalent = all(
            one.state is members[name].state
            for name, one in reached.members.items()
        ) and reached.is_viable() and self._keeps_constraints(reached)
        return Evaluated(reached if equivalent else target, switch,
                         self._measure(switch.pools), equivalent)

    def _keeps_constraints(self, reached: Configuration) -> bool:
        """Return whether no constraint is broken anew."""
        constraints = self._problem.current.constraints
        if not constraints:
            return True
        before, after = (
            {name: (member.host,) for name, member in one.members.items()
             if member.host is not None and member.held is not None}
            for one in (self._problem.current, reached))
        return all(one.broken(after) <= one.broken(before)
                   for one in constraints)

    def _pay(self) -> bool:
        price = len(self._problem.runners)
        if self.best is not None and self._budget.units < price:
            self._budget.truncated = True
            return False
        self._budget.units = max(0, self._budget.units - price)
        return True
