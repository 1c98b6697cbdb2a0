# SPDX-License-Identifier: Apache-2.0

"""Demand of instances and capacity of hosts, in two ledgers.

Claims in Placement are held by running and by suspended instances, and count
against the inventory.  Demand is what an instance wants, as opposed to what
it uses: a throttled instance wants its vCPUs.  Only running instances have
one, and it counts against the policies beside the use by primaries.  Both
ledgers respect the holds of the lease schedule.
"""

from collections.abc import Iterable
import functools
import math
import typing

from secondary_scheduler.estimation.room import (
    RUNNING,
    LoadLimits,
    planned_limit,
)
from secondary_scheduler.model import units, vocabulary
from secondary_scheduler.model.cluster import Cluster, Host, Instance, Place
from secondary_scheduler.model.configuration import Amounts
from secondary_scheduler.model.lazy import Lazy
from secondary_scheduler.model.resources import STATIC, UNTHROTTLED

#: Dimensions of the claims in Placement, by resource class.
CLAIMS = {vocabulary.MEMORY_MB: 'claimed_memory_mb',
          vocabulary.VCPU: 'claimed_vcpus',
          vocabulary.DISK_GB: 'claimed_disk_gb',
          vocabulary.SLOT: 'claimed_slots'}
#: Measured amounts are in thousandths of their units, such as milli-CPUs.
SCALE = 1000
#: More than any sum of amounts, for a resource that nothing limits there.
UNLIMITED = 1 << 40
#: Most of its host's CPU with which a single instance counts.
_MOST_PART = 0.8
#: Rounding error of an amount, in thousandths of its unit.
_EPSILON = 1e-3


def wanted_cpu(instance: Instance) -> float | None:
    """Return the CPUs that an instance wants, None if that is unknown.

    A running instance without limits wants what it uses.  One that is down
    and has no known demand counts with its vCPUs, so that it starts only
    where it fits at full use.
    """
    if instance.wanted_cpu is not None:
        return max(0.0, instance.wanted_cpu)
    if instance.cpu is not None:
        return max(0.0, instance.cpu)
    return None if instance.state in RUNNING else float(instance.vcpus)


