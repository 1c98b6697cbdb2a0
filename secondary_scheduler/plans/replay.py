# SPDX-License-Identifier: Apache-2.0

"""Replay of a plan, a part of the checker.

It checks what each operation needs, holds and leaves behind, by Nova's facts
only.  It shares no code with the decisions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
import functools
import math

from secondary_scheduler.model import units
from secondary_scheduler.model.cluster import (
    Cluster,
    Instance,
    InstanceState,
)
from secondary_scheduler.model.lazy import Lazy
from secondary_scheduler.plans.constraint_checks import ConstraintChecks
from secondary_scheduler.plans.operations import (
    ClaimedState,
    Operation,
    OperationKind,
    Plan,
)
from secondary_scheduler.plans.orders import (
    by_host,
    describe,
    room_for_claims,
    static_limits,
)
from secondary_scheduler.plans.presences import MOVES, RUNNING

#: Times closer than this (s) count as equal.
TOLERANCE_S = 1e-6
#: Rounding error of a sum of percentages.
_TOLERANCE = 1e-6
#: Most of what a policy leaves with which a single instance counts.
_MOST_PART = 0.8


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

    ``states`` has the state and the host of each instance, ``held`` the hosts
    on which it has claims now, two during a migration; ``there`` is the same
    by host.  ``ongoing`` are operations by instance.  ``moving`` counts
    ongoing moves by anti-affinity group.  ``claimed`` and ``used`` are the
    amounts of instances with claims on a host, and of those running on a
    place with static policies.

    :param holding: ``held`` before the plan
    """

    def __init__(self, cluster: Cluster, plan: Plan,
                 holding: Mapping[str, set[str]]) -> None:
        self.cluster = cluster
        self.plan = plan
        self.hosts = cluster.hosts
        self.held = dict(holding)
        self.instances = cluster.instances
        self.states = {uuid: ClaimedState(one.state, one.host)
                       for uuid in self.held
                       for one in (cluster.instances[uuid],)}
        self.there = by_host(self.held)
        self.ongoing: dict[str, list[Operation]] = defaultdict(list)
        self.moving: Counter[str | None] = Counter()
        self.claimed = Lazy(self._count_claims)
        self.limits = Lazy(functools.partial(static_limits, cluster))
        self.used = Lazy(self._count_use)
        self.constraints = ConstraintChecks(cluster, self.held, self.there)
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
        hosts = {host for place in (*self.hosts.values(),
                                    *self.cluster.items.values())
                 if any(policy.violated and policy.static
                        for policy in place.policies)
                 for host in self.cluster.hosts_of(place.name)}
        return {one.lease for one in self.cluster.instances.values()
                if one.host in hosts
                and one.state in (InstanceState.ACTIVE, InstanceState.BUSY)}

    def _count_claims(self, host: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for uuid in self.there[host]:
            total.update(self.instances[uuid].claims)
        return total

    def _count_use(self, place: str) -> Counter[str]:
        return Counter({resource: sum(
            self.instances[uuid].holds(resource) for uuid in {
                uuid for host in self.cluster.hosts_of(place)
                for uuid in self.there[host] if self._runs_on(uuid, place)})
            for resource in self.limits[place]})

    def _runs_on(self, uuid: str, place: str) -> bool:
        """Return whether an instance may use a place, or migrate to it."""
        runs = self.states[uuid].state in RUNNING
        return any(place in self.cluster.places(host) and (runs or any(
            one.target == host for one in self.ongoing[uuid]))
            for host in self.held[uuid])

    def _change(self, operation: Operation, hosts: set[str],
                state: ClaimedState | None = None) -> None:
        """Change an instance's hosts, and its state if an operation ends.

        An operation that does not end starts.
        """
        uuid = operation.instance
        places = {place for host in self.held[uuid] | hosts
                  for place in self.cluster.places(host)
                  if self.limits[place]}
        self._count(uuid, places, -1)
        claims = self.instances[uuid].claims
        for host in self.held[uuid] - hosts:
            self.claimed[host].subtract(claims)
            self.there[host].discard(uuid)
        for host in hosts - self.held[uuid]:
            self.claimed[host].update(claims)
            self.there[host].add(uuid)
        self.held[uuid] = hosts
        if state is None:
            self.ongoing[uuid].append(operation)
        else:
            self.ongoing[uuid].remove(operation)
            self.states[uuid] = state
        self._count(uuid, places, 1)

    def _count(self, uuid: str, places: set[str], sign: int) -> None:
        for place in places:
            used = self.used[place]
            if self._runs_on(uuid, place):
                for resource in self.limits[place]:
                    used[resource] += sign * self.instances[uuid].holds(
                        resource)

    def _start(self, operation: Operation) -> None:
        self.faults += (f'{describe(operation)}: {fault}'
                        for fault in self._obstacles(operation))
        self.moving[self._moved_group(operation)] += 1
        self._change(operation, self.held[operation.instance] | (
            set() if operation.target is None else {operation.target}))

    def _obstacles(self, operation: Operation) -> Iterator[str]:
        instance = self.instances[operation.instance]
        state, host = self.states[operation.instance]
        if self.ongoing[operation.instance]:
            yield 'another operation on it is under way'
        if state is not _STATE_BEFORE[operation.kind]:
            yield f'the instance is {state}'
        if instance.blocked or (instance.cooling_down and (
                operation.kind in UP or instance.lease not in self.needed)):
            yield 'the instance is to be left alone'
        if (instance.migration_failed
                and operation.kind is OperationKind.MIGRATE):
            yield 'a migration of it has just failed'
        if operation.source != host:
            yield f'the instance is on {host}'
        yield from self._wrong_hosts(operation)
        if operation.target is not None:
            yield from self._closed(operation.target)
            for place in self._entered(operation):
                if (place in self.cluster.items
                        and self.cluster.items[place].violated):
                    yield f'a policy of {place} is violated'
            if operation.target not in self.held[instance.uuid]:
                yield from self._crowded(operation.target, instance)
            yield from self._overrun(operation.target, operation)
            yield from self._oversized(operation.target, instance)
        yield from self.constraints.broken_by(operation)
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
        if operation.kind in UP and target is None:
            yield 'it needs a host to come up on'
        elif operation.kind in UP and source not in (None, target):
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
        for resource, name in (('cpu', 'CPUs'), ('mem', 'memory')):
            if host.capacity(resource) == 0:
                yield f'host {target} has no {name}'

    def _crowded(self, target: str, newcomer: Instance) -> Iterator[str]:
        claimed = self.claimed[target]
        for name, room in room_for_claims(
                self.hosts[target], self.plan).items():
            amount = newcomer.claims[name]
            if amount and amount + claimed[name] > room:
                yield f'host {target} has no room in {name}'
        group = newcomer.anti_affinity
        if group is not None and any(
                self.instances[uuid].anti_affinity == group
                for uuid in self.there[target]):
            yield f'host {target} has a member of group {group}'

    def _entered(self, operation: Operation) -> Iterator[str]:
        """Yield the places on which an operation adds a running instance."""
        left = (self.cluster.places(operation.source)
                if operation.kind is OperationKind.MIGRATE
                and operation.source is not None else ())
        for place in self.cluster.places(str(operation.target)):
            if place not in left:
                yield place

    def _overrun(self, target: str, operation: Operation) -> Iterator[str]:
        """Yield static policies that the arrival would violate."""
        newcomer = self.instances[operation.instance]
        for place in dict.fromkeys((target, *self._entered(operation))):
            limits = self.limits[place]
            if not limits:
                continue
            used = self.used[place]
            counted = self._runs_on(newcomer.uuid, place)
            for resource, limit in limits.items():
                if used[resource] + (0 if counted else newcomer.holds(
                        resource)) > limit:
                    yield f'a policy of {place} allows no more {resource}'

    def _oversized(self, target: str, newcomer: Instance) -> Iterator[str]:
        """Yield policies without room for instances of other sizes.

        An agent may throttle an instance to its share, but that is another
        amount on a host of another size.  An instance from there needs its
        former use.  A switch counts with demand, which may be more than any
        host has: there an instance needs at most a large part of a host.
        """
        host = self.hosts[target]
        there = {newcomer.uuid, *self.there[target]}
        for policy in host.policies:
            resource = policy.resource
            size = host.capacity(resource)
            if policy.static or size is None or (
                    size and policy.threshold >= 100):
                continue    # nothing exceeds 100 % of what there is
            left = units.to_amount(max(0.0, policy.threshold - (
                host.primary_use(resource) or 0.0)), size)
            most = math.inf if self.plan.switch is None else _MOST_PART * left
            came = sum(
                min(self.instances[uuid].use(resource) or 0.0, most)
                for uuid in there if not self.cluster.are_alike(
                    self.cluster.instances[uuid].host, target, resource))
            if units.to_percent(came - left, size) > _TOLERANCE:
                yield (f'"{policy.text}" leaves '
                       f'{units.describe_amount(resource, left)} on host '
                       f'{target}, of which instances from hosts of another '
                       f'size use {units.describe_amount(resource, came)}')

    def _end(self, operation: Operation) -> None:
        self.moving[self._moved_group(operation)] -= 1
        host = self.states[operation.instance].host
        if operation.kind in (OperationKind.MIGRATE, OperationKind.UNSHELVE):
            host = operation.target
        elif operation.kind is OperationKind.SHELVE:
            host = None
        self._change(operation, set() if host is None else {host},
                     ClaimedState(_STATE_AFTER[operation.kind], host))


def _tick(time_s: float) -> int:
    """Return a time in ticks, so that equal times compare equal."""
    return round(time_s / TOLERANCE_S)
