# SPDX-License-Identifier: Apache-2.0

"""Heuristic configurations: the best at home, the rest where room is left.

The runners that stay at home are chosen for each host on its own.  All others
are placed class by class, large ones first, each on the host with the least
room left after it.  A host with room already at the start is preferred, since
an operation there does not have to wait.
"""

from collections import defaultdict
from collections.abc import Sequence
import heapq
from typing import cast

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.optimiser.bounds import HomeChoices
from secondary_scheduler.decisions.optimiser.problem import (
    Assignment,
    RunnerClass,
    SwitchProblem,
)
from secondary_scheduler.decisions.optimiser.rules import TargetRules
from secondary_scheduler.model.configuration import Amounts, MemberState


class RunnerRooms:
    """Room left on each host, at the start of the switch and in the end.

    :ivar early: for each dimension, the room of each host at the start
    :ivar final: the same for the end
    :ivar sizes: room of each host in the end, as one weighted number
    """

    def __init__(self, problem: SwitchProblem) -> None:
        dimensions = range(len(problem.current.dimensions))
        self.early = [[room[number] for room in problem.start_free]
                      for number in dimensions]
        self.final = [[room[number] for room in problem.final_free]
                      for number in dimensions]
        self.open = [host for host, is_open in enumerate(problem.is_open)
                     if is_open]
        wanted = [0] * len(dimensions)
        for one, count in problem.class_counts.items():
            for number, amount in enumerate(one.demand):
                wanted[number] += count * amount
        #: Weight of an amount of each dimension: scarce ones weigh more.
        self.weights = []
        for need, column in zip(wanted, self.final, strict=True):
            most = sum(max(0, left) for left in column) or 1
            self.weights.append(need / most / most)
        self.sizes = [self.size(room) for room in problem.final_free]

    def find_hosts(self, demand: Amounts, arrival: Amounts | None
                   ) -> list[int]:
        """Return the open hosts with room; ``arrival`` None is late."""
        found = self.open
        for column, amount in self._needed(demand, arrival):
            found = [host for host in found if column[host] >= amount]
        return found

    def fits(self, host: int, demand: Amounts,
             arrival: Amounts | None) -> bool:
        """Return whether a runner has room; ``arrival`` None is late."""
        for column, amount in self._needed(demand, arrival):
            if column[host] < amount:
                return False
        return True

    def _needed(self, demand: Amounts, arrival: Amounts | None
                ) -> list[tuple[list[int], int]]:
        """Return columns of room with the amounts needed, without zeros."""
        needed = [(column, amount)
                  for column, amount in zip(self.final, demand, strict=True)
                  if amount]
        if arrival is not None:
            needed += [(column, amount) for column, amount in zip(
                self.early, arrival, strict=True) if amount]
        return needed

    def take(self, host: int, demand: Amounts, arrival: Amounts | None,
             count: int = 1) -> None:
        """Take the room of some runners of a class."""
        for column, amount, weight in zip(self.final, demand, self.weights,
                                          strict=True):
            column[host] -= count * amount
            self.sizes[host] -= count * amount * weight
        if arrival is not None:
            self.take_early(host, arrival, count)

    def take_early(self, host: int, arrival: Amounts, count: int) -> None:
        """Take room at the start only."""
        for column, amount in zip(self.early, arrival, strict=True):
            column[host] -= count * amount

    def is_overloaded(self, problem: SwitchProblem) -> bool:
        """Return whether runners take more room in the end than there is."""
        return any(
            left < min(0, room[number])
            for number, column in enumerate(self.final)
            for left, room in zip(column, problem.final_free, strict=True))

    def pop_roomiest(self, heap: list[tuple[float, int]], demand: Amounts,
                     arrival: Amounts | None) -> int | None:
        """Return the host with the most room left in the end.

        :param heap: hosts by their room at an earlier time, which was not
            less; it loses those without room for the demand
        """
        while heap:
            size, host = heap[0]
            if not self.fits(host, demand, arrival):
                heapq.heappop(heap)
                continue
            now = -self.sizes[host]
            if now == size:
                return host
            heapq.heapreplace(heap, (now, host))
        return None

    def size(self, amounts: Sequence[int]) -> float:
        """Return amounts as one weighted number."""
        return sum(weight * amount for weight, amount in zip(
            self.weights, amounts, strict=True))


