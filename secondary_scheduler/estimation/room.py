"""The room of a host under its policies and in its inventory.

The arithmetic that every decision shares.  A host holds n secondaries if::

    primary + share * n <= threshold - margin     (cpu, net, disk policies)
    n <= threshold                                (slots policies)

and if what they hold of other resources keeps to their policies too.  An
instance that comes from a host of another size counts with all that it uses
where that is more than its share: a share there was another amount.  It is
the *minimum* share where the question is whether local means suffice, and the
*useful* share where it is whether to bring another one in, or how many may
stay where local means did not suffice.  The gap between the two is the
hysteresis that makes a constant load lead to no operation (Boettger 3.8,
R37).
"""

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import itertools
import operator
import sys

from secondary_scheduler.model.cluster import (
    Cluster,
    Host,
    HostPolicy,
    Instance,
    InstanceState,
)
from secondary_scheduler.model.lazy import Lazy
from secondary_scheduler.model.resources import STATIC, UNTHROTTLED

UNLIMITED = sys.maxsize

#: States in which an instance may use its host; unknown ones count.
RUNNING = frozenset(
    {InstanceState.ACTIVE, InstanceState.BUSY, InstanceState.OTHER})

_EPSILON = 1e-9


@dataclasses.dataclass(frozen=True)
class LoadLimits:
    """The options that bound a host's load, shares in percent of the host.

    ``lanes`` is how many operations may go on at a time on one host.
    """

    minimum_share: float = 5.0
    useful_share: float = 10.0
    margin: float = 1.0
    lanes: int = 1

    @property
    def entry_share(self) -> float:
        """Share that must be free for one more, never below the minimum."""
        return max(self.minimum_share, self.useful_share)


def _shared(policy: HostPolicy) -> bool:
    """Tell whether all on a host can be held to a share of a resource."""
    return policy.resource not in UNTHROTTLED


def _bound(policy: HostPolicy, margin: float) -> float:
    """Return up to where use may be planned; the margin is the CPU's."""
    return policy.threshold - (margin if policy.resource == 'cpu' else 0.0)


def _allowed(policy: HostPolicy, primary: float, share: float,
             margin: float) -> int:
    if policy.resource == 'slots':
        return int(policy.threshold)
    if not _shared(policy):
        return UNLIMITED    # see ``admits``
    free = _bound(policy, margin) - primary
    if free < -_EPSILON:
        return 0
    return int(free / share + _EPSILON) if share > 0 else UNLIMITED


def capacity(host: Host, share: float, margin: float) -> int:
    """Return how many secondaries a host holds, at a share in percent each.

    0 where the primary's use is unknown, of CPU or of another resource that a
    policy bounds, or where no policy says what secondaries may do.
    """
    if host.cpu_primary is None:
        return 0
    allowed = []
    for policy in host.policies:
        primary = 0.0 if policy.static else host.primary_use(policy.resource)
        allowed.append(0 if primary is None
                       else _allowed(policy, primary, share, margin))
    return min(allowed, default=0)


