# SPDX-License-Identifier: Apache-2.0

"""Room on the hosts of a cluster under changes of instances."""

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from secondary_scheduler.estimation.room import (
    EPSILON,
    RUNNING,
    LoadLimits,
    can_throttle,
    capacity,
    planned_limit,
)
from secondary_scheduler.model.cluster import Cluster, HostPolicy, Instance
from secondary_scheduler.model.constraints import (
    Among,
    Constraint,
    Gather,
    Occupancy,
)
from secondary_scheduler.model.lazy import Lazy
from secondary_scheduler.model.resources import STATIC


class Rooms:
    """Room on each host of a cluster under changes of instances.

    A change is a ``take`` of the old value and a ``put`` of the new one.  A
    query costs a pass over the instances of one host.  Values of other hosts
    are never computed.
    """

    def __init__(self, cluster: Cluster, limits: LoadLimits) -> None:
        self.hosts = cluster.hosts
        self.limits = limits
        self._cluster = cluster
        self._changed: dict[str, Mapping[str, Instance]] = {}
        self._coming: dict[str, list[Instance]] = defaultdict(list)
        self._capacity: dict[tuple[str, float], int] = {}
        self._free: Lazy[str, Mapping[str, int]] = Lazy(self._left)
        self._unclaimed: Lazy[str, float] = Lazy(self._left_by_all)
        # By place and resource: instances that may use it, and their use.
        self._uses: Lazy[tuple[str, str], tuple[
            dict[str, Instance], float]] = Lazy(self._sum_of_uses)
        self._emptiest: list[tuple[float, str]] | None = None
        for one in cluster.in_flight:
            comer = cluster.instances[one.instance]
            if one.target is not None and one.target != comer.host:
                self._coming[one.target].append(comer)

    def put(self, instance: Instance) -> None:
        """Count an instance on its host."""
        if instance.host is not None:
            self._change(instance.host, {
                **self.residents(instance.host), instance.uuid: instance})

    def take(self, instance: Instance) -> None:
        """Stop counting an instance on its host."""
        if instance.host is not None:
            there = dict(self.residents(instance.host))
            there.pop(instance.uuid, None)
            self._change(instance.host, there)

    def _change(self, host: str, residents: Mapping[str, Instance]) -> None:
        before = [] if self._emptiest is None else self._place(host)
        self._keep_uses(host, self.residents(host), residents)
        self._changed[host] = residents
        self._free.pop(host, None)
        self._unclaimed.pop(host, None)
        if self._emptiest is not None:
            for place in before:
                self._emptiest.pop(bisect.bisect_left(self._emptiest, place))
            for place in self._place(host):
                bisect.insort(self._emptiest, place)

    def _keep_uses(self, host: str, old: Mapping[str, Instance],
                   new: Mapping[str, Instance]) -> None:
        """Update the cached use of a host and of its items incrementally.

        A new sum would cost a pass over all hosts of an item.
        """
        changed = [uuid for uuid in {**old, **new}
                   if old.get(uuid) is not new.get(uuid)]
        for key in {(name, policy.resource)
                    for name in self._cluster.places(host)
                    for policy in self._cluster.at(name).policies}:
            if key not in self._uses:
                continue
            there, used = self._uses[key]
            for uuid in changed:
                gone, comes = there.pop(uuid, None), new.get(uuid)
                if gone is not None:
                    used -= self._use(gone, *key)
                if comes is not None and comes.state in RUNNING:
                    there[uuid] = comes
                    used += self._use(comes, *key)
            self._uses[key] = there, used

    def residents(self, host: str) -> Mapping[str, Instance]:
        """Return the instances on a host, by UUID."""
        if host in self._changed:
            return self._changed[host]
        return {one.uuid: one for one in self._cluster.residents(host)}

    def _holders(self, host: str) -> list[Instance]:
        """Return the instances on a host and those migrating to it."""
        return [*self.residents(host).values(), *self._coming.get(host, ())]

    def _sum_of_uses(self, key: tuple[str, str]
                     ) -> tuple[dict[str, Instance], float]:
        place, resource = key
        there = {one.uuid: one for host in self._cluster.hosts_of(place)
                 for one in self._holders(host) if one.state in RUNNING}
        return there, sum(self._use(one, place, resource)
                          for one in there.values())

    def _use(self, instance: Instance, place: str, resource: str) -> float:
        """Return an instance's use of a place, in percent.

        Unknown use counts as an entry share.  The amount of a static resource
        is in its unit.
        """
        if resource in STATIC:
            return instance.holds(resource)
        use = self._cluster.percent(place, resource, instance)
        return (self.limits.entry_share * self._cluster.at(place).part
                if use is None else use)

    def running(self, host: str) -> int:
        """Return the number of secondaries that may use the host."""
        return _running(self._holders(host))

    def emptiest(self) -> Iterator[str]:
        """Yield hosts with a useful share for another instance.

        The emptiest come first.  All hosts are sorted once; later only those
        that change are moved.
        """
        if self._emptiest is None:
            self._emptiest = sorted(
                place for name in self.hosts for place in self._place(name))
        return (name for _spare, name in self._emptiest)

    def _place(self, host: str) -> list[tuple[float, str]]:
        """Return the sort key of a host, nothing if it is full."""
        if host not in self.hosts or not self.has_useful_share(host):
            return []
        return [(-self.spare(host), host)]

    def capacity(self, host: str, share: float) -> int:
        """Return the number of secondaries with room at a share each."""
        key = (host, share)
        if key not in self._capacity:
            self._capacity[key] = capacity(
                self.hosts[host], share, self.limits.margin)
        return self._capacity[key]

    def has_minimum_share(self, host: str) -> bool:
        """Return whether another instance would have its minimum share."""
        return self.running(host) < self.capacity(
            host, self.limits.minimum_share)

    def has_useful_share(self, host: str) -> bool:
        """Return whether another instance leaves all a useful share."""
        return self.running(host) < self.capacity(
            host, self.limits.entry_share)

    def spare(self, host: str, more: int = 0) -> float:
        """Return the CPU left below the strictest threshold, in percent.

        Each secondary, and ``more`` further ones, count with a useful share.
        The value is negative on a crowded host, and minus infinity if the
        primary's use is unknown.
        """
        return self._left_by_primaries(host) - self.limits.entry_share * (
            self.running(host) + more)

    def unclaimed(self, host: str) -> float:
        """Return the CPUs left below the strictest threshold.

        Each secondary counts with all its vCPUs.  The value may be negative,
        or minus infinity, as that of ``spare``.
        """
        return self._unclaimed[host]

    def _left_by_all(self, host: str) -> float:
        return (self._left_by_primaries(host) / 100 * self.hosts[host].cpus
                - sum(one.vcpus for one in self._holders(host)
                      if one.state in RUNNING))

    def _left_by_primaries(self, host: str) -> float:
        """Return the CPU that secondaries may use, in percent of the host."""
        values = self.hosts[host]
        primary = values.primary_use('cpu')
        if primary is None:
            return float('-inf')
        threshold = values.threshold('cpu')
        return ((100.0 if threshold is None else threshold)
                - self.limits.margin - primary)

    def has_inventory(self, host: str, instance: Instance) -> bool:
        """Return whether the host's inventory has room for an instance."""
        free = self._free[host]
        return all(amount <= free.get(name, 0)
                   for name, amount in instance.claims.items() if amount)

    def _left(self, host: str) -> Mapping[str, int]:
        """Return the unclaimed inventory of a host, by resource class."""
        values = self.hosts[host]
        free = {name: total - values.reserved.get(name, 0)
                for name, total in values.total.items()}
        for one in self._holders(host):
            for name, amount in one.claims.items():
                free[name] = free.get(name, 0) - amount
        return free

    def fits_policies(self, place: str, newcomer: Instance) -> bool:
        """Return whether use would stay below the thresholds of a place.

        Instances there and the newcomer count with their former use, or with
        an entry share if it is unknown.
        """
        return all(self._keeps(place, newcomer, policy)
                   for policy in self._cluster.at(place).policies)

    def admits(self, host: str, newcomer: Instance) -> bool:
        """Return whether resources that the agent cannot throttle suffice.

        These include all resources of items.  It is enough for an instance
        that soon leaves again.
        """
        return all(self._keeps(place, newcomer, policy)
                   for place in self._cluster.places(host)
                   for policy in self._cluster.at(place).policies
                   if place != host or not can_throttle(policy))

    def may_enter(self, host: str, newcomer: Instance) -> bool:
        """Return whether an instance may come to a host to stay there.

        All instances keep a useful share, and what they are known to use
        stays below the thresholds.  So the same use does not preempt it again.
        """
        return self.has_useful_share(host) and all(
            self.fits_policies(place, newcomer)
            for place in self._cluster.places(host))

    def _keeps(self, place: str, newcomer: Instance,
               policy: HostPolicy) -> bool:
        """Return whether a policy would hold; False if use is unknown."""
        values, resource = self._cluster.at(place), policy.resource
        primary = 0.0 if policy.static else values.primary_use(resource)
        if primary is None:
            return False
        there, used = self._uses[place, resource]
        used += self._use(newcomer, place, resource)
        if newcomer.uuid in there:
            used -= self._use(there[newcomer.uuid], place, resource)
        limit = planned_limit(policy, self.limits.margin)
        return primary + used <= limit + EPSILON

    def satisfies_constraints(self, host: str, instance: Instance) -> bool:
        """Return whether an instance may be placed beside those on a host.

        The host has no member of its anti-affinity group, and no placement
        constraint forbids it.  For constraints, an instance also counts on
        the host that it leaves, so that they hold in any order of operations.
        """
        group = instance.anti_affinity
        if group is not None and any(
                one.anti_affinity == group for one in self._holders(host)):
            return False
        rules = self._cluster.rules
        return not rules.constraints or rules.admits(
            instance.uuid, instance.host, host,
            self._occupancy(host, rules.concerning(instance.uuid)))

    def _occupancy(self, host: str, constraints: Iterable[Constraint]
                   ) -> Occupancy:
        """Return what the constraints of an arrival on a host depend on."""
        found = Occupancy({one.uuid: (host,) for one in (
            *self._cluster.residents(host), *self._holders(host))})
        for constraint in constraints:
            if isinstance(constraint, (Among, Gather)):
                for uuid in constraint.named:
                    for place in self._hosts_of(uuid):
                        found.enter(uuid, place)
        return found

    def _hosts_of(self, uuid: str) -> Iterator[str]:
        """Yield the hosts of an instance before and after the changes."""
        before = self._cluster.instances.get(uuid)
        if before is not None and before.host is not None:
            yield before.host
        for host, there in self._changed.items():
            if uuid in there:
                yield host
        for host, coming in self._coming.items():
            if any(one.uuid == uuid for one in coming):
                yield host


def _running(instances: list[Instance]) -> int:
    return sum(one.state in RUNNING for one in instances)
