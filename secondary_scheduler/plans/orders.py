# SPDX-License-Identifier: Apache-2.0

"""Check of a plan's dependencies, independent of times.

A plan is executed as a graph, and estimates of times are wrong.  So all waits
that are needed must be dependencies (see reference/decisions, 11).  This is a
part of the checker, which shares no code with the decisions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
import functools
import itertools
import math
import operator

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import Cluster, Host, Instance
from secondary_scheduler.plans.antichains import (
    count_chains,
    heaviest_antichain,
)
from secondary_scheduler.plans.constraint_checks import ConstraintOrders
from secondary_scheduler.plans.operations import Operation, OperationKind, Plan
from secondary_scheduler.plans.presences import (
    MOVES,
    RUNNING,
    Presence,
    Presences,
)
from secondary_scheduler.plans.reachability import Reachability

#: Operations that are carried out together, as one.
Together = tuple[Operation, ...]


def describe(operation: Operation) -> str:
    """Return the name of an operation in messages."""
    return (f'operation {operation.id} ({operation.kind} of '
            f'{operation.instance})')


class Orders:
    """Finds operations that could start too early.

    Each arrival is checked with all instances that may be on its place at the
    same time in some execution.

    :param holding: hosts on which each instance has claims before the plan
    :param reach: dependencies of the plan
    :param lanes: most concurrent operations on a host, None for any number
    """

    def __init__(self, cluster: Cluster, plan: Plan,
                 holding: Mapping[str, set[str]], reach: Reachability,
                 lanes: int | None = None) -> None:
        self.cluster = cluster
        self.plan = plan
        self.lanes = lanes
        self.reach = reach
        self.presences = Presences(cluster, reach, holding)
        operated = {one.instance for one in plan.operations}
        #: Instances without operations, by host.
        self.staying = by_host({
            uuid: hosts for uuid, hosts in holding.items()
            if uuid not in operated})
        self.constraints = ConstraintOrders(
            cluster, self.presences, holding, self.staying)

    def faults(self) -> Iterator[str]:
        """Yield messages about operations that could start too early."""
        yield from self._groups()
        yield from self._crowds()
        yield from self._policies()
        for one, constraint in self.constraints.conflicts():
            if one.arrival is not None:
                yield (f'{describe(one.arrival)}: nothing makes it wait until '
                       f'it cannot break {constraint}')
        for host, presences in self.presences.claims.items():
            if any(one.arrival is not None for one in presences):
                yield from self._claims(self.cluster.hosts[host], presences)

    def _groups(self) -> Iterator[str]:
        """Check that members of a group move one after the other."""
        moves = defaultdict(list)
        for operation in self.reach.order:
            group = self.cluster.instances[operation.instance].anti_affinity
            if group is not None and operation.kind in MOVES:
                moves[group].append(operation)
        for group, several in moves.items():
            for one, other in itertools.pairwise(several):
                if not self.reach.precedes(one, other):
                    yield (f'{describe(other)}: nothing makes it wait for '
                           f'{one.id}, which moves group {group} too')

    def _crowds(self) -> Iterator[str]:
        """Check the number of concurrent operations on each host."""
        if self.lanes is None:
            return
        for host, here in self._together().items():
            if (len(here) > self.lanes
                    and count_chains(here, self._precedes) > self.lanes):
                count = self._at_a_time(here)
                if count > self.lanes:
                    yield f'too many at a time on {host}: {count} operations'

    def _at_a_time(self, here: Sequence[Together]) -> int:
        """Return the largest number of concurrent ones."""
        return heaviest_antichain(
            [1] * len(here),
            lambda one, other: self._precedes(here[one], here[other]))

    def _together(self) -> dict[str, list[Together]]:
        """Return what needs a lane, by host.

        In a context switch, suspends of a lease are one operation on a host,
        and so are resumes.
        """
        found: dict[str, dict[object, list[Operation]]] = defaultdict(dict)
        for one in self.reach.order:
            key = (one.id if self.plan.switch is None
                   or one.kind not in GROUPED else (one.lease, one.kind))
            for host in {one.source, one.target} - {None}:
                found[str(host)].setdefault(key, []).append(one)
        return {host: list(map(tuple, by_key.values()))
                for host, by_key in found.items()}

    def _precedes(self, one: Together, other: Together) -> bool:
        return all(self.reach.precedes(former, latter)
                   for former in one for latter in other)

    def _policies(self) -> Iterator[str]:
        """Check static policies of hosts and items."""
        for place, presences in self.presences.running.items():
            if not any(one.arrival is not None for one in presences):
                continue
            limits = static_limits(self.cluster, place)
            if not limits:
                continue
            staying = [one for host in self.cluster.hosts_of(place)
                       for one in self._staying(host)
                       if one.state in RUNNING]
            for resource, limit in limits.items():
                amount = operator.methodcaller('holds', resource)
                for arrival in self.presences.overfull(
                        presences, limit - sum(map(amount, staying)), amount):
                    yield (f'{describe(arrival)}: nothing makes it wait until '
                           f'a policy of {place} allows more {resource}')

    def _claims(self, host: Host, presences: Sequence[Presence]
                ) -> Iterator[str]:
        """Check inventories and groups of a host."""
        staying = list(self._staying(host.name))
        taken: Counter[str] = Counter()
        for one in staying:
            taken.update(one.claims)
        claims = {one.instance.uuid: one.instance.claims
                  for one in presences}
        for name, room in room_for_claims(host, self.plan).items():
            amounts = {uuid: one[name] for uuid, one in claims.items()}
            for arrival in self.presences.overfull(
                    presences, room - taken[name],
                    functools.partial(_amount, amounts)):
                if amounts[arrival.instance]:
                    yield (f'{describe(arrival)}: nothing makes it wait until '
                           f'host {host.name} has room in {name}')
        for newcomer in presences:
            group = newcomer.instance.anti_affinity
            if (group is not None and newcomer.arrival is not None
                    and self._meets(newcomer, presences, staying)):
                yield (f'{describe(newcomer.arrival)}: nothing makes it wait '
                       f'until host {host.name} has no member of group '
                       f'{group}')

    def _staying(self, host: str) -> Iterator[Instance]:
        return (self.cluster.instances[one]
                for one in self.staying.get(host, ()))

    def _meets(self, arrival: Presence, presences: Iterable[Presence],
               staying: Iterable[Instance]) -> bool:
        """Return whether an arrival may meet another member of its group."""
        group, uuid = (arrival.instance.anti_affinity, arrival.instance.uuid)
        return any(one.anti_affinity == group for one in staying) or any(
            one.instance.anti_affinity == group and one.instance.uuid != uuid
            and self.presences.overlap(one, arrival) for one in presences)


def _amount(amounts: Mapping[str, int], instance: Instance) -> int:
    return amounts[instance.uuid]


#: Kinds whose operations on members of a lease are one in a context switch.
GROUPED = frozenset({OperationKind.SUSPEND, OperationKind.RESUME})


def static_limits(cluster: Cluster, place: str) -> dict[str, float]:
    """Return the lowest thresholds of the static policies of a place."""
    limits: dict[str, float] = {}
    if place not in cluster.hosts and place not in cluster.items:
        return limits
    for policy in cluster.at(place).policies:
        if policy.static:
            limits[policy.resource] = min(
                policy.threshold, limits.get(policy.resource, math.inf))
    return limits


def room_for_claims(host: Host, plan: Plan) -> dict[str, int]:
    """Return the inventory of a host for claims, by resource class.

    A context switch leaves what the lease schedule keeps.
    """
    held = {} if plan.switch is None else host.held
    return {name: (host.total.get(name, 0) - host.reserved.get(name, 0)
                   - held.get(name, 0))
            for name in vocabulary.RESOURCE_CLASSES}


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
