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

from collections import defaultdict
from collections.abc import Mapping
import dataclasses
import functools

from secondary_scheduler.decisions.cycles import CycleBreaker
from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.lessons import Lessons
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

#: Order of the tasks of a component, None if there is none without a bypass.
_Orders = dict[frozenset[Order], list[Order] | None]


def sequence(current: Configuration, target: Configuration) -> Switch:
    """Return the pools that lead from one configuration to another.

    :param target: the same members in other states and on other hosts; a
        suspended member keeps the host where its memory is
    :returns: the pools, and the members that stay instead of following the
        target
    :raises ValueError: no operation leads to the state of a member
    """
    lessons = Lessons(set(find_immovable(current, target)))
    orders: _Orders = {}
    while True:
        aim = keep_members(current, target, lessons.stays)
        attempt = _SequenceAttempt(current, aim, lessons, orders)
        attempt.run()
        if not attempt.learned:
            return _close(current, target, attempt.builder.pools)
        lessons.add(attempt.learned)


class _SequenceAttempt:
    """One attempt to reach a configuration.

    :param orders: orders of components that earlier attempts have searched;
        those that are searched now are added

    ``learned`` tells the next attempt what to do otherwise.
    """

    def __init__(self, current: Configuration, target: Configuration,
                 lessons: Lessons, orders: _Orders) -> None:
        self.current = current
        self.tasks = sorted(list_tasks(current, target),
                            key=lambda task: task.order)
        self.builder = PoolBuilder(current, self.tasks, lessons.scripts)
        self.breaker = CycleBreaker(current, target, self.builder, lessons)
        if current.resumes_in_place:
            self.builder.reserve(FreeRoom.of(target))
        self.learned = Lessons()
        self._orders = orders
        self._scripts = lessons.scripts

    def run(self) -> None:
        """Build pools until no task is pending."""
        builder, breaker = self.builder, self.breaker
        while builder.is_pending:
            moving = builder.fill()
            for task in breaker.list_dead():
                component = builder.components.find(task.takes[0][0])
                if (component in builder.components.pending
                        and not builder.is_scripted(component)
                        and not self._find_script(component)):
                    breaker.clear_homes(task)
            stuck = [one for one in breaker.list_stuck(moving)
                     if not self._find_script(one)]
            helped = [breaker.use_pivot(component) for component in stuck]
            if (not builder.pools[-1] and not any(helped)
                    and not breaker.suspend_leases(stuck)):
                for component in stuck:
                    self._give_up(component)
            builder.end()

    def _find_script(self, component: str) -> bool:
        """Drop a component, if another order of its tasks needs no bypass."""
        find = self.builder.components.find
        tasks = [task for host in self.builder.components.list_hosts(component)
                 for task in self._tasks_at.get(host, ())]
        key = frozenset(task.order for task in tasks)
        if (not tasks or component in map(find, self.breaker.hosts)
                or self.builder.is_ruled(tasks)):
            return False
        if key not in self._orders:
            self._orders[key] = find_order(self._start, tasks)
        order = self._orders[key]
        if order is None or order in self._scripts:
            return False
        if order not in self.learned.scripts:
            self.learned.scripts.append(order)
        self._drop(component)
        return True

    def _drop(self, component: str) -> None:
        for task in self.builder.list_pending(component):
            self.builder.remove(task)

    @functools.cached_property
    def _tasks_at(self) -> Mapping[str, list[Task]]:
        """Tasks by a host on which they need room."""
        found = defaultdict(list)
        for task in self.tasks:
            if task.takes:
                found[task.takes[0][0]].append(task)
        return found

    @functools.cached_property
    def _start(self) -> FreeRoom:
        """Room after the departures of the first pool, without arrivals."""
        room = FreeRoom.of(self.current)
        for task in self.tasks:
            if not task.takes:
                for host, amounts in task.gives:
                    room.give(host, amounts)
        return room

    def _give_up(self, component: str) -> None:
        """Drop the tasks of a component, and note why it is stuck."""
        tasks = self.builder.list_pending(component)
        spoiled = {task.moves[0].lease for task in tasks
                   } & self.breaker.suspended
        self.learned.leases |= spoiled
        if not spoiled:
            for move in self.breaker.find_stays(tasks):
                (self.learned.members if move.bypass
                 else self.learned.stays).add(move.member)
        self._drop(component)


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
