# SPDX-License-Identifier: Apache-2.0

"""Sequence of moves from one configuration to another.

Moves run in pools (Hermenier 2009, sections 4.1 and 4.2):

1. All members leave that are suspended or deleted, which needs no room.
2. Each pool has all other moves that are feasible at its start.
3. If the moves of some hosts block each other, a member goes to a pivot host.
4. Where no pivot exists, a whole lease is suspended and resumed later.
5. Where that is impossible, the members of the cycle stay, and the sequence
   is built anew without their moves.

The starting configuration may be overloaded.  The sequence always ends, since
each new attempt has fewer moves or fewer ways out of cycles.
"""

import dataclasses

from secondary_scheduler.decisions.cycles import CycleBreaker, Lessons
from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.orders import find_order
from secondary_scheduler.decisions.pools import PoolBuilder
from secondary_scheduler.decisions.stays import find_immovable, keep_members
from secondary_scheduler.decisions.tasks import (
    Order,
    Task,
    apply_moves,
    find_kind,
    list_tasks,
    sort_pool,
)
from secondary_scheduler.model.configuration import (
    Configuration,
    MemberState,
    Move,
    Switch,
    natural_key,
)


def sequence(current: Configuration, target: Configuration) -> Switch:
    """Return the pools that lead from one configuration to another.

    :param target: the same members in other states and on other hosts; a
        suspended member keeps the host where its memory is
    :returns: the pools, and the members that stay instead of following the
        target
    :raises ValueError: no operation leads to the state of a member
    """
    lessons = Lessons(set(find_immovable(current, target)))
    while True:
        aim = keep_members(current, target, lessons.stays)
        attempt = _Attempt(current, aim, lessons)
        attempt.run()
        if not attempt.learned:
            return _close(current, target, attempt.builder.pools)
        lessons.add(attempt.learned)


class _Attempt:
    """One attempt to reach a configuration.

    ``learned`` tells the next attempt what to do otherwise.
    """

    def __init__(self, current: Configuration, target: Configuration,
                 lessons: Lessons) -> None:
        self.current = current
        self.tasks = list_tasks(current, target)
        self.builder = PoolBuilder(
            FreeRoom.of(current), self.tasks, lessons.scripts)
        self.breaker = CycleBreaker(current, target, self.builder, lessons)
        self.learned = Lessons()
        self._searched: set[Order] = set()

    def run(self) -> None:
        """Build pools until no task is pending."""
        builder = self.builder
        while builder.is_pending:
            moving = builder.fill()
            stuck = {
                component: tasks for component, tasks
                in self.breaker.list_stuck(moving).items()
                if not self._find_script(component, tasks)}
            for tasks in stuck.values():
                self.breaker.use_pivot(tasks)
            if not builder.pools[-1] and not self.breaker.suspend_leases(
                    stuck):
                for tasks in stuck.values():
                    self._give_up(tasks)
            builder.end()

    def _find_script(self, component: str, pending: list[Task]) -> bool:
        """Drop a component, if another order of its tasks needs no bypass."""
        find = self.builder.components.find
        tasks = [task for task in self.tasks
                 if task.takes and find(task.takes[0][0]) == component]
        if (not tasks or tasks[0].order in self._searched
                or component in map(find, self.breaker.hosts)):
            return False
        self._searched.add(tasks[0].order)
        order = find_order(self._free_of_departures(), tasks)
        if order is None:
            return False
        self.learned.scripts.append(order)
        for task in pending:
            self.builder.remove(task)
        return True

    def _free_of_departures(self) -> FreeRoom:
        """Return the room after the first pool, without arrivals."""
        room = FreeRoom.of(self.current)
        for task in self.tasks:
            if not task.takes:
                for host, amounts in task.gives:
                    room.give(host, amounts)
        return room

    def _give_up(self, tasks: list[Task]) -> None:
        """Drop the tasks of a component, and note why it is stuck."""
        spoiled = {task.moves[0].lease for task in tasks
                   } & self.breaker.suspended
        self.learned.leases |= spoiled
        if not spoiled:
            for move in self.breaker.find_stays(tasks):
                (self.learned.members if move.bypass
                 else self.learned.stays).add(move.member)
        for task in tasks:
            self.builder.remove(task)


def _close(current: Configuration, target: Configuration,
           pools: list[list[Move]]) -> Switch:
    """Return the switch of some pools."""
    members = dict(current.members)
    for pool in pools:
        members |= {one.name: one for one in apply_moves(members, pool)}
    changed, kept = [], []
    for name, old in current.members.items():
        new, there = target.members[name], members[name]
        if new.state is MemberState.ENDED and find_kind(old, new) is None:
            there = dataclasses.replace(old, state=MemberState.ENDED)
        if (there.state, there.host) != (new.state, new.host):
            kept.append(name)
        if there is not old:
            changed.append(there)
    return Switch(
        tuple(sort_pool(pool) for pool in pools if pool),
        current.with_members(changed),
        tuple(sorted(kept, key=lambda name: (natural_key(name), name))))
