# SPDX-License-Identifier: Apache-2.0

"""Check of a plan's dependencies, independent of times.

A plan is executed as a graph, and estimates of times are wrong.  So all waits
that are needed must be dependencies (see reference/decisions, 11).  This is a
part of the checker, which shares no code with the decisions.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
import itertools

from secondary_scheduler.model.cluster import (
    Cluster,
    Instance,
    InstanceState,
    Item,
    Place,
)
from secondary_scheduler.plans.operations import Operation, OperationKind, Plan

#: Kinds that change the hosts on which an instance has claims.
MOVES = frozenset(
    {OperationKind.MIGRATE, OperationKind.SHELVE, OperationKind.UNSHELVE})
#: States in which an instance may use its host.
RUNNING = frozenset(
    {InstanceState.ACTIVE, InstanceState.BUSY, InstanceState.OTHER})


def describe(operation: Operation) -> str:
    """Return the name of an operation in messages."""
    return (f'operation {operation.id} ({operation.kind} of '
            f'{operation.instance})')


def ancestors(plan: Plan) -> dict[int, set[int]]:
    """Return, by operation, all that must have ended before its start."""
    by_id = {operation.id: operation for operation in plan.operations}
    found: dict[int, set[int]] = {}
    for one in by_id:
        found[one] = set()
        stack = list(by_id[one].after)
        while stack:
            other = stack.pop()
            if other not in found[one]:
                found[one].add(other)
                stack.extend(by_id[other].after)
    return found


class Orders:
    """Finds operations that could start too early.

    Each place is checked after each of its arrivals, when only those
    departures have happened that the arrivals wait for.

    :param holding: hosts on which each instance has claims before the plan
    :param lanes: most concurrent operations on a host, None for any number
    """

    def __init__(self, cluster: Cluster, plan: Plan,
                 holding: Mapping[str, set[str]],
                 lanes: int | None = None) -> None:
        self.cluster = cluster
        self.plan = plan
        self.lanes = lanes
        self.ancestors = ancestors(plan)
        self.residents = by_host(holding)
        self.leave: dict[str, list[Operation]] = defaultdict(list)
        self.arrive: dict[str, list[Operation]] = defaultdict(list)
        for operation in sorted(plan.operations,
                                key=lambda one: (one.start_s, one.id)):
            source, target = operation.source, operation.target
            if source is not None and source != target:
                self.leave[source].append(operation)
            if target is not None:
                self.arrive[target].append(operation)
            for item in cluster.items.values():
                if source in item.hosts and target not in item.hosts:
                    self.leave[item.name].append(operation)
            for item in entered(cluster.items.values(), operation):
                self.arrive[item.name].append(operation)

    def faults(self) -> Iterator[str]:
        """Yield messages about operations that could start too early."""
        yield from self._groups()
        yield from self._crowds()
        for place, arrivals in self.arrive.items():
            for count in range(len(arrivals)):
                yield from self._collisions(place, arrivals[:count + 1])

    def _groups(self) -> Iterator[str]:
        """Check that members of a group move one after the other."""
        moves = defaultdict(list)
        for operation in self.plan.operations:
            group = self.cluster.instances[operation.instance].anti_affinity
            if group is not None and operation.kind in MOVES:
                moves[group].append(operation)
        for group, several in moves.items():
            for one, other in itertools.combinations(several, 2):
                if (one.id not in self.ancestors[other.id]
                        and other.id not in self.ancestors[one.id]):
                    yield (f'{describe(other)}: nothing makes it wait for '
                           f'{one.id}, which moves group {group} too')

    def _crowds(self) -> Iterator[str]:
        """Check the number of concurrent operations on each host."""
        if self.lanes is None:
            return
        here: dict[str, set[int]] = defaultdict(set)
        for operation in self.plan.operations:
            for host in (operation.source, operation.target):
                if host is not None:
                    here[host].add(operation.id)
        for host, ids in here.items():
            if len(ids) > self.lanes:
                count = self._at_a_time(ids)
                if count > self.lanes:
                    yield f'too many at a time on {host}: {count} operations'

    def _at_a_time(self, ids: set[int]) -> int:
        """Return the largest number of concurrent ones among operations.

        It is the least number of chains in which each operation waits for the
        preceding one (Dilworth 1950), which a maximum matching yields.
        """
        linked: dict[int, int] = {}     # operation: the next one in its chain
        return len(ids) - sum(
            self._link(one, ids, linked, set()) for one in ids)

    def _link(self, one: int, ids: set[int], linked: dict[int, int],
              asked: set[int]) -> bool:
        """Link an operation to a predecessor, with changes of other links."""
        # Close predecessors first, which nearly always succeeds.
        for other in sorted(self.ancestors[one] & ids, reverse=True):
            if other not in asked:
                asked.add(other)
                if other not in linked or self._link(
                        linked[other], ids, linked, asked):
                    linked[other] = one
                    return True
        return False

    def _collisions(self, place: str, arrivals: list[Operation]
                    ) -> Iterator[str]:
        """Yield the faults of the last of some arrivals."""
        last = arrivals[-1]
        residents = set().union(*(self.residents[host] for host in
                                  self.cluster.hosts_of(place)))
        awaited = set().union(*(self.ancestors[one.id] for one in arrivals))
        leavers = [one for one in self.leave[place] if one.id in awaited]
        newcomers = {one.instance for one in arrivals}
        instances = self.cluster.instances
        running = {uuid for uuid in residents
                   if instances[uuid].state in RUNNING} | newcomers
        running -= {one.instance for one in leavers}
        values = self.cluster.at(place)
        for resource in broken(values, [instances[one] for one in running]):
            yield (f'{describe(last)}: nothing makes it wait until a policy '
                   f'of {place} allows more {resource}')
        if place in self.cluster.items or last.instance in residents:
            return
        there = [instances[uuid] for uuid in (residents | newcomers)
                 - {one.instance for one in leavers if one.kind in MOVES}]
        newcomer = instances[last.instance]
        for name, amount in newcomer.claims.items():
            host = self.cluster.hosts[place]
            room = host.total.get(name, 0) - host.reserved.get(name, 0)
            if amount and sum(one.claims[name] for one in there) > room:
                yield (f'{describe(last)}: nothing makes it wait until host '
                       f'{place} has room in {name}')
        group = newcomer.anti_affinity
        if group is not None and any(
                one.anti_affinity == group and one.uuid != newcomer.uuid
                for one in there):
            yield (f'{describe(last)}: nothing makes it wait until host '
                   f'{place} has no member of group {group}')


def entered(items: Iterable[Item], operation: Operation) -> list[Item]:
    """Return the items on which an operation adds a running instance."""
    return [item for item in items
            if operation.target in item.hosts
            and not (operation.kind is OperationKind.MIGRATE
                     and operation.source in item.hosts)]


def broken(place: Place, running: list[Instance]) -> Iterator[str]:
    """Yield the static resources whose policies are violated."""
    holds = {'slots': len(running), 'cores': sum(i.vcpus for i in running),
             'memory': sum(i.memory_mb for i in running)}
    for policy in place.policies:
        if holds.get(policy.resource, 0) > policy.threshold:
            yield policy.resource


def held(cluster: Cluster, plan: Plan) -> dict[str, set[str]]:
    """Return the hosts on which instances have claims now, by UUID.

    Migrating instances have claims on two.  Instances on hosts that the plan
    does not touch, and that share no item with them, are left out.
    """
    touched = {host for one in plan.operations
               for host in (one.source, one.target)} - {None}
    for item in cluster.items.values():
        if not touched.isdisjoint(item.hosts):
            touched = touched.union(item.hosts)
    named = {one.instance for one in plan.operations}
    named |= {one.instance for one in cluster.in_flight}
    hosts = {uuid: set() if instance.host is None else {instance.host}
             for uuid, instance in cluster.instances.items()
             if instance.host in touched or uuid in named}
    for one in cluster.in_flight:
        if one.target is not None:
            hosts[one.instance].add(one.target)
    return hosts


def by_host(holding: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the instances with claims, by host."""
    there: dict[str, set[str]] = defaultdict(set)
    for uuid, hosts in holding.items():
        for host in hosts:
            there[host].add(uuid)
    return there