class Ledgers:
    """Amounts of instances and hosts in the dimensions of a cluster.

    Beside CPU, dimensions exist for the resources of which any place has a
    policy.
    """

    def __init__(self, cluster: Cluster, limits: LoadLimits) -> None:
        self.cluster = cluster
        self.limits = limits
        named = {policy.resource
                 for place in (*cluster.hosts.values(),
                               *cluster.items.values())
                 for policy in place.policies} - {'cpu'}
        #: Resources of the second ledger.
        self.resources = ('cpu', *sorted(named))
        self.dimensions = (*CLAIMS.values(), *self.resources)
        #: Demand of a running instance of which the use is unknown.
        self._assumed: Lazy[str, int] = Lazy(self._assume)
        self._most_cpu: Lazy[str, float] = Lazy(self._find_most_cpu)
        self._kept_at_floor = (*(True for _one in CLAIMS), *(
            one in UNTHROTTLED for one in self.resources))
        self._nothing = (0,) * len(self.resources)

    def demand(self, instance: Instance) -> Amounts | None:
        """Return the amounts that an instance needs where it runs.

        One that is to start needs some CPU, however idle it was.  So it starts
        on no host of which primaries use all that policies leave.

        :returns: None if its demand of CPU is unknown
        """
        cpu = self.cpu(instance)
        if cpu is None:
            return None
        others = self.resources[1:]
        claims = (instance.memory_mb, instance.vcpus, instance.disk_gb, 1,
                  max(math.ceil(cpu * SCALE - _EPSILON),
                      int(instance.state not in RUNNING)))
        return (*claims, *(self._use(instance, one) for one in others)
                ) if others else claims

    def cpu(self, instance: Instance) -> float | None:
        """Return the CPUs that an instance wants and could have.

        That is at most a large part of what its own host can give, since a
        throttled instance may want more than any host has.  So it may run
        beside idle ones.  An instance without a host is compared with the
        host that can give most.  Known use counts in any case.

        :returns: None if it is unknown
        """
        cpu = wanted_cpu(instance)
        return None if cpu is None else max(
            min(cpu, self._most_cpu[instance.host or '']), instance.cpu or 0.0)

    def growth(self, instance: Instance) -> int:
        """Return by how much the demand of CPU can grow, in thousandths.

        An instance that wants all of its vCPUs, or all that its host can give
        it, cannot want more.
        """
        cpu = self.cpu(instance)
        most = min(instance.vcpus, self._most_cpu[instance.host or ''])
        return 0 if cpu is None else max(0, math.ceil((most - cpu) * SCALE))

    def _find_most_cpu(self, name: str) -> float:
        """Return the CPUs that a host can give to one instance.

        A host that cannot even give a share on which an instance may enter
        counts with that share, which does not fit there.

        :param name: '' stands for all open hosts
        """
        if not name:
            return max((self._most_cpu[host] for host in self.cluster.hosts
                        if self.cluster.is_open(host)), default=math.inf)
        host = self.cluster.hosts.get(name)
        limit = None if host is None else self._limit(
            host, 'cpu', self.limits.margin)
        if host is None or limit is None:
            return math.inf
        return max(_MOST_PART * limit / SCALE, units.to_amount(
            self.limits.entry_share, host.cpus))

    def claim(self, instance: Instance) -> Amounts:
        """Return the amounts that an instance holds while it is down."""
        return (instance.memory_mb, instance.vcpus, instance.disk_gb, 1,
                *self._nothing)

    def floor(self, demand: Amounts) -> Amounts:
        """Return what an instance needs while its agent takes it to the floor.

        That is the demand without resources that an agent can limit.
        """
        return tuple(amount if keeps else 0 for amount, keeps
                     in zip(demand, self._kept_at_floor, strict=True))

    def held(self, instance: Instance) -> Amounts:
        """Return what an instance takes on its host now.

        Unknown demand counts as none: its host is closed.
        """
        if instance.state not in RUNNING:
            return self.claim(instance)
        return self.demand(instance) or self.claim(instance)

    def _use(self, instance: Instance, resource: str) -> int:
        if resource in STATIC:
            return instance.holds(resource)
        use = instance.use(resource)
        return (self._assumed[resource] if use is None
                else math.ceil(max(0.0, use) * SCALE - _EPSILON))

    def _assume(self, resource: str) -> int:
        """Return an entry share of the largest host (see ``Rooms``)."""
        largest = self.cluster.capacity(None, resource) or 0.0
        return math.ceil(units.to_amount(
            self.limits.entry_share, largest) * SCALE - _EPSILON)

    def capacity(self, host: Host) -> list[int] | None:
        """Return the capacity of a host for all its secondaries.

        :returns: None if use by primaries is unknown, or without policies
        """
        if not host.policies:
            return None
        limits = [self._limit(host, one, self.limits.margin)
                  for one in self.resources]
        if None in limits:
            return None
        return [*(host.total.get(name, 0) - host.reserved.get(name, 0)
                  for name in CLAIMS), *typing.cast(list[int], limits)]

    def _limit(self, place: Place, resource: str, margin: float
               ) -> int | None:
        """Return the limit of the policies of a place on a resource."""
        policies = [one for one in place.policies
                    if one.resource == resource]
        if resource in STATIC:
            return min((int(one.threshold) for one in policies),
                       default=UNLIMITED)
        if not policies and not (resource == 'cpu'
                                 and isinstance(place, Host)):
            return UNLIMITED
        primary = place.primary_use(resource)
        size = self.cluster.capacity(_name(place), resource)
        if primary is None or size is None:
            return None
        limit = min((planned_limit(one, margin) for one in policies),
                    default=units.WHOLE - margin)
        return math.floor(units.to_amount(limit - primary, size) * SCALE
                          + _EPSILON)

    def share_items(self, capacity: dict[str, list[int]],
                    taken: dict[str, list[int]]) -> set[str]:
        """Divide what the policies of items leave among their hosts.

        Each host may use what it takes now, and an equal part of the rest.
        So no sum of the hosts can exceed the limit of an item.

        :param capacity: is reduced, by host
        :param taken: amounts that are taken now, by host
        :returns: hosts of items of which use by primaries is unknown
        """
        unknown: set[str] = set()
        offset = len(CLAIMS)
        for name, resource in self._item_policies:
            item = self.cluster.items[name]
            limit = self._limit(item, resource, self.limits.margin)
            hosts = [one for one in item.hosts if one in capacity]
            if limit is None:
                unknown.update(item.hosts)
                continue
            index = offset + self.resources.index(resource)
            free = limit - sum(taken[one][index] for one in hosts)
            part = free // len(hosts) if hosts else 0
            for one in hosts:
                capacity[one][index] = min(
                    capacity[one][index], max(0, taken[one][index] + part))
        return unknown

    @functools.cached_property
    def _item_policies(self) -> list[tuple[str, str]]:
        return sorted({(item.name, policy.resource)
                       for item in self.cluster.items.values()
                       for policy in item.policies})

    def kept_free(self, host: Host) -> list[int]:
        """Return what a host keeps for servers that are about to start.

        They count with all their vCPUs and memory.
        """
        claims = [host.held.get(name, 0) for name in CLAIMS]
        memory, vcpus, _disk, slots = claims
        known = {'cpu': vcpus * SCALE, 'mem': memory * SCALE,
                 'memory': memory, 'cores': vcpus, 'slots': slots}
        return [*claims, *(known.get(one, 0) for one in self.resources)]


def add(total: list[int], amounts: Iterable[int], sign: int = 1) -> None:
    """Add amounts to a total in place, or subtract them."""
    for number, amount in enumerate(amounts):
        total[number] += sign * amount


def _name(place: Place) -> str:
    return place.name
