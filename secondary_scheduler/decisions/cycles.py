# SPDX-License-Identifier: Apache-2.0

"""Ways out of cycles of moves (Hermenier 2009, section 4.1).

Two ways make a blocked task feasible:

* The smallest members that block it migrate to *pivot* hosts, and go on from
  there.  Members that have to leave anyway come first, since a member that
  stays has to return.
* A whole lease is suspended and resumed later.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import typing

from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.lessons import Lessons
from secondary_scheduler.decisions.pools import PoolBuilder
from secondary_scheduler.decisions.tasks import (
    LAST,
    Task,
    apply_moves,
    departure_task,
    migrate_task,
    resume_task,
)
from secondary_scheduler.model.configuration import (
    Amounts,
    Configuration,
    Member,
    MemberState,
    Move,
    natural_key,
)
from secondary_scheduler.model.operation_kinds import OperationKind


class _Leave(typing.NamedTuple):
    """A member that may leave a host for a pivot.

    :param host: the host that it leaves
    :param pending: its migration from the host, None if it stays
    """

    member: Member
    host: str
    pending: Task | None

    @property
    def freed(self) -> Amounts:
        """Amounts that it frees on the host."""
        return (self.pending.gives[0][1] if self.pending
                else self.member.demand)

    @property
    def cost(self) -> tuple[int, int]:
        """Additional moves, and the memory that they copy."""
        moves = 1 if self.pending else 2
        return moves, moves * self.member.memory_mb

    @property
    def rank(self) -> tuple[object, ...]:
        """The cost, and then the name."""
        return *self.cost, natural_key(self.member.name), self.member.name


def _covers(lack: list[int], leaves: Iterable[_Leave]) -> bool:
    """Return whether departures free at least what a task lacks."""
    freed = [0] * len(lack)
    for leave in leaves:
        for number, amount in enumerate(leave.freed):
            freed[number] += amount
    return all(most >= amount for most, amount
               in zip(freed, lack, strict=True) if amount > 0)


class CycleBreaker:
    """Finds bypasses for stuck components of a builder.

    :param target: the configuration that the builder leads to
    """

    def __init__(self, current: Configuration, target: Configuration,
                 builder: PoolBuilder, lessons: Lessons) -> None:
        self.current = current
        self.target = target
        self.builder = builder
        self.refused = Lessons(
            members=set(lessons.members), leases=set(lessons.leases))
        #: Leases that are suspended by a bypass.
        self.suspended: set[str] = set()
        #: Hosts of bypasses.
        self.hosts: set[str] = set()
        self._members = dict(current.members)
        self._applied = 0
        self._indexed = 0
        self._by_host: dict[str, list[Member]] = {}
        self._final: FreeRoom | None = None

    def list_stuck(self, moving: set[str]) -> list[str]:
        """Return the components that do not move."""
        return [name for name in self.builder.components.pending
                if name not in moving]

    def use_pivot(self, component: str) -> bool:
        """Add a bypass by pivot hosts to the pool, if there is one.

        The way with the fewest additional moves is taken, and then the one
        with the least memory.

        :param component: a stuck component
        """
        tasks = self.builder.list_pending(component)
        lacking = {host for task in tasks for host in self._lacking(task)}
        if self.builder.release(host for task in tasks
                                for host, _ in task.takes):
            return True
        for stays in (False, True):
            ways = [way for task in tasks
                    for way in self._find_ways(task, stays)]
            if self._use_first(ways, lacking):
                return True
        return False

    def _use_first(self, ways: list[list[_Leave]], lacking: set[str]) -> bool:
        """Use the cheapest way for which there are pivots."""
        ways.sort(key=lambda one: (
            *map(sum, zip(*(leave.cost for leave in one), strict=True)),
            [leave.rank for leave in one]))
        return any(self._pivot(way, lacking) for way in ways)

    def list_dead(self) -> list[Task]:
        """Return resumes on hosts that no other member is about to leave.

        These members resume in place, and then migrate.
        """
        freeing, leaving = self.builder.freeing, self.builder.leaving
        tasks = {task: None for several in self.builder.arriving.values()
                 for task in several if task.passes}
        return [task for task in tasks
                if (lacking := self._lacking(task)) and not any(
                    host in freeing or leaving.get(host)
                    for host in lacking)]

    def clear_homes(self, task: Task) -> None:
        """Add a bypass that frees the room for a resume, if there is one."""
        self._use_first(list(self._find_ways(task, stays=True)),
                        set(self._lacking(task)))

    def _lacking(self, task: Task) -> list[str]:
        """Return the hosts on which a task has no room."""
        return [host for host, need in task.takes
                if not self.builder.room.fits(host, need)]

    def _find_ways(self, task: Task, stays: bool
                   ) -> Iterator[list[_Leave]]:
        """Yield sets of members that free the room for a task."""
        needs = dict(task.takes)
        hosts = self._lacking(task)
        if not hosts:
            # A constraint forbids the task beside a member on its target.
            for host in needs:
                yield from ([leave] for leave
                            in self._list_leaves(host, stays=False))
            return
        choices = [list(self._find_leaves(host, needs[host], stays))
                   for host in hosts]
        if len(hosts) == 1:
            yield from choices[0]
        elif all(choices):
            yield [leave for found in choices for leave in found[0]]

    def _find_leaves(self, host: str, need: Amounts, stays: bool
                     ) -> Iterator[list[_Leave]]:
        """Yield single members that free a need, else several together."""
        free = self.builder.room.free.get(host)
        if free is None:
            return
        lack = [amount - most if amount else 0
                for amount, most in zip(need, free, strict=True)]
        leaves = sorted(self._list_leaves(host, stays),
                        key=lambda one: one.rank)
        enough = False
        for leave in leaves:
            if _covers(lack, [leave]):
                enough = True
                yield [leave]
        if not enough and _covers(lack, leaves):
            chosen = list(leaves)
            for leave in reversed(leaves):
                fewer = [one for one in chosen if one is not leave]
                if _covers(lack, fewer):
                    chosen = fewer
            yield chosen

    def _list_leaves(self, host: str, stays: bool) -> Iterator[_Leave]:
        pending = set()
        for task in self.builder.leaving[host]:
            member = self.current.members[task.moves[0].member]
            pending.add(member.name)
            if member.name not in self.refused.members:
                yield _Leave(member, host, task)
        if stays:
            for member in self._running_on(host):
                if (member.migratable and not member.fixed
                        and member.name not in pending
                        and member.name not in self.refused.members):
                    yield _Leave(member, host, None)

    def _pivot(self, way: list[_Leave], lacking: set[str]) -> bool:
        """Migrate members to pivots; False if one of them has none."""
        found: list[tuple[_Leave, str]] = []
        for leave in way:
            pivot = self._find_pivot(leave, lacking)
            if pivot is None:
                break
            self.builder.room.take(pivot, leave.member.demand)
            self.builder.rules.enter(leave.member.name, pivot)
            found.append((leave, pivot))
        for leave, pivot in found:
            self.builder.room.give(pivot, leave.member.demand)
            self.builder.rules.withdraw(leave.member.name, pivot)
        if len(found) < len(way):
            return False
        for leave, pivot in found:
            member = leave.member
            self.refused.members.add(member.name)
            if leave.pending is None:
                onward = migrate_task(member, pivot, leave.host, bypass=True)
                # The task that waits for the room comes first.
                onward.order = (LAST, *onward.order[1:])
            else:
                self.builder.remove(leave.pending)
                onward = migrate_task(
                    member, pivot, str(leave.pending.moves[0].target))
            bypass = migrate_task(member, leave.host, pivot, bypass=True)
            bypass.gives = ((leave.host, leave.freed),)
            bypass.then = (onward,)
            self.builder.start(bypass)
            self.hosts |= {leave.host, pivot}
        return True

    def _find_pivot(self, leave: _Leave, lacking: set[str]) -> str | None:
        """Return a pivot, outside of the component if there is one."""
        find = self.builder.components.find
        component = find(leave.host)
        need = leave.member.demand
        room, rules = self.builder.room, self.builder.rules

        def admits(host: str) -> bool:
            return host != leave.host and rules.admits(
                leave.member.name, leave.host, host)

        return (
            room.find_first(need, lambda host: find(host) != component
                            and not self.builder.is_scripted(host)
                            and admits(host))
            or room.find_first(need, lambda host: find(host) == component
                               and host not in lacking and admits(host))
            or room.find_first(need, lambda host: find(host) == component
                               and admits(host)))

    def _running_on(self, host: str) -> list[Member]:
        """Return the members that ran on a host before the pool."""
        pools = len(self.builder.pools)
        if self._indexed != pools:
            self._by_host = defaultdict(list)
            for member in self._positions().values():
                if member.state is MemberState.RUNNING:
                    self._by_host[str(member.host)].append(member)
            self._indexed = pools
        return self._by_host[host]

    def _positions(self) -> Mapping[str, Member]:
        """Return the members as they are before the pool that is built."""
        pools = self.builder.pools
        while self._applied < len(pools) - 1:
            for member in apply_moves(self._members, pools[self._applied]):
                self._members[member.name] = member
            self._applied += 1
        return self._members

    def suspend_leases(self, stuck: Iterable[str]) -> bool:
        """Add the suspension of a lease for each component, if there is one.

        The lease with the least memory is taken that makes a task feasible;
        if there is none, the one with the least memory.

        :param stuck: stuck components
        :returns: whether there is a suspension
        """
        touched: set[str] = set()
        for component in stuck:
            if component not in touched:
                lease = self._find_lease(self.builder.list_pending(component))
                if lease is not None:
                    touched |= self._suspend(lease)
        return bool(touched)

    def _find_lease(self, tasks: list[Task]) -> str | None:
        """Return the lease whose suspension is the cheapest."""
        if not any(map(self._lacking, tasks)):
            return None     # constraints forbid the tasks, not room
        leases = dict.fromkeys(
            task.moves[0].lease for task in tasks
            if task.kind is OperationKind.MIGRATE)
        found = []
        for lease in leases:
            members = self._suspendable(lease)
            if members:
                frees = self._frees(tasks, lease, members)
                if frees or not self.current.resumes_in_place:
                    found.append((not frees, sum(
                        one.memory_mb for one in members),
                        natural_key(lease), lease))
        return min(found)[-1] if found else None

    def _suspendable(self, lease: str) -> list[Member]:
        """Return the running members of a lease that can be suspended."""
        if lease in self.refused.leases:
            return []
        positions = self._positions()
        members = [positions[one.name] for one in self.current.leases[lease]
                   if positions[one.name].state is MemberState.RUNNING]
        return [] if any(one.fixed or not self._can_resume(one)
                         for one in members) else members

    def _can_resume(self, member: Member) -> bool:
        """Return whether a suspended member is sure to resume later."""
        if (member.floor is not None and self.current.members[
                member.name].state is MemberState.SUSPENDED):
            return False    # it may hold less than its demand
        goal = self.target.members[member.name]
        if not self.current.resumes_in_place:
            return goal.host not in self.current.closed
        return (member.host not in self.current.closed
                and (goal.host == member.host or self._final_room().fits(
                    str(member.host), member.demand)))

    def _final_room(self) -> FreeRoom:
        if self._final is None:
            self._final = FreeRoom.of(self.target)
        return self._final

    def _frees(self, tasks: list[Task], lease: str, members: list[Member]
               ) -> bool:
        """Return whether a suspension makes a task of others feasible."""
        freed = departure_task(OperationKind.SUSPEND, members).gives
        room = self.builder.room
        for host, amounts in freed:
            room.give(host, amounts)
        frees = any(task.moves[0].lease != lease and not self._lacking(task)
                    for task in tasks)
        for host, amounts in freed:
            room.take(host, amounts)
        return frees

    def _suspend(self, lease: str) -> set[str]:
        """Suspend and later resume a lease; return its components."""
        positions = self._positions()
        leaving = self._suspendable(lease)
        members = {one.name: one for one in leaving}
        bypass = set(members)
        self.refused.leases.add(lease)
        self.suspended.add(lease)
        for task in self._pending(lease):
            if task.kind is not OperationKind.BOOT:
                self.builder.remove(task)
            if task.kind is OperationKind.RESUME:
                members |= {move.member: positions[move.member]
                            for move in task.moves}
        goals = {name: str(self.target.members[name].host)
                 for name in members}
        departure = departure_task(OperationKind.SUSPEND, leaving, bypass=True)
        departure.then = (resume_task(
            self.current, [
                dataclasses.replace(one, state=MemberState.SUSPENDED)
                for one in members.values()], goals, bypass),)
        self.builder.start(departure)
        self.hosts |= {str(one.host) for one in leaving}
        return {self.builder.components.find(host)
                for host in [*(str(one.host) for one in members.values()),
                             *goals.values()]}

    def _pending(self, lease: str) -> list[Task]:
        """Return the pending tasks of a lease."""
        return list(dict.fromkeys(
            task for tasks in self.builder.arriving.values()
            for task in tasks if task.moves[0].lease == lease))

    def find_stays(self, tasks: list[Task]) -> Iterator[Move]:
        """Yield the moves of a cycle, or of a task that waits for nothing.

        The walk goes from a task to a migration that leaves its host.
        """
        path: dict[Task, None] = {}
        task = tasks[0]
        while task not in path:
            path[task] = None
            leaving = [one for host in self._lacking(task)
                       for one in self.builder.leaving[host]]
            if not leaving:
                path = {task: None}
                break
            task = min(leaving, key=lambda one: one.order)
        else:
            names = list(path)
            path = dict.fromkeys(names[names.index(task):])
        for one in path:
            yield from one.moves
