# SPDX-License-Identifier: Apache-2.0

"""Solver for the cheapest configuration (CP-SAT of OR-Tools).

Identical runners are counted, not named: variables are numbers of runners of a
class that stay on a host, leave it or arrive there.  Operations have two
stages.  Stage one is all pools up to the first that copies memory, and has the
room at the start.  Each operation of stage two pays the price of that pool.
All resumes of a lease have one stage.

The model contains each switch (see :mod:`.bounds`), so its bound is a bound of
the plan cost.  A solution may cost more once it is sequenced, since more than
two pools can be needed.

OR-Tools is imported on first use.
"""

from collections import defaultdict
from collections.abc import Sequence
import dataclasses
import math
import typing

from secondary_scheduler.decisions.optimiser.problem import (
    Assignment,
    RunnerClass,
    SwitchProblem,
)
from secondary_scheduler.model.configuration import Amounts, MemberState


class SolverMissingError(ImportError):
    """OR-Tools is not installed."""


class Solved(typing.NamedTuple):
    """Answer of the solver.

    :param assignment: None if none was found in time
    :param bound: no equivalent switch at this price costs less; None if none
        exists below the limit
    :param seconds: deterministic seconds that it took
    :param late: numbers of the runners in stage two
    """

    assignment: Assignment | None
    bound: float | None
    seconds: float
    late: frozenset[int] = frozenset()


def count_variables(problem: SwitchProblem) -> int:
    """Return about how many variables a model has."""
    demands = len({one.demand for one in problem.classes})
    return 2 * demands * len(problem.hosts) + 4 * len(problem.runners)


@dataclasses.dataclass
class RunnerGroup:
    """Interchangeable runners at home on one host, of one lease if resumed."""

    one: RunnerClass
    lease: int | None
    numbers: list[int]


