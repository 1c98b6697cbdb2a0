"""The independent checker: no plan is executed that it has not replayed.

It shares no code with the decisions and their estimates, so that an error
there cannot hide here (DESIGN.md decision 11).  It knows Nova's facts only:
what an operation needs, holds and leaves behind, event by event.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
import dataclasses
import functools
import math

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
    Orders,
    ancestors,
    broken,
    by_host,
    describe,
    entered,
    held,
)

#: Times closer than this (s) are the same.
TOLERANCE_S = 1e-6
#: What a sum of percentages may be off by rounding.
_TOLERANCE = 1e-6

_NEEDS = {
    OperationKind.MIGRATE: InstanceState.ACTIVE,
    OperationKind.SUSPEND: InstanceState.ACTIVE,
    OperationKind.STOP: InstanceState.ACTIVE,
    OperationKind.SHELVE: InstanceState.ACTIVE,
    OperationKind.RESUME: InstanceState.SUSPENDED,
    OperationKind.START: InstanceState.STOPPED,
    OperationKind.UNSHELVE: InstanceState.SHELVED,
}
_LEAVES = {
    OperationKind.MIGRATE: InstanceState.ACTIVE,
    OperationKind.SUSPEND: InstanceState.SUSPENDED,
    OperationKind.STOP: InstanceState.STOPPED,
    OperationKind.SHELVE: InstanceState.SHELVED,
    OperationKind.RESUME: InstanceState.ACTIVE,
    OperationKind.START: InstanceState.ACTIVE,
    OperationKind.UNSHELVE: InstanceState.ACTIVE,
}
_DOWN = frozenset(
    {OperationKind.SUSPEND, OperationKind.STOP, OperationKind.SHELVE})
_UP = frozenset(
    {OperationKind.RESUME, OperationKind.START, OperationKind.UNSHELVE})
_IN_PLACE = frozenset({OperationKind.RESUME, OperationKind.START})


def check(cluster: Cluster, plan: Plan,
          lanes: int | None = None) -> list[str]:
    """Replay a plan on a cluster; say in words what is wrong with it.

    An empty list means that the plan is good: each operation can start when
    the plan says, every host has room for what arrives at each instant, also
    if operations take longer than expected, deadlines are kept, no lease is
    split, and no host sees to more than ``lanes`` operations of the plan at a
    time, if that is bounded.
    """
    faults = list(_structure(cluster, plan))
    if not faults:
        faults += _times(plan)
        faults += _deadlines(cluster, plan)
        faults += _repetitions(plan)
        faults += _leases(cluster, plan)
        holding = held(cluster, plan)
        faults += _Replay(cluster, plan, holding).run()
        if not faults:
            # The plan is good if all takes as long as expected; and if not?
            faults += Orders(cluster, plan, holding, lanes).faults()
    return faults


def _structure(cluster: Cluster, plan: Plan) -> Iterator[str]:
    ids = {operation.id for operation in plan.operations}
    if len(ids) < len(plan.operations):
        yield 'two operations have the same id'
    for operation in plan.operations:
        name = describe(operation)
        instance = cluster.instances.get(operation.instance)
        if instance is None:
            yield f'{name}: the instance is unknown'
        elif instance.lease != operation.lease:
            yield f'{name}: its lease is {instance.lease}'
        if (operation.target is not None
                and operation.target not in cluster.hosts):
            yield f'{name}: host {operation.target} is unknown'
        if not (0 <= operation.start_s < math.inf
                and 0 < operation.duration_s < math.inf):
            yield f'{describe(operation)}: start or duration is no time'
        for one in set(operation.after) - ids:
            yield f'{name}: waits for {one}, which is not in the plan'
    for place in plan.unresolved:
        if place not in cluster.hosts and place not in cluster.items:
            yield f'unresolved host {place} is unknown'
    if _cyclic(plan):
        yield 'the dependencies form a cycle'


def _cyclic(plan: Plan) -> bool:
    waiting = {operation.id: set(operation.after)
               for operation in plan.operations}
    while ready := [one for one, after in waiting.items()
                    if not after & waiting.keys()]:
        for one in ready:
            del waiting[one]
    return bool(waiting)


def _times(plan: Plan) -> Iterator[str]:
    by_id = {operation.id: operation for operation in plan.operations}
    for operation in plan.operations:
        for one in operation.after:
            other = by_id[one]
            if (operation.start_s + TOLERANCE_S
                    < other.start_s + other.duration_s):
                yield (f'{describe(operation)}: starts before operation {one} '
                       'has ended')


def _deadlines(cluster: Cluster, plan: Plan) -> Iterator[str]:
    """What the plan promises is kept, and no more than policies allow.

    A violated policy is invalid ``timelimit`` checks after its first failed
    one, so that is what an operation that leaves its host may promise; while
    a host is left alone only its static policies are to be seen to.
    """
    for operation in plan.operations:
        deadline, name = operation.deadline_s, describe(operation)
        if deadline is None:
            continue
        if not deadline < math.inf:
            yield f'{name}: its deadline is no time'
        if operation.start_s + operation.duration_s > deadline + TOLERANCE_S:
            yield f'{name}: ends after its deadline, {deadline:g} s'
        host = cluster.hosts.get(operation.source or '')
        left = [] if host is None else [
            policy.timelimit - policy.failed for policy in host.policies
            if policy.violated and (policy.static or not host.blocked)]
        left += [policy.timelimit - policy.failed
                 for item in cluster.items.values()
                 if operation.source in item.hosts
                 and operation.target not in item.hosts
                 for policy in item.policies if policy.violated]
        if not left:
            yield f'{name}: has a deadline, but leaves no violated host'
        elif deadline > min(left):
            yield (f'{name}: a policy of host {operation.source} is invalid '
                   f'before its deadline, {deadline:g} s')


def _repetitions(plan: Plan) -> Iterator[str]:
    """One operation an instance, but for one that runs again and moves on."""
    before = ancestors(plan)
    of_instance = defaultdict(list)
    for operation in plan.operations:
        of_instance[operation.instance].append(operation)
    for uuid, several in of_instance.items():
        if len(several) == 1:
            continue
        first, last = several[0], several[-1]
        if first.kind is OperationKind.MIGRATE:
            first, last = last, first
        if not (len(several) == 2 and first.kind in _IN_PLACE
                and last.kind is OperationKind.MIGRATE
                and first.id in before[last.id]):
            yield f'instance {uuid} has several operations'


def _leases(cluster: Cluster, plan: Plan) -> Iterator[str]:
    down = {o.instance for o in plan.operations if o.kind in _DOWN}
    up = {o.instance for o in plan.operations if o.kind in _UP}
    if not down | up:
        return
    preempted = {cluster.instances[uuid].lease for uuid in down}
    returned = {cluster.instances[uuid].lease for uuid in up}
    for lease in sorted(preempted & returned):
        yield f'lease {lease} is both preempted and brought back'
    for instance in cluster.instances.values():
        if (
            instance.lease in preempted
            and instance.uuid not in down
            and instance.state in (InstanceState.ACTIVE, InstanceState.BUSY)
        ):
            yield (f'half of lease {instance.lease} is preempted: '
                   f'{instance.uuid} runs on')
        if (
            instance.lease in returned
            and instance.uuid not in up
            and instance.preempted
            and instance.state
            in (
                InstanceState.SUSPENDED,
                InstanceState.STOPPED,
                InstanceState.SHELVED,
                InstanceState.BUSY,
            )
        ):
            yield (f'half of lease {instance.lease} is brought back: '
                   f'{instance.uuid} stays down')
        if instance.lease in returned and instance.return_failed:
            yield (f'half of lease {instance.lease} is brought back: '
                   f'{instance.uuid} cannot come up yet')


class _Replay:
    """The hosts that a plan touches, while it goes on.

    ``held``, at first ``holding``, are the hosts on which an instance holds
    its claims now, two during a migration; ``there`` is the same by host.
    ``ongoing`` is by instance, ``moving`` counts the moves under way by
    anti-affinity group.
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
        """Let the events happen in their order; return the faults."""
        events = []
        for operation in self.plan.operations:
            end = operation.start_s + operation.duration_s
            events.append((_tick(operation.start_s), 1, operation))
            events.append((_tick(end), 0, operation))
        # What ends at an instant makes room for what starts then.
        events.sort(key=lambda event: (event[0], event[1], event[2].id))
        for _time, starts, operation in events:
            if starts:
                self._start(operation)
            elif operation in self.ongoing[operation.instance]:
                self._end(operation)
        return self.faults

    @functools.cached_property
    def called(self) -> set[str]:
        """Leases that run where a static policy is violated: none rests."""
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
        if instance.state is not _NEEDS[operation.kind]:
            yield f'the instance is {instance.state}'
        if instance.blocked or (instance.cooling_down and (
                operation.kind in _UP or instance.lease not in self.called)):
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
        if operation.kind in _DOWN and target is not None:
            yield 'an instance that goes down has no target'
        if operation.kind in _IN_PLACE and target is None:
            yield 'it needs a host to come up on'
        elif operation.kind in _IN_PLACE and source not in (None, target):
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
        """Name the static policies that one more on the host breaks."""
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
        """Name the policies that leave too little for what was elsewhere.

        An agent may hold an instance to its share, which is another amount on
        a host of another size: such an instance needs what it has used.
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
        """Return who may use a host now, or is on its way to it."""
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
            instance, host=host, state=_LEAVES[operation.kind])


def _tick(time_s: float) -> int:
    """Return a time on a grid, so that equal times compare equal."""
    return round(time_s / TOLERANCE_S)
