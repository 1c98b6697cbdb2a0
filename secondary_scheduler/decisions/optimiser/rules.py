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
        self._number_of = {host: number
                           for number, host in enumerate(problem.hosts)
                           if problem.is_open[number]}
        self._numbers: dict[frozenset[str], list[int]] = {}
        runners = frozenset(problem.runners)
        self._placed = Occupancy({
            name: (one.host,) for name, one in problem.sample.members.items()
            if name not in runners and one.host is not None
            and one.held is not None})
        #: Hosts now, and those that runners are to arrive on.
        self._early = Occupancy({
            name: (one.host,)
            for name, one in problem.current.members.items()
            if one.host is not None})

    def enter(self, number: int, host: int) -> None:
        """Note the host of a runner."""
        name, target = self._problem.runners[number], self._problem.hosts[host]
        self._placed.enter(name, target)
        self._early.enter(name, target)

    def leave(self, number: int, host: int) -> None:
        """Undo ``enter``."""
        self._placed.leave(self._problem.runners[number],
                           self._problem.hosts[host])

    def confine(self, number: int) -> list[int] | None:
        """Return the only open hosts that a runner may be on, None for any.

        Some of them may still be forbidden.
        """
        name = self._problem.runners[number]
        hosts = self._rules.confine(
            name, self._problem.current.members[name].host, self._placed)
        if hosts is None:
            return None
        if hosts not in self._numbers:
            self._numbers[hosts] = sorted(
                self._number_of[host]
                for host in hosts & self._number_of.keys())
        return self._numbers[hosts]

    def admits(self, number: int, host: int, early: bool = False) -> bool:
        """Return whether a runner may be on a host.

        :param early: it has to wait for no peer that leaves the host
        """
        name = self._problem.runners[number]
        member = self._problem.current.members[name]
        target = self._problem.hosts[host]
        # A runner that has left its host arrives there as on any other.
        left = (member.state is MemberState.RUNNING
                and member.host == target)
        return self._rules.admits(
            name, None if left else member.host, target, self._placed) and (
                not early or self._rules.admits(
                    name, member.host, target, self._early))

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