def assign_runners(problem: SwitchProblem, choices: HomeChoices,
                   budget: Budget) -> Assignment | None:
    """Return a configuration that realises the choices at home.

    :returns: None if a runner finds no room, or the budget is spent
    """
    if not problem.is_startable:
        return None
    assignment: Assignment = [None] * len(problem.runners)
    rooms = RunnerRooms(problem)
    away = _take_homes(problem, choices, rooms, assignment)
    if rooms.is_overloaded(problem):
        return None     # members that cannot move need more than there is
    rules = TargetRules(problem) if problem.current.constraints else None
    if rules is not None:
        _repair_constraints(problem, rules, rooms, assignment, away)
    order = sorted(away, key=lambda demand: (-rooms.size(demand), demand))
    for demand in order:
        numbers = away[demand]
        for early in (True, False):
            numbers = _place_equal(problem, rooms, rules, numbers, early,
                                   assignment, budget)
        if numbers and not _displace(problem, rooms, rules, numbers,
                                     assignment, budget):
            return None
    return assignment


def _displace(problem: SwitchProblem, rooms: RunnerRooms,
              rules: TargetRules | None, numbers: list[int],
              assignment: Assignment, budget: Budget) -> bool:
    """Place runners where another one can go to a third host.

    :returns: whether all of them are placed
    """
    there: dict[int, list[int]] = defaultdict(list)
    for number, host in enumerate(assignment):
        if host is not None and problem.classes[number].movable:
            there[host].append(number)
    for several in there.values():
        several.sort(key=lambda one: problem.classes[one].memory_mb)
    return all(_displace_one(problem, rooms, rules, number, there,
                             assignment, budget) for number in numbers)


def _displace_one(problem: SwitchProblem, rooms: RunnerRooms,
                  rules: TargetRules | None, number: int,
                  there: dict[int, list[int]], assignment: Assignment,
                  budget: Budget) -> bool:
    demand = problem.classes[number].demand
    only = None if rules is None else rules.confine(number)
    for host in sorted(rooms.open if only is None else only,
                       key=lambda one: -rooms.sizes[one]):
        if rules is not None and not rules.admits(number, host):
            continue
        for other in there[host]:
            less = problem.classes[other].demand
            if not budget.spend():
                return False
            rooms.take(host, less, None, -1)
            place = (_find_third(rooms, rules, other, host, less)
                     if rooms.fits(host, demand, None) else None)
            if place is None:
                rooms.take(host, less, None)
                continue
            rooms.take(place, less, None)
            rooms.take(host, demand, None)
            if rules is not None:
                rules.leave(other, host)
                rules.enter(other, place)
                rules.enter(number, host)
            assignment[other], assignment[number] = place, host
            there[host].remove(other)
            there[host].append(number)
            there[place].append(other)
            return True
    return False


def _find_third(rooms: RunnerRooms, rules: TargetRules | None, number: int,
                host: int, demand: Amounts) -> int | None:
    """Return another host for a runner, the one with the least room."""
    places = [one for one in rooms.find_hosts(demand, None) if one != host]
    if rules is not None:
        places = [one for one in places if rules.admits(number, one)]
    return min(places, key=rooms.sizes.__getitem__, default=None)


