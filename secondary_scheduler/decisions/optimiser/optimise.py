# SPDX-License-Identifier: Apache-2.0

"""The cheapest equivalent reconfiguration, at any time within a budget."""

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import typing

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.optimiser import bounds
from secondary_scheduler.decisions.optimiser.conflicts import find_conflict
from secondary_scheduler.decisions.optimiser.evaluation import (
    Evaluated,
    Evaluator,
    Measure,
)
from secondary_scheduler.decisions.optimiser.local_search import (
    assign_runners,
    spread_boots,
)
from secondary_scheduler.decisions.optimiser.problem import (
    SwitchProblem,
    build_problem,
)
from secondary_scheduler.decisions.optimiser.refinement import (
    refine,
    refine_span,
)
from secondary_scheduler.decisions.optimiser.solver import SolverMissingError
from secondary_scheduler.decisions.packing import PackingError, sticky_target
from secondary_scheduler.estimation.switch_costs import (
    memory_moved,
    plan_cost,
    plan_span,
)
from secondary_scheduler.estimation.switch_times import pools_s
from secondary_scheduler.model.configuration import (
    Configuration,
    MemberState,
    Move,
    Switch,
    natural_key,
)

Status = typing.Literal[
    'nothing_to_do', 'optimal', 'within', 'feasible', 'infeasible']

#: Values of a switch that depend on its pools only.
MEASURES: Mapping[str, Measure] = {
    'cost': plan_cost, 'span': plan_span, 'memory': memory_moved}
#: Objectives that the solver has a bound of.
SOLVED = ('cost', 'memory')
#: Most switches that leave leases as they are before these are given up.
MOST_REFUSED = 2
#: Most candidates that are built from bounds.
MOST_CANDIDATES = 4


@dataclasses.dataclass(frozen=True)
class Optimised:
    """Result of an optimisation.

    :param target: the configuration that the switch reaches
    :param value: value of the switch for the objective
    :param bound: no equivalent switch that suspends first has a smaller value
    :param status: ``nothing_to_do`` if all members are as wanted;
        ``optimal`` if the value is the bound; ``within`` if the bound tells
        how good the value is; ``feasible`` if it does not; ``infeasible`` if
        no configuration with the states of the sample was found
    :param conflict: leases and hosts that exclude each other
    :param solver_missing: a solver was wanted and is not installed
    :param left: leases that no switch was found for; they remain as they are,
        and all other values are those of a sample without them
    """

    target: Configuration
    switch: Switch
    value: float
    bound: float
    status: Status
    conflict: tuple[str, ...] = ()
    solver_missing: bool = False
    left: tuple[str, ...] = ()

    @property
    def percent(self) -> float | None:
        """Largest distance to the best value, in percent of the bound.

        None if the bound is 0 and the value is not.
        """
        if self.value <= self.bound:
            return 0.0
        if self.bound <= 0:
            return None
        return 100 * (self.value - self.bound) / self.bound


def optimise(current: Configuration, sample: Configuration, objective: str,
             budget: Budget,
             seconds: Callable[[Move], float] | None = None) -> Optimised:
    """Return a cheap switch to the states of a sample.

    The same input gives the same result.

    :param current: the configuration now
    :param sample: the same members in the states that are wanted; its hosts
        are one candidate
    :param objective: ``cost``, ``span``, ``memory`` or ``time``
    :param budget: work units to spend; a switch results from any budget
    :param seconds: duration of an operation, for the objective ``time``
    :raises ValueError: an objective is unknown, or ``time`` without seconds
    """
    measure = measure_of(objective, seconds)
    left: list[str] = []
    while True:
        found, best = _improve(current, sample, objective, measure, budget)
        new = [] if best is None or best.is_equivalent else [
            lease for lease in best.left if lease not in left]
        if not new:
            return dataclasses.replace(found, left=tuple(
                sorted(left, key=natural_key)))
        left += new
        sample = sample.with_members(
            current.members[one.name] for lease in new
            for one in sample.leases[lease])