class Rooms:
    """What the instances of a cluster hold on each host, kept up to date.

    Whoever changes an instance takes the old value out and puts the new one
    in.  A question about a host costs a pass over its instances, and hosts
    that nobody asks about cost nothing.
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
        # By place and resource: those that may use it, and their use.
        self._uses: Lazy[tuple[str, str], tuple[
            dict[str, Instance], float]] = Lazy(self._sum_of_uses)
        self._emptiest: list[tuple[float, str]] | None = None
        # By host: those that come from a host of another size.
        self._resized: dict[str, set[str]] = defaultdict(set)
        for one in cluster.in_flight:
            comer = cluster.instances[one.instance]
            if one.target is not None and one.target != comer.host:
                self._coming[one.target].append(comer)
                if self._is_resized(one.target, comer):
                    self._resized[one.target].add(comer.uuid)

    def put(self, instance: Instance) -> None:
        """Count an instance on its host."""
        if instance.host is not None:
            self._change(instance.host, {
                **self.residents(instance.host), instance.uuid: instance})
            if self._is_resized(instance.host, instance):
                self._resized[instance.host].add(instance.uuid)

    def take(self, instance: Instance) -> None:
        """Count an instance no longer."""
        if instance.host is not None:
            there = dict(self.residents(instance.host))
            there.pop(instance.uuid, None)
            self._change(instance.host, there)
            self._resized[instance.host].discard(instance.uuid)

    def _is_resized(self, host: str, instance: Instance) -> bool:
        """Tell whether a share of any resource was another amount before."""
        return host in self.hosts and any(
            _shared(policy) and not self._keeps_share(
                instance, host, policy.resource)
            for policy in self.hosts[host].policies)

    def _keeps_share(self, instance: Instance, host: str, resource: str
                     ) -> bool:
        """Tell whether a share is the amount that it was.

        That is on the host where the instance's use was measured.
        """
        measured = self._cluster.instances.get(instance.uuid, instance)
        return self._cluster.are_alike(measured.host, host, resource)

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
        """Count in what has changed on a host, in all that it has a part in.

        To sum up an item's hosts again would take as long as it has hosts.
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
        """Return the instances that a host holds, by UUID."""
        if host in self._changed:
            return self._changed[host]
        return {one.uuid: one for one in self._cluster.residents(host)}

    def _holders(self, host: str) -> list[Instance]:
        """Return its instances and those that are on their way to it."""
        return [*self.residents(host).values(), *self._coming.get(host, ())]

    def _sum_of_uses(self, key: tuple[str, str]
                     ) -> tuple[dict[str, Instance], float]:
        place, resource = key
        there = {one.uuid: one for host in self._cluster.hosts_of(place)
                 for one in self._holders(host) if one.state in RUNNING}
        return there, sum(self._use(one, place, resource)
                          for one in there.values())

    def _use(self, instance: Instance, place: str, resource: str) -> float:
        """Return what an instance uses of a place, in percent.

        An entry share of a host if it is unknown; in its unit what it holds
        of a static resource.
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
        """Yield the hosts that welcome one more, the emptiest first.

        They are sorted once, and then a host at a time as it changes.
        """
        if self._emptiest is None:
            self._emptiest = sorted(
                place for name in self.hosts for place in self._place(name))
        return (name for _spare, name in self._emptiest)

    def _place(self, host: str) -> list[tuple[float, str]]:
        """Return what a host is sorted by, nothing if it is full."""
        if host not in self.hosts or not self.has_useful_share(host):
            return []
        return [(-self.spare(host), host)]

    def capacity(self, host: str, share: float) -> int:
        """Return how many secondaries the host holds at a share each."""
        key = (host, share)
        if key not in self._capacity:
            self._capacity[key] = capacity(
                self.hosts[host], share, self.limits.margin)
        return self._capacity[key]

    def surplus(self, host: str) -> int:
        """Return how many secondaries local means cannot accommodate.

        Where a dynamic policy is violated the agent has tried: with all at
        their minimum shares the host stayed over the threshold for as long
        as the trigger waits, whatever the arithmetic says.  So at least one
        goes, and those that stay get a useful share again.  Of what only an
        operation can change each holds what it holds.
        """
        least = self._overfull(host)
        if not self._strained(host):
            return max(least, self.running(host) - self.capacity(
                host, self.limits.minimum_share))
        begun_with = _running([*self._cluster.residents(host),
                               *self._coming.get(host, ())])
        room = min(begun_with - 1,
                   self.capacity(host, self.limits.entry_share))
        return max(least, self.running(host) - max(0, room))

    def _overfull(self, host: str) -> int:
        """Return how many must leave at least for static policies to hold.

        As few as can be, so that nobody leaves in vain.
        """
        most = 0
        for policy in self.hosts[host].policies:
            if policy.static:
                there, held = self._uses[host, policy.resource]
                sizes = sorted((one.holds(policy.resource)
                                for one in there.values()), reverse=True)
                rests = itertools.accumulate(sizes, operator.sub,
                                             initial=held)
                most = max(most, sum(
                    rest > policy.threshold for rest in rests))
        return most

    def _strained(self, host: str) -> bool:
        """Tell whether a host's agent could not hold a policy.

        A host operated on a moment ago has not yet had the time to.
        """
        values = self.hosts[host]
        return not values.blocked and any(
            policy.violated and not policy.static
            for policy in values.policies)

    def has_minimum_share(self, host: str) -> bool:
        """Tell whether one more would keep its minimum share."""
        return self.running(host) < self.capacity(
            host, self.limits.minimum_share)

    def has_useful_share(self, host: str) -> bool:
        """Tell whether all and one more would have a useful share."""
        return self.running(host) < self.capacity(
            host, self.limits.entry_share)

    def spare(self, host: str, more: int = 0) -> float:
        """Return the CPU left over, in percent of the host.

        That is below the strictest threshold when each secondary, and
        ``more`` of them, has a useful share; below zero on a crowded host,
        minus infinity where the primary's use is unknown.
        """
        return self._left_by_primaries(host) - self.limits.entry_share * (
            self.running(host) + more)

    def unclaimed(self, host: str) -> float:
        """Return the CPUs below the strictest threshold that are left over.

        That is when each secondary uses all its vCPUs; below zero, and minus
        infinity, as ``spare``.
        """
        return self._unclaimed[host]

    def _left_by_all(self, host: str) -> float:
        return (self._left_by_primaries(host) / 100 * self.hosts[host].cpus
                - sum(one.vcpus for one in self._holders(host)
                      if one.state in RUNNING))

    def _left_by_primaries(self, host: str) -> float:
        """Return what secondaries may use, in percent of the host."""
        values = self.hosts[host]
        if values.cpu_primary is None:
            return float('-inf')
        threshold = values.threshold('cpu')
        return ((100.0 if threshold is None else threshold)
                - self.limits.margin - values.cpu_primary)

    def has_inventory(self, host: str, instance: Instance) -> bool:
        """Tell whether the host's inventory has room for a newcomer."""
        free = self._free[host]
        return all(amount <= free.get(name, 0)
                   for name, amount in instance.claims.items() if amount)

    def _left(self, host: str) -> Mapping[str, int]:
        """Return what nobody on a host claims, by resource class."""
        values = self.hosts[host]
        free = {name: total - values.reserved.get(name, 0)
                for name, total in values.total.items()}
        for one in self._holders(host):
            for name, amount in one.claims.items():
                free[name] = free.get(name, 0) - amount
        return free

    def fits_policies(self, place: str, newcomer: Instance) -> bool:
        """Tell whether use would stay below the thresholds of a place.

        That is the use of those there and a newcomer as it was; who is not
        known takes an entry share.
        """
        return all(self._keeps(place, newcomer, policy)
                   for policy in self._cluster.at(place).policies)

    def admits(self, host: str, newcomer: Instance) -> bool:
        """Tell the same of what nobody on a host can be held to a share of.

        That is, above all, what hosts share; and what those use that come
        from hosts of another size.
        """
        return all(self._keeps(place, newcomer, policy)
                   for place in self._cluster.places(host)
                   for policy in self._cluster.at(place).policies
                   if place != host or not _shared(policy)
                   ) and self._seats(host, newcomer)

    def _seats(self, host: str, newcomer: Instance) -> bool:
        """Tell whether shares are left beside those of another size."""
        if not self._resized.get(host) and not self._is_resized(
                host, newcomer):
            return True     # whether it ``welcomes`` one more says it all
        there = {one.uuid: one for one in (*self._holders(host), newcomer)
                 if one.state in RUNNING or one is newcomer}
        return all(self._seats_under(policy, host, there.values())
                   for policy in self.hosts[host].policies if _shared(policy))

    def _seats_under(self, policy: HostPolicy, host: str,
                     there: Iterable[Instance]) -> bool:
        resource, share = policy.resource, self.limits.entry_share
        primary = self.hosts[host].primary_use(resource)
        return primary is not None and primary + sum(
            share if self._keeps_share(one, host, resource)
            else max(share, self._use(one, host, resource))
            for one in there) <= _bound(policy, self.limits.margin) + _EPSILON

    def _keeps(self, place: str, newcomer: Instance,
               policy: HostPolicy) -> bool:
        """Tell whether a policy would hold; not if the use is unknown."""
        values, resource = self._cluster.at(place), policy.resource
        primary = 0.0 if policy.static else values.primary_use(resource)
        if primary is None:
            return False
        there, used = self._uses[place, resource]
        used += self._use(newcomer, place, resource)
        if newcomer.uuid in there:
            used -= self._use(there[newcomer.uuid], place, resource)
        return primary + used <= _bound(policy, self.limits.margin) + _EPSILON

    def satisfies_anti_affinity(self, host: str, instance: Instance) -> bool:
        """Tell whether no peer of its anti-affinity group is on the host."""
        group = instance.anti_affinity
        return group is None or all(
            one.anti_affinity != group for one in self._holders(host))


def _running(instances: list[Instance]) -> int:
    return sum(one.state in RUNNING for one in instances)
