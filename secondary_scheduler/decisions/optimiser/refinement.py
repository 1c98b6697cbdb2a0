# SPDX-License-Identifier: Apache-2.0

"""Use of the solver where the bound and the best switch differ."""

from collections.abc import Sequence

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.optimiser.bounds import (
    HomeChoices,
    early_room,
)
from secondary_scheduler.decisions.optimiser.evaluation import Evaluator
from secondary_scheduler.decisions.optimiser.local_search import spread_boots
from secondary_scheduler.decisions.optimiser.problem import SwitchProblem
from secondary_scheduler.decisions.optimiser.solver import (
    Solved,
    count_variables,
    solve,
)
from secondary_scheduler.estimation.switch_costs import local_cost

#: Deterministic seconds of the solver for a work unit.
SECONDS_PER_UNIT = 1e-4
#: Work units to build a variable of a model.
UNITS_PER_VARIABLE = 1


def refine(problem: SwitchProblem, choices: Sequence[HomeChoices],
           evaluator: Evaluator, budget: Budget) -> float:
    """Look for cheaper configurations with the solver.

    A configuration replaces the best one only if its switch is cheaper.

    :returns: a bound of the objective that the choices are for
    :raises SolverMissingError: OR-Tools is not installed
    """
    start = early_room(problem)
    size = _price_model(problem)
    lowest = float('inf')
    is_first = True
    for one in _promising_first(choices, evaluator):
        best = evaluator.best
        value = (best.value if best is not None and best.is_equivalent
                 else None)
        if value is not None and one.bound >= value:
            continue
        limit = (budget.units - size) * SECONDS_PER_UNIT
        if limit <= 0:
            budget.truncated = True
            lowest = min(lowest, one.bound)
            continue
        # A hint of the best switch only delays the search for a better one.
        solved = solve(problem, start, one.price, one.most, limit, below=value,
                       from_below=is_first)
        is_first = False
        _pay(budget, size, solved)
        if solved.bound is not None:
            lowest = min(lowest, max(one.bound, solved.bound))
        if solved.assignment is None:
            continue
        _try_answer(problem, evaluator, budget, solved)
        limit = (budget.units - size) * SECONDS_PER_UNIT
        best = evaluator.best
        if (one.price and limit > 0 and solved.bound is not None
                and best is not None and best.value > solved.bound):
            # More than two pools are needed; look for two.
            solved = solve(
                problem, start, one.price, one.most, limit,
                below=best.value if best.is_equivalent else None,
                hint=solved.assignment, two_stages=True)
            _pay(budget, size, solved)
            if solved.assignment is not None:
                _try_answer(problem, evaluator, budget, solved)
    best = evaluator.best
    return lowest if best is None else min(lowest, best.value)


def _promising_first(choices: Sequence[HomeChoices], evaluator: Evaluator
                     ) -> list[HomeChoices]:
    """Return the choices, first those at the price of the best switch."""
    best = evaluator.best
    costs = (max(map(local_cost, pool), default=0)
             for pool in (best.switch.pools if best is not None else ()))
    price = next(filter(None, costs), 0)
    return sorted(choices, key=lambda one: not one.price <= price <= one.most)


def refine_span(problem: SwitchProblem, choices: HomeChoices,
                evaluator: Evaluator, budget: Budget) -> None:
    """Look for a switch with few operations above the span's bound.

    :param choices: those of :func:`.bounds.span_choices`
    :raises SolverMissingError: OR-Tools is not installed
    """
    size = _price_model(problem)
    limit = (budget.units - size) * SECONDS_PER_UNIT
    if limit <= 0:
        budget.truncated = True
        return
    best = evaluator.best
    solved = solve(problem, early_room(problem), choices.price, choices.most,
                   limit, hint=None if best is None
                   else problem.assignment(best.target), two_stages=True)
    _pay(budget, size, solved)
    if solved.assignment is not None:
        _try_answer(problem, evaluator, budget, solved._replace(bound=None))


def _price_model(problem: SwitchProblem) -> int:
    """Return the work units of a model.

    The solver does not know constraints.  The more there are, the less
    probable is an answer that keeps all of them.
    """
    return (UNITS_PER_VARIABLE * count_variables(problem)
            * (1 + len(problem.current.constraints)))


def _pay(budget: Budget, size: int, solved: Solved) -> None:
    budget.units -= min(budget.units, size + int(
        solved.seconds / SECONDS_PER_UNIT))


def _try_answer(problem: SwitchProblem, evaluator: Evaluator, budget: Budget,
                solved: Solved) -> None:
    """Sequence an answer, first as it is, then in the stages of the model.

    Otherwise an operation that can wait may take the room of one that should
    not.
    """
    assert solved.assignment is not None
    late = [problem.runners[number] for number in solved.late]
    spread = spread_boots(problem, solved.assignment, budget)
    for assignment in (spread, solved.assignment):
        if assignment is None:
            continue
        target = problem.target(assignment)
        for several in ((), late):
            evaluator.try_target(target, several)
            if (solved.bound is not None
                    and evaluator.is_optimal(solved.bound)):
                return