def _improve(current: Configuration, sample: Configuration, objective: str,
             measure: Measure, budget: Budget
             ) -> tuple[Optimised, Evaluated | None]:
    """Return the best switch to the states of a sample, if one is found."""
    problem = build_problem(current, sample)
    evaluator = Evaluator(problem, measure, budget)
    choices = _choices(problem, objective)
    bound = _bound(problem, objective, measure, choices)
    for target in _candidates(problem, choices, budget):
        evaluator.try_target(target)
        if evaluator.is_optimal(bound):
            break
        if evaluator.tried >= MOST_REFUSED and not evaluator.is_equivalent:
            break
    # Where all else fails, the sample is a valid answer; where it does not,
    # the answer is never worse than the sample.
    if not evaluator.is_optimal(bound) and _is_valid(problem):
        evaluator.try_target(problem.sample)
    missing = False
    if not evaluator.is_optimal(bound) and (
            evaluator.best is None or evaluator.is_equivalent):
        try:
            if objective in SOLVED:
                bound = max(bound, refine(
                    problem, choices[:-1] or choices, evaluator, budget))
            else:
                refine_span(problem, choices[0], evaluator, budget)
        except SolverMissingError:
            missing = True
    best = evaluator.best
    if best is None:
        return Optimised(
            current, Switch((), current), 0, 0, 'infeasible',
            find_conflict(problem, budget), missing), None
    return _result(best, bound, missing), best


def measure_of(objective: str,
               seconds: Callable[[Move], float] | None) -> Measure:
    """Return the function that values the pools of a switch."""
    if objective == 'time':
        if seconds is None:
            raise ValueError(
                "the objective 'time' needs the seconds of each operation")
        return lambda pools: pools_s(pools, seconds)
    if objective not in MEASURES:
        raise ValueError(f'unknown objective {objective!r}: expected one of '
                         + ', '.join([*MEASURES, 'time']))
    return MEASURES[objective]


def _choices(problem: SwitchProblem, objective: str
             ) -> list[bounds.HomeChoices]:
    """Return choices at home for the objective, the most promising first."""
    memory = bounds.memory_choices(problem)
    if objective == 'memory':
        return [memory]
    by_price = bounds.cost_choices(problem, memory)
    if objective == 'cost':
        return [*by_price, memory]
    return [bounds.span_choices(problem), *by_price, memory]


def _bound(problem: SwitchProblem, objective: str, measure: Measure,
           choices: list[bounds.HomeChoices]) -> float:
    if objective == 'span':
        return bounds.span_bound(problem)
    if objective == 'time':
        return bounds.time_bound(problem, measure)
    return choices[0].bound


def _candidates(problem: SwitchProblem, choices: list[bounds.HomeChoices],
                budget: Budget) -> Iterator[Configuration]:
    """Yield good configurations first, then the sticky one."""
    for one in choices[:MOST_CANDIDATES - 1] + choices[-1:]:
        assignment = assign_runners(problem, one, budget)
        if assignment is not None:
            spread = spread_boots(problem, assignment, budget)
            if spread is not None:
                yield problem.target(spread)
            yield problem.target(assignment)
    try:
        yield sticky_target(problem.current, _states(problem))
    except PackingError:
        pass


def _is_valid(problem: SwitchProblem) -> bool:
    """Return whether the sample is a configuration that a switch can reach."""
    return (problem.has_room(problem.sample)
            and None not in problem.assignment(problem.sample))


def _states(problem: SwitchProblem) -> dict[str, MemberState]:
    """Return the state of each lease in the sample.

    Fixed members have states of their own.  A lease of which only a part
    runs has no state, and remains as it is.
    """
    found: dict[str, MemberState] = {}
    for lease, members in problem.sample.leases.items():
        states = [one.state for one in members if not one.fixed]
        if states and len({one is MemberState.RUNNING for one in states}) < 2:
            found[lease] = states[0]
    return found


def _result(best: Evaluated, bound: float, missing: bool) -> Optimised:
    status: Status
    if not best.is_equivalent:
        status, bound = 'feasible', 0
    elif not best.switch.pools:
        status, bound = 'nothing_to_do', best.value
    elif best.value <= bound:
        status, bound = 'optimal', best.value
    else:
        status = 'within' if bound > 0 else 'feasible'
    return Optimised(best.target, best.switch, best.value, bound, status,
                     solver_missing=missing)