def solve(problem: SwitchProblem, start: Sequence[Sequence[int]], price: int,
          most: int, limit: float, hint: Assignment | None = None,
          below: float | None = None, two_stages: bool = False,
          from_below: bool = False) -> Solved:
    """Return the cheapest configuration at a price of the first pool.

    :param start: room of stage one on each host
    :param price: paid by each operation of stage two; 0 to minimise the
        memory moved
    :param most: operations that copy more are in stage two
    :param limit: deterministic seconds of the solver
    :param hint: a good configuration
    :param below: only a value of less than this is looked for
    :param two_stages: all of stage two begins at the same time, so that it
        finds no room that only stage two frees.  Each solution then costs what
        the model says, and the bound is none for other switches
    :param from_below: raise the bound before a better value is looked for,
        which finds the best value sooner where it is far from a known one
    :raises SolverMissingError: OR-Tools is not installed
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise SolverMissingError(str(error)) from error
    if not problem.is_startable:
        return Solved(None, None, 0.0)
    try:
        model = _StageModel(cp_model, problem, start, price, most, two_stages)
        if hint is not None:
            model.add_hint(hint)
        if below is not None:
            model.add_limit(int(below) - 1 - problem.fixed_mb)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        solver.parameters.linearization_level = 2
        solver.parameters.use_objective_lb_search = from_below
        solver.parameters.max_deterministic_time = limit
        status = solver.solve(model.model)
    except MemoryError:
        return Solved(None, problem.fixed_mb, limit)
    seconds = solver.response_proto.deterministic_time
    if status == cp_model.INFEASIBLE:
        return Solved(None, None, seconds)
    # Costs are whole numbers, and the solver's bound is a float.
    bound = problem.fixed_mb + max(
        0, math.ceil(solver.best_objective_bound - 1e-6))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solved(None, bound, seconds)
    assignment, late = model.read_assignment(solver)
    return Solved(assignment, bound, seconds, late)


class _StageModel:
    def __init__(self, cp_model: typing.Any, problem: SwitchProblem,
                 start: Sequence[Sequence[int]], price: int,
                 most: int, two_stages: bool) -> None:
        self.model = cp_model.CpModel()
        self.problem = problem
        self.start = start
        self.price, self.most = price, most
        self.two_stages = two_stages
        self.groups = _group_runners(problem)
        #: Variables of each group by fate.
        self.fates: list[dict[str, typing.Any]] = []
        self.costs: list[tuple[int, typing.Any]] = []
        self.arrivals: dict[tuple[int, Amounts, bool], typing.Any] = {}
        self.late_leases = {
            lease: self.model.new_bool_var('')
            for lease in sorted(problem.members_of_lease)}
        #: Terms of the flow of each demand and stage.
        self.sent: dict[tuple[Amounts, bool], list[typing.Any]] = (
            defaultdict(list))
        self.final: list[list[tuple[Amounts, typing.Any]]] = [
            [] for _ in problem.hosts]
        self.early: list[list[tuple[Amounts, typing.Any]]] = [
            [] for _ in problem.hosts]
        for group in self.groups:
            self._add_group(group)
        self._add_arrivals()
        self._add_rooms()
        self.cost = sum(cost * variable for cost, variable in self.costs)
        self.model.minimize(self.cost)

    def _add_group(self, group: RunnerGroup) -> None:
        one, count = group.one, len(group.numbers)
        fates: dict[str, typing.Any] = {}
        self.fates.append(fates)
        memory, price = one.memory_mb, self.price
        in_place = self.problem.current.resumes_in_place
        late = memory > self.most

        def add(name: str, cost: int) -> typing.Any:
            fates[name] = self.model.new_int_var(0, count, '')
            if cost:
                self.costs.append((cost, fates[name]))
            return fates[name]

        if one.state is MemberState.RUNNING:
            self.final[typing.cast(int, one.home)].append(
                (one.demand, add('stay', 0)))
            if not late:
                self.sent[one.demand, True].append(add('leave1', memory))
            self.sent[one.demand, False].append(add('leave2', memory + price))
        elif one.state is MemberState.WAITING:
            self.sent[one.demand, True].append(add('leave1', 0))
            self.sent[one.demand, False].append(add('leave2', price))
        else:
            early = []
            if one.home is not None:
                if not late:
                    home1 = add('home1', 0)
                    self.final[one.home].append((one.demand, home1))
                    self.early[one.home].append((one.arrival, home1))
                    early.append(home1)
                self.final[one.home].append((one.demand, add('home2', price)))
            if one.movable and in_place:
                if not late:
                    away1 = add('away1', memory + price)
                    self.early[typing.cast(int, one.home)].append(
                        (one.transit, away1))
                    self.sent[one.demand, False].append(away1)
                    early.append(away1)
                self.sent[one.demand, False].append(
                    add('away2', 2 * (memory + price) if price else memory))
            elif one.movable:
                if 2 * memory <= self.most:
                    away1 = add('away1', memory)
                    self.sent[one.demand, True].append(away1)
                    early.append(away1)
                self.sent[one.demand, False].append(
                    add('away2', memory + price))
            self.model.add(
                sum(early) + count * self.late_leases[
                    typing.cast(int, group.lease)] == count)
        self.model.add(sum(fates.values()) == count)
        if self.two_stages and one.home is not None:
            held = (one.demand if one.state is MemberState.RUNNING
                    else tuple(map(sum, zip(one.claim, one.transit,
                                            strict=True))) if in_place
                    else one.claim)
            for name in ('leave2', 'away2', *(('away1',) if in_place else ())):
                if name in fates:
                    self.final[one.home].append((held, fates[name]))

    def _add_arrivals(self) -> None:
        problem = self.problem
        for (demand, early), sent in sorted(
                self.sent.items(), key=lambda pair: pair[0]):
            received = []
            for host, is_open in enumerate(problem.is_open):
                room: list[Sequence[int]] = [problem.final_free[host]]
                if early:
                    room.append(self.start[host])
                count = min(_most_arrivals(demand, free, len(problem.runners))
                            for free in room)
                if not count or not is_open:
                    continue
                variable = self.model.new_int_var(0, count, '')
                self.arrivals[host, demand, early] = variable
                self.final[host].append((demand, variable))
                if early:
                    self.early[host].append((demand, variable))
                received.append(variable)
            self.model.add(sum(received) == sum(sent))

    def _add_rooms(self) -> None:
        problem = self.problem
        for host in range(len(problem.hosts)):
            for terms, room in ((self.final[host], problem.final_free[host]),
                                (self.early[host], self.start[host])):
                for number, most in enumerate(room):
                    needed = [(amounts[number], variable)
                              for amounts, variable in terms
                              if amounts[number]]
                    if needed:
                        self.model.add(sum(
                            amount * variable
                            for amount, variable in needed) <= max(0, most))

    def add_limit(self, most: int) -> None:
        """Exclude what costs more besides the fixed part."""
        self.model.add(self.cost <= most)

    def add_hint(self, assignment: Assignment) -> None:
        """Hint at a configuration: fates of groups, and arrivals."""
        arrivals: dict[tuple[int, Amounts], int] = defaultdict(int)
        for group, fates in zip(self.groups, self.fates, strict=True):
            home = sum(assignment[number] == group.one.home
                       for number in group.numbers)
            stays = fates.get('stay', fates.get('home1', fates.get('home2')))
            if stays is not None and group.one.home is not None:
                self.model.add_hint(stays, home)
            for number in group.numbers:
                host = assignment[number]
                if host is not None and host != group.one.home:
                    arrivals[host, group.one.demand] += 1
        for (host, demand, early), variable in self.arrivals.items():
            if early:
                self.model.add_hint(variable, arrivals[host, demand])

    def read_assignment(self, solver: typing.Any
                        ) -> tuple[Assignment, frozenset[int]]:
        """Return the host of each runner, and the runners of stage two."""
        late = set()
        assignment: Assignment = [None] * len(self.problem.runners)
        away: dict[tuple[Amounts, bool], list[int]] = defaultdict(list)
        for group, fates in zip(self.groups, self.fates, strict=True):
            left = list(group.numbers)
            for name, variable in fates.items():
                for _ in range(solver.value(variable)):
                    number = left.pop()
                    if name.endswith('2'):
                        late.add(number)
                    if name in ('stay', 'home1', 'home2'):
                        assignment[number] = group.one.home
                    else:
                        early = name.endswith('1') and not (
                            name == 'away1'
                            and self.problem.current.resumes_in_place)
                        away[group.one.demand, early].append(number)
        for (host, demand, early), variable in self.arrivals.items():
            for _ in range(solver.value(variable)):
                assignment[away[demand, early].pop()] = host
        return assignment, frozenset(late)


def _group_runners(problem: SwitchProblem) -> list[RunnerGroup]:
    groups: dict[tuple[RunnerClass, int | None], RunnerGroup] = {}
    for number, one in enumerate(problem.classes):
        lease = (problem.leases[number]
                 if one.state is MemberState.SUSPENDED else None)
        group = groups.setdefault(
            (one, lease), RunnerGroup(one, lease, []))
        group.numbers.append(number)
    return list(groups.values())


def _most_arrivals(demand: Amounts, free: Sequence[int], most: int) -> int:
    return min([most] + [max(0, left) // amount
                         for amount, left in zip(demand, free, strict=True)
                         if amount])
