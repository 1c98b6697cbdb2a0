# SPDX-License-Identifier: Apache-2.0

"""Placement constraints while a configuration is built."""

from collections.abc import Iterator

from secondary_scheduler.decisions.optimiser.problem import (
    Assignment,
    SwitchProblem,
)
from secondary_scheduler.model.configuration import MemberState
from secondary_scheduler.model.constraints import Occupancy, PlacementRules


class TargetRules:
    """Constraints, and the hosts of the members placed so far.

    Members that are no runners are where they will be.
    """

    def __init__(self, problem: SwitchProblem) -> None:
        self._problem = problem
        self._rules = PlacementRules(problem.current.constraints)
        runners = frozenset(problem.runners)
        self._placed = Occupancy({
            name: (one.host,) for name, one in problem.sample.members.items()
            if name not in runners and one.host is not None
            and one.held is not None})

    def enter(self, number: int, host: int) -> None:
        """Note the host of a runner."""
        self._placed.enter(self._problem.runners[number],
                           self._problem.hosts[host])

    def admits(self, number: int, host: int) -> bool:
        """Return whether a runner may be on a host."""
        name = self._problem.runners[number]
        member = self._problem.current.members[name]
        target = self._problem.hosts[host]
        # A runner that has left its host arrives there as on any other.
        left = (member.state is MemberState.RUNNING
                and member.host == target)
        return self._rules.admits(
            name, None if left else member.host, target, self._placed)

    def find_offenders(self, assignment: Assignment) -> Iterator[int]:
        """Yield runners at home whose departure repairs a constraint.

        Those with the least memory are tried first.  Resumed members may
        always be at home.
        """
        problem = self._problem
        number_of = {name: number
                     for number, name in enumerate(problem.runners)}
        for constraint in self._rules.constraints:
            broken = constraint.broken(self._placed.hosts)
            if not broken:
                continue
            for number in sorted(
                    (number_of[name] for name in constraint.named
                     if name in number_of),
                    key=lambda one: (problem.classes[one].memory_mb, one)):
                one, host = problem.classes[number], assignment[number]
                if (host is None or not one.movable
                        or one.state is not MemberState.RUNNING):
                    continue
                name = problem.runners[number]
                self._placed.leave(name, problem.hosts[host])
                fewer = constraint.broken(self._placed.hosts)
                if len(fewer) >= len(broken):
                    self._placed.enter(name, problem.hosts[host])
                    continue
                yield number
                broken = fewer
                if not broken:
                    break
