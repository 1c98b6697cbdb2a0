# SPDX-License-Identifier: Apache-2.0

"""Builder of the pools of a switch (Hermenier 2009, section 4.1).

A pool has all tasks that are feasible at its start with both ends charged.
What a pool frees counts from the next pool on.  A task that had no room is
examined again only after one of its hosts has been freed.

Tasks that share hosts are in one *component*.  A component without a feasible
task is stuck, and ``cycles`` finds a bypass for it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.switch_rules import SwitchRules
from secondary_scheduler.decisions.tasks import Order, Task
from secondary_scheduler.model.configuration import Configuration, Move
from secondary_scheduler.model.operation_kinds import OperationKind


class PoolBuilder:
    """State of a switch between two pools.

    :param current: the configuration at the start
    :param scripts: orders of tasks that begin only in these orders; those of
        a script have no hosts in common with other tasks
    """

    def __init__(self, current: Configuration, tasks: Iterable[Task],
                 scripts: Iterable[Sequence[Order]] = ()) -> None:
        self.room = FreeRoom.of(current)
        self.rules = SwitchRules(current)
        self.scripts = [list(script) for script in scripts]
        self._scripted: dict[Order, Task | None] = dict.fromkeys(
            order for script in self.scripts for order in script)
        self.pools: list[list[Move]] = []
        #: Pending tasks by each host where they need room.
        self.arriving: dict[str, dict[Task, None]] = defaultdict(dict)
        #: Pending migrations by the host that they leave.
        self.leaving: dict[str, dict[Task, None]] = defaultdict(dict)
        self.components = Components()
        #: Room on hosts for members that resume there and then migrate.
        self.reserved: dict[str, list[int]] = {}
        self._freed: dict[str, None] = {}
        self._ending: list[Task] = []
        departures = []
        for task in tasks:
            if task.takes:
                self.add(task)
            else:
                departures.append(task)
        self._first = departures
        #: Tasks that have room, but that placement constraints forbid.
        self._forbidden: list[Task] = []

    def add(self, task: Task) -> None:
        """Add a pending task."""
        hosts = [host for host, _ in task.takes]
        for host in hosts:
            self.arriving[host][task] = None
            self._freed[host] = None
        if task.order in self._scripted:
            self._scripted[task.order] = task
        if task.kind is OperationKind.MIGRATE:
            source = str(task.moves[0].source)
            self.leaving[source][task] = None
            hosts.append(source)
        else:
            hosts += [host for one in task.then for host, _ in one.takes]
            hosts += [host for host, amounts in task.gives if any(amounts)]
        self.components.join(hosts)
        self.components.count(hosts[0], 1)

    def remove(self, task: Task) -> None:
        """Remove a pending task."""
        for host, _ in task.takes:
            del self.arriving[host][task]
        if task.kind is OperationKind.MIGRATE:
            del self.leaving[str(task.moves[0].source)][task]
        self.components.count(task.takes[0][0], -1)

    @property
    def is_pending(self) -> bool:
        """Whether a task has not begun."""
        return bool(self._first or self.components.pending)

    def fill(self) -> set[str]:
        """Begin a pool with all feasible tasks.

        :returns: the components with hosts that the pool uses or frees
        """
        self.pools.append([])
        for task in self._first:
            self.start(task)
        self._first = []
        candidates = {task: None for host in self._freed
                      for task in self.arriving[host]}
        candidates |= dict.fromkeys(
            task for task in self._forbidden
            if task in self.arriving[task.takes[0][0]])
        self._forbidden = []
        self._freed = {}
        for script in self.scripts:
            self._follow(script)
        for task in sorted(candidates, key=lambda one: one.order):
            if (task.order not in self._scripted
                    and self._leaves_reserve(task)):
                self._try(task)
        return {self.components.find(host) for task in self._ending
                for host, _ in task.takes + task.gives}

    def _try(self, task: Task) -> bool:
        """Begin a pending task if it has room."""
        if not self._has_room(task):
            return False
        if not self.rules.admit(task.moves):
            self._forbidden.append(task)
            return False
        self.remove(task)
        self.start(task)
        return True

    def _leaves_reserve(self, task: Task) -> bool:
        """Return whether a task leaves the room that others need first."""
        return task.passes or not self.reserved or all(
            host not in self.reserved or self.room.fits(
                host, tuple(map(sum, zip(
                    amounts, self.reserved[host], strict=True))))
            for host, amounts in task.takes)

    def reserve(self, final: FreeRoom) -> None:
        """Reserve room for members that resume in place and then migrate.

        They need it for a time only, so others that need it for long wait.

        :param final: room of the configuration that is to be reached
        """
        totals: dict[str, list[int]] = {}
        for tasks in self.arriving.values():
            for task in tasks:
                for host, amounts in task.takes if task.passes else ():
                    if tasks is self.arriving[host]:
                        total = totals.setdefault(host, [0] * len(amounts))
                        for number, amount in enumerate(amounts):
                            total[number] += amount
        self.reserved = {host: total for host, total in totals.items()
                         if not final.fits(host, tuple(total))}

    def release(self, hosts: Iterable[str]) -> bool:
        """Release what is reserved on some hosts; return whether any is."""
        found = [host for host in hosts if self.reserved.pop(host, None)]
        self._freed |= dict.fromkeys(found)
        return bool(found)

    def _begin_reserved(self, task: Task) -> None:
        """Reserve no more for a task that begins."""
        for host, amounts in task.takes:
            if host in self.reserved:
                for number, amount in enumerate(amounts):
                    self.reserved[host][number] -= amount
                self._freed[host] = None

    def _follow(self, script: list[Order]) -> None:
        """Begin the next tasks of a script.

        A task may pass another one that needs room on none of its hosts.
        """
        reserved: set[str] = set()
        for order in list(script):
            task = self._scripted[order]
            if task is None:    # the task before it on its member is pending
                return
            if task not in self.arriving[task.takes[0][0]]:
                # A bypass of others has changed the tasks.
                self._drop_script(script)
                return
            hosts = {host for host, _ in task.takes}
            if reserved.isdisjoint(hosts) and self._try(task):
                script.remove(order)
            else:
                reserved |= hosts

    def _drop_script(self, script: list[Order]) -> None:
        for order in script:
            task = self._scripted.pop(order)
            self._freed |= dict.fromkeys(
                host for host, _ in (task.takes if task else ()))
        script.clear()

    def list_pending(self, component: str) -> list[Task]:
        """Return the pending tasks of a component."""
        found = {
            task: None for host in self.components.list_hosts(component)
            for task in self.arriving.get(host, ())}
        return sorted(found, key=lambda one: one.order)

    def is_scripted(self, host: str) -> bool:
        """Return whether a host belongs to a script that is not done."""
        component = self.components.find(host)
        return any(
            self.components.find(task.takes[0][0]) == component
            for script in self.scripts for order in script[:1]
            if (task := self._scripted[order]) is not None)

    def is_ruled(self, tasks: Iterable[Task]) -> bool:
        """Return whether placement constraints may forbid some tasks."""
        return self.rules.concern(
            move for task in tasks for one in (task, *task.then)
            for move in one.moves)

    def start(self, task: Task) -> None:
        """Put a task that is not pending into the pool; it has room."""
        for host, amounts in task.takes:
            self.room.take(host, amounts)
        self.rules.arrive(task.moves)
        if task.passes:
            self._begin_reserved(task)
        self.pools[-1] += task.moves
        self._ending.append(task)

    @property
    def freeing(self) -> set[str]:
        """Hosts that the pool frees."""
        return {host for task in self._ending for host, _ in task.gives}

    def end(self) -> None:
        """End the pool, and free what its tasks give."""
        ended, self._ending = self._ending, []
        for task in ended:
            for host, amounts in task.gives:
                self.room.give(host, amounts)
                self._freed[host] = None
            self.rules.leave(task.moves)
            for following in task.then:
                self.add(following)

    def _has_room(self, task: Task) -> bool:
        return all(self.room.fits(host, amounts)
                   for host, amounts in task.takes)


class Components:
    """Sets of hosts that are linked by tasks, with their pending tasks.

    A set is named by one of its hosts.
    """

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._hosts: dict[str, list[str]] = {}
        self.pending: dict[str, int] = {}

    def find(self, host: str) -> str:
        """Return the name of the set of a host."""
        parents = self._parents
        while (parent := parents.setdefault(host, host)) != host:
            parents[host] = parents[parent]
            host = parent
        return host

    def list_hosts(self, name: str) -> list[str]:
        """Return the hosts of a set."""
        return self._hosts.get(name, [name])

    def join(self, hosts: Iterable[str]) -> None:
        """Join the sets of several hosts."""
        first, *others = map(self.find, hosts)
        for other in others:
            name = self.find(other)
            if name != first:
                self._parents[name] = first
                self._hosts.setdefault(first, [first]).extend(
                    self._hosts.pop(name, [name]))
                if pending := self.pending.pop(name, 0):
                    self.count(first, pending)

    def count(self, host: str, change: int) -> None:
        """Change the number of pending tasks of the set of a host."""
        name = self.find(host)
        number = self.pending.get(name, 0) + change
        if number:
            self.pending[name] = number
        else:
            self.pending.pop(name, None)
