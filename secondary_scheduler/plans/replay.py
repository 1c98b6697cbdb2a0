# SPDX-License-Identifier: Apache-2.0

"""Replay of a plan, a part of the checker.

It checks what each operation needs, holds and leaves behind, by Nova's facts
only.  It shares no code with the decisions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
import dataclasses
import functools

from secondary_scheduler.model import units
from secondary_scheduler.model.cluster import (
    Cluster,
    Instance,
    InstanceState,
    Place,
)
from secondary_scheduler.plans.operations import Operation, OperationKind, Plan
from secondary_scheduler.plans.orders import (
    MOVES,
    RUNNING,
    broken,
    by_host,
    describe,
    entered,
)

#: Times closer than this (s) count as equal.
TOLERANCE_S = 1e-6
#: Rounding error of a sum of percentages.
_TOLERANCE = 1e-6


#: State that an operation requires, by kind.
_STATE_BEFORE = {
    OperationKind.MIGRATE: InstanceState.ACTIVE,
    OperationKind.SUSPEND: InstanceState.ACTIVE,
    OperationKind.STOP: InstanceState.ACTIVE,
    OperationKind.SHELVE: InstanceState.ACTIVE,
    OperationKind.RESUME: InstanceState.SUSPENDED,
    OperationKind.START: InstanceState.STOPPED,
    OperationKind.UNSHELVE: InstanceState.SHELVED,
}
#: State after an operation, by kind.
_STATE_AFTER = {
    OperationKind.MIGRATE: InstanceState.ACTIVE,
    OperationKind.SUSPEND: InstanceState.SUSPENDED,
    OperationKind.STOP: InstanceState.STOPPED,
    OperationKind.SHELVE: InstanceState.SHELVED,
    OperationKind.RESUME: InstanceState.ACTIVE,
    OperationKind.START: InstanceState.ACTIVE,
    OperationKind.UNSHELVE: InstanceState.ACTIVE,
}
#: Kinds of operations that stop, that start, and that start in place.
DOWN = frozenset(
    {OperationKind.SUSPEND, OperationKind.STOP, OperationKind.SHELVE})
UP = frozenset(
    {OperationKind.RESUME, OperationKind.START, OperationKind.UNSHELVE})
IN_PLACE = frozenset({OperationKind.RESUME, OperationKind.START})


class Replay:
    """Replay of a plan, event by event, at its estimated times.

    ``held`` are the hosts on which an instance has claims now, two during a
    migration; ``there`` is the same by host.  ``ongoing`` are operations by
    instance.  ``moving`` counts ongoing moves by anti-affinity group.

    :param holding: ``held`` before the plan
    """

    def __init__(self, cluster: Cluster, plan: Plan,
                 holding: Mapping[str, set[str]]) -> None:
        self.cluster = cluster
        self.plan = plan
        self.hosts = cluster.hosts
        self.items = cluster.items.values()
        self.held = dict(holding)
        self.instances = {uuid: cluster.instances[uuid] for uuid in self.held}
        self.there = by_host(self.held)
        self.ongoing: dict[str, list[Operation]] = defaultdict(list)
        self.moving: Counter[str | None] = Counter()
        self.faults: list[str] = []

    def run(self) -> list[str]:
        """Process all events in their order, and return the faults."""
        events = []
        for operation in self.plan.operations:
            end = operation.start_s + operation.duration_s
            events.append((_tick(operation.start_s), 1, operation))
            events.append((_tick(end), 0, operation))
        # At the same instant, ends come before starts.
        events.sort(key=lambda event: (event[0], event[1], event[2].id))
        for _time, starts, operation in events:
            if starts:
                self._start(operation)
            elif operation in self.ongoing[operation.instance]:
                self._end(operation)
        return self.faults

    @functools.cached_property
    def needed(self) -> set[str]:
        """Leases that run where a static policy is violated.

        Cooling down does not exclude them.
        """
        hosts = {host for place in (*self.hosts.values(), *self.items)
                 if any(policy.violated and policy.static
                        for policy in place.policies)
                 for host in self.cluster.hosts_of(place.name)}
        return {one.lease for one in self.cluster.instances.values()
                if one.host in hosts
                and one.state in (InstanceState.ACTIVE, InstanceState.BUSY)}

    def _hold(self, uuid: str, hosts: set[str]) -> None:
        for host in self.held[uuid] - hosts:
            self.there[host].discard(uuid)
        for host in hosts:
            self.there[host].add(uuid)
        self.held[uuid] = hosts

    def _start(self, operation: Operation) -> None:
        self.faults += (f'{describe(operation)}: {fault}'
                        for fault in self._obstacles(operation))
        uuid = operation.instance
        self.ongoing[uuid].append(operation)
        self.moving[self._moved_group(operation)] += 1
        if operation.target is not None:
            self._hold(uuid, self.held[uuid] | {operation.target})

    def _obstacles(self, operation: Operation) -> Iterator[str]:
        instance = self.instances[operation.instance]
        if self.ongoing[operation.instance]:
            yield 'another operation on it is under way'
        if instance.state is not _STATE_BEFORE[operation.kind]:
            yield f'the instance is {instance.state}'
        if instance.blocked or (instance.cooling_down and (
                operation.kind in UP or instance.lease not in self.needed)):
            yield 'the instance is to be left alone'
        if (instance.migration_failed
                and operation.kind is OperationKind.MIGRATE):
            yield 'a migration of it has just failed'
        if operation.source != instance.host:
            yield f'the instance is on {instance.host}'
        yield from self._wrong_hosts(operation)
        if operation.target is not None:
            yield from self._closed(operation.target)
            for item in entered(self.items, operation):
                if item.violated:
                    yield f'a policy of {item.name} is violated'
            if operation.target not in self.held[instance.uuid]:
                yield from self._crowded(operation.target, instance)
            yield from self._overrun(operation.target, operation)
            yield from self._oversized(operation.target, instance)
        group = self._moved_group(operation)
        if group is not None and self.moving[group]:
            yield f'another member of group {group} is on the move'

    def _moved_group(self, operation: Operation) -> str | None:
        return (self.instances[operation.instance].anti_affinity
                if operation.kind in MOVES else None)

    @staticmethod
    def _wrong_hosts(operation: Operation) -> Iterator[str]:
        source, target = operation.source, operation.target
        if operation.kind in DOWN and target is not None:
            yield 'an instance that goes down has no target'
        if operation.kind in IN_PLACE and target is None:
            yield 'it needs a host to come up on'
        elif operation.kind in IN_PLACE and source not in (None, target):
            yield 'it can come up on its own host only'
        if operation.kind is OperationKind.MIGRATE and (
                target is None or target == source):
            yield 'a migration needs another host'

    def _closed(self, target: str) -> Iterator[str]:
        host = self.hosts[target]
        if not host.usable:
            yield f'host {target} is not usable'
        if host.violated:
            yield f'a policy of host {target} is violated'
        if host.blocked:
            yield f'host {target} is to be left alone'

    def _crowded(self, target: str, newcomer: Instance) -> Iterator[str]:
        host = self.hosts[target]
        there = [self.instances[uuid] for uuid in self.there[target]]
        for name, amount in newcomer.claims.items():
            room = host.total.get(name, 0) - host.reserved.get(name, 0)
            if amount and amount + sum(i.claims[name] for i in there) > room:
                yield f'host {target} has no room in {name}'
        if newcomer.anti_affinity is not None and any(
                i.anti_affinity == newcomer.anti_affinity for i in there):
            yield (f'host {target} has a member of group '
                   f'{newcomer.anti_affinity}')

    def _overrun(self, target: str, operation: Operation) -> Iterator[str]:
        """Yield static policies that the arrival would violate."""
        bound: list[tuple[Place, tuple[str, ...]]] = [
            (self.hosts[target], (target,))]
        bound += [(item, item.hosts)
                  for item in entered(self.items, operation)]
        for place, hosts in bound:
            running = {operation.instance}.union(*map(self._running, hosts))
            for resource in broken(place, [
                    self.instances[uuid] for uuid in running]):
                yield f'a policy of {place.name} allows no more {resource}'

    def _oversized(self, target: str, newcomer: Instance) -> Iterator[str]:
        """Yield policies without room for instances of other sizes.

        An agent may throttle an instance to its share, but that is another
        amount on a host of another size.  An instance from there needs its
        former use.
        """
        host = self.hosts[target]
        there = {newcomer.uuid, *self.there[target]}
        for policy in host.policies:
            resource = policy.resource
            size = host.capacity(resource)
            if policy.static or size is None or policy.threshold >= 100:
                continue    # nothing exceeds 100 %
            came = sum(
                self.instances[uuid].use(resource) or 0.0 for uuid in there
                if not self.cluster.are_alike(
                    self.cluster.instances[uuid].host, target, resource))
            left = max(0.0, policy.threshold - (
                host.primary_use(resource) or 0.0))
            if came and units.to_percent(came, size) > left + _TOLERANCE:
                left = units.to_amount(left, size)
                yield (f'"{policy.text}" leaves '
                       f'{units.describe_amount(resource, left)} on host '
                       f'{target}, of which instances from hosts of another '
                       f'size use {units.describe_amount(resource, came)}')

    def _running(self, host: str) -> set[str]:
        """Return the instances that may use a host, or migrate to it."""
        return {uuid for uuid in self.there[host]
                if self.instances[uuid].state in RUNNING
                or any(one.target == host for one in self.ongoing[uuid])}

    def _end(self, operation: Operation) -> None:
        self.ongoing[operation.instance].remove(operation)
        self.moving[self._moved_group(operation)] -= 1
        instance = self.instances[operation.instance]
        host = instance.host
        if operation.kind in (OperationKind.MIGRATE, OperationKind.UNSHELVE):
            host = operation.target
        elif operation.kind is OperationKind.SHELVE:
            host = None
        self._hold(instance.uuid, set() if host is None else {host})
        self.instances[instance.uuid] = dataclasses.replace(
            instance, host=host, state=_STATE_AFTER[operation.kind])


def _tick(time_s: float) -> int:
    """Return a time in ticks, so that equal times compare equal."""
    return round(time_s / TOLERANCE_S)
