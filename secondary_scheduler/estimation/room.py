"""The room of a host under its policies and in its inventory.

The arithmetic that every decision shares.  A host holds n secondaries if::

    cpu_primary + share * n <= threshold - margin     (each cpu policy)
    n <= threshold                                    (each slots policy)

with the *minimum* share where the question is whether local means suffice,
and the *useful* share where it is whether to bring another one in, or how
many may stay where local means did not suffice.  The gap between the two is
the hysteresis that makes a constant load lead to no operation (Boettger 3.8,
R37).
"""

from collections import defaultdict
import dataclasses
import sys

from secondary_scheduler.model.cluster import (
    Cluster,
    Host,
    HostPolicy,
    Instance,
    State,
)

UNLIMITED = sys.maxsize

#: States in which an instance may use its host; unknown ones count.
RUNNING = frozenset({State.ACTIVE, State.BUSY, State.OTHER})

_EPSILON = 1e-9


@dataclasses.dataclass(frozen=True)
class Limits:
    """The options that bound a host's load, shares in percent of the host.

    ``lanes`` is how many operations may go on at a time on one host.
    """

    minimum_share: float = 5.0
    useful_share: float = 10.0
    margin: float = 1.0
    lanes: int = 2

    @property
    def entry_share(self) -> float:
        """Share that must be free for one more, never below the minimum."""
        return max(self.minimum_share, self.useful_share)


def _allowed(policy: HostPolicy, primary: float, share: float,
             margin: float) -> int:
    if policy.resource == 'slots':
        return int(policy.threshold)
    if policy.resource != 'cpu':
        return 0    # nothing is known about its use: keep out
    free = policy.threshold - margin - primary
    if free < -_EPSILON:
        return 0
    return int(free / share + _EPSILON) if share > 0 else UNLIMITED


def capacity(host: Host, share: float, margin: float) -> int:
    """Return how many secondaries a host holds, at a share in percent each.

    0 where the primary's use is unknown, or where no policy says what
    secondaries may do.
    """
    primary = host.cpu_primary
    if primary is None or not host.policies:
        return 0
    return min(_allowed(policy, primary, share, margin)
               for policy in host.policies)


class Rooms:
    """What the instances of a cluster hold on each host, kept up to date.

    Whoever changes an instance takes the old value out and puts the new one
    in; all questions are then answered without a pass over the instances.
    """

    def __init__(self, cluster: Cluster, limits: Limits) -> None:
        self.hosts = cluster.hosts
        self.limits = limits
        self.residents: dict[str, set[str]] = defaultdict(set)
        self._running: dict[str, int] = defaultdict(int)
        self._groups: dict[tuple[str, str], int] = defaultdict(int)
        self._claimed: dict[tuple[str, str], int] = defaultdict(int)
        self._capacity: dict[tuple[str, float], int] = {}
        for instance in cluster.instances.values():
            self.put(instance)
        for one in cluster.in_flight:
            comer = cluster.instances[one.instance]
            if one.target is not None and one.target != comer.host:
                self._count(comer, one.target, 1)
        #: How many ran on each host whose agent could not hold a policy; a
        #: host operated on a moment ago has not yet had the time to.
        self._strained = {
            name: self._running[name] for name, host in cluster.hosts.items()
            if not host.blocked and any(
                policy.violated and policy.resource != 'slots'
                for policy in host.policies)}

    def put(self, instance: Instance) -> None:
        """Count an instance on its host."""
        if instance.host is not None:
            self.residents[instance.host].add(instance.uuid)
            self._count(instance, instance.host, 1)

    def take(self, instance: Instance) -> None:
        """Count an instance no longer."""
        if instance.host is not None:
            self.residents[instance.host].discard(instance.uuid)
            self._count(instance, instance.host, -1)

    def _count(self, instance: Instance, host: str, sign: int) -> None:
        if instance.state in RUNNING:
            self._running[host] += sign
        if instance.anti_affinity is not None:
            self._groups[host, instance.anti_affinity] += sign
        for name, amount in instance.claims.items():
            self._claimed[host, name] += sign * amount

    def running(self, host: str) -> int:
        """Return the number of secondaries that may use the host."""
        return self._running[host]

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
        goes, and those that stay get a useful share again.
        """
        if host not in self._strained:
            return max(0, self.running(host) - self.capacity(
                host, self.limits.minimum_share))
        room = min(self._strained[host] - 1,
                   self.capacity(host, self.limits.entry_share))
        return max(0, self.running(host) - max(0, room))

    def bears(self, host: str) -> bool:
        """Tell whether one more would keep its minimum share."""
        return self.running(host) < self.capacity(
            host, self.limits.minimum_share)

    def welcomes(self, host: str) -> bool:
        """Tell whether all and one more would have a useful share."""
        return self.running(host) < self.capacity(
            host, self.limits.entry_share)

    def spare(self, host: str, more: int = 0) -> float:
        """Return the CPU left over, in percent of the host.

        That is below the strictest threshold when each secondary, and
        ``more`` of them, has a useful share; below zero on a crowded host,
        minus infinity where the primary's use is unknown.
        """
        values = self.hosts[host]
        if values.cpu_primary is None:
            return float('-inf')
        threshold = values.threshold('cpu')
        return ((100.0 if threshold is None else threshold)
                - self.limits.margin - values.cpu_primary
                - self.limits.entry_share * (self.running(host) + more))

    def stocks(self, host: str, instance: Instance) -> bool:
        """Tell whether the host's inventory has room for a newcomer."""
        values = self.hosts[host]
        return all(
            self._claimed[host, name] + amount
            <= values.total.get(name, 0) - values.reserved.get(name, 0)
            for name, amount in instance.claims.items() if amount)

    def separate(self, host: str, instance: Instance) -> bool:
        """Tell whether no peer of its anti-affinity group is on the host."""
        return (instance.anti_affinity is None
                or not self._groups[host, instance.anti_affinity])