def spread_boots(problem: SwitchProblem, assignment: Assignment,
                 budget: Budget) -> Assignment | None:
    """Return a configuration with boots on the hosts with the most room.

    A boot copies nothing, so its host may be chosen for later switches: a
    lease that is spread over hosts finds room there again.

    :param assignment: a configuration; all but the boots stay
    :returns: None if a boot finds no room then, the budget is spent, or there
        are constraints
    """
    if problem.current.constraints:
        return None
    result = list(assignment)
    rooms = RunnerRooms(problem)
    boots = []
    for number, (one, host) in enumerate(
            zip(problem.classes, assignment, strict=True)):
        if one.state is MemberState.WAITING:
            boots.append(number)
        elif host is not None:
            early = (None if one.state is MemberState.RUNNING
                     and host == one.home else
                     one.arrival if host == one.home else one.demand)
            rooms.take(host, one.demand, early)
    boots.sort(key=lambda number: -rooms.size(problem.classes[number].demand))
    heaps: dict[tuple[Amounts, bool], list[tuple[float, int]]] = {}
    for number in boots:
        demand = problem.classes[number].demand
        if not budget.spend():
            return None
        for at_start in (True, False):
            if (demand, at_start) not in heaps:
                heaps[demand, at_start] = [
                    (-rooms.sizes[host], host) for host in rooms.find_hosts(
                        demand, demand if at_start else None)]
                heapq.heapify(heaps[demand, at_start])
            found = rooms.pop_roomiest(
                heaps[demand, at_start], demand, demand if at_start else None)
            if found is not None:
                break
        else:
            return None
        rooms.take(found, demand, demand)
        result[number] = found
    return result


def _take_homes(problem: SwitchProblem, choices: HomeChoices,
                rooms: RunnerRooms, assignment: Assignment
                ) -> dict[Amounts, list[int]]:
    """Place the runners that stay; return the others by their demand."""
    members: dict[RunnerClass, list[int]] = defaultdict(list)
    away: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, one in enumerate(problem.classes):
        if one.home is None:
            away[one.demand].append(number)
        else:
            members[one].append(number)
    for host, choice in enumerate(choices.hosts):
        taken: dict[RunnerClass, int] = defaultdict(int)
        for one, option, count in choice.chosen:
            first = taken[one]
            taken[one] += count
            several = members[one][first:first + count]
            if option.at_start:
                rooms.take_early(host, option.needed_early(one), count)
            if not option.at_home:
                away[one.demand].extend(several)
                continue
            rooms.take(host, one.demand, None, count)
            for number in several:
                assignment[number] = host
    return away


def _repair_constraints(problem: SwitchProblem, rules: TargetRules,
                        rooms: RunnerRooms, assignment: Assignment,
                        away: dict[Amounts, list[int]]) -> None:
    """Take runners from home that break constraints there."""
    for number, host in enumerate(assignment):
        if host is not None:
            rules.enter(number, host)
    for number in rules.find_offenders(assignment):
        demand = problem.classes[number].demand
        rooms.take(cast(int, assignment[number]), demand, None, -1)
        assignment[number] = None
        away[demand].append(number)


def _place_equal(problem: SwitchProblem, rooms: RunnerRooms,
                 rules: TargetRules | None, numbers: list[int],
                 early: bool, assignment: Assignment,
                 budget: Budget) -> list[int]:
    """Place runners of equal demand; return those without room."""
    if not numbers:
        return []
    demand = problem.classes[numbers[0]].demand
    arrival = demand if early else None
    fitting = rooms.find_hosts(demand, arrival)
    fitting.sort(key=rooms.sizes.__getitem__)
    if rules is not None:
        fitting.reverse()
        return [number for number in numbers if not _place_one(
            rooms, rules, number, demand, arrival, fitting, assignment,
            budget)]
    left = list(reversed(numbers))
    for host in fitting:
        while left and rooms.fits(host, demand, arrival):
            if not budget.spend():
                return left
            number = left.pop()
            assignment[number] = host
            rooms.take(host, demand, arrival)
        if not left:
            break
    return left[::-1]


def _place_one(rooms: RunnerRooms, rules: TargetRules, number: int,
               demand: Amounts, arrival: Amounts | None, hosts: list[int],
               assignment: Assignment, budget: Budget) -> bool:
    """Place a runner on the last host that has room and is admitted.

    :param hosts: loses full hosts at its end, since all runners are equal
    """
    while hosts and not rooms.fits(hosts[-1], demand, arrival):
        hosts.pop()
    only = rules.confine(number)
    for host in (reversed(hosts) if only is None
                 else sorted(only, key=rooms.sizes.__getitem__)):
        if not rooms.fits(host, demand, arrival):
            continue
        if not budget.spend():
            return False
        if rules.admits(number, host, early=arrival is not None):
            assignment[number] = host
            rooms.take(host, demand, arrival)
            rules.enter(number, host)
            return True
    return False
