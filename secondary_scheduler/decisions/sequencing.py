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

from secondary_scheduler.decisions.cycles import CycleBreaker, Refusals
from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.pools import PoolBuilder
from secondary_scheduler.decisions.stays import find_immovable, keep_members
from secondary_scheduler.decisions.tasks import (
    Task,
    apply_moves,
    find_kind,
    list_tasks,
    sort_pool,
)
from secondary_scheduler.model.configuration import (
    Configuration,
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
    stays = set(find_immovable(current, target))
    refused = Refusals()
    while True:
        aim = keep_members(current, target, stays)
        attempt = _Attempt(current, aim, refused)
        attempt.run()
        if not attempt.stays and not attempt.refused:
            return _close(current, target, attempt.builder.pools)
        stays |= attempt.stays
        refused.members |= attempt.refused.members
        refused.leases |= attempt.refused.leases


class _Attempt:
    """One attempt to reach a configuration.

    ``stays`` and ``refused`` tell the next attempt what to leave out.
    """

    def __init__(self, current: Configuration, target: Configuration,
                 refused: Refusals) -> None:
        self.builder = PoolBuilder(
            FreeRoom.of(current), list_tasks(current, target))
        self.breaker = CycleBreaker(current, target, self.builder, refused)
        self.stays: set[str] = set()
        self.refused = Refusals()

    def run(self) -> None:
        """Build pools until no task is pending."""
        builder = self.builder
        while builder.is_pending:
            moving = builder.fill()
            stuck = self.breaker.list_stuck(moving)
            for tasks in stuck.values():
                self.breaker.use_pivot(tasks)
            if not builder.pools[-1] and not self.breaker.suspend_leases(
                    stuck):
                for tasks in stuck.values():
                    self._give_up(tasks)
            builder.end()

    def _give_up(self, tasks: list[Task]) -> None:
        """Drop the tasks of a component, and note why it is stuck."""
        spoiled = {task.moves[0].lease for task in tasks
                   } & self.breaker.suspended
        self.refused.leases |= spoiled
        if not spoiled:
            for move in self.breaker.find_stays(tasks):
                (self.refused.members if move.bypass
                 else self.stays).add(move.member)
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
        if find_kind(old, new) is None:
            changed.append(new)     # ended without an operation
        elif (there.state, there.host) != (new.state, new.host):
            kept.append(name)
        if there is not old:
            changed.append(there)
    return Switch(
        tuple(sort_pool(pool) for pool in pools if pool),
        current.with_members(changed),
        tuple(sorted(kept, key=lambda name: (natural_key(name), name))))
