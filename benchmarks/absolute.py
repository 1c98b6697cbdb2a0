# SPDX-License-Identifier: Apache-2.0

"""Replay of moves in absolute units, host by host and move by move.

It shares no code with the decisions, their estimates and the checker, so that
a mistake in a conversion there shows here.  Amounts are CPUs, MiB and MB/s; a
policy in percent is that part of the host it binds, less what the primary
uses.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
import typing

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import (
    Cluster,
    Host,
    Instance,
    InstanceState,
)

#: Part of a host that rounding may amount to.
SLACK = 1e-8

_INVENTORY = {'cores': vocabulary.VCPU, 'memory': vocabulary.MEMORY_MB,
              'disk': vocabulary.DISK_GB, 'slots': vocabulary.SLOT}
_USING = (InstanceState.ACTIVE, InstanceState.BUSY, InstanceState.OTHER)


def used(instances: Iterable[Instance]) -> Counter[str]:
    """Return what instances use and hold together, by resource."""
    total: Counter[str] = Counter()
    for one in instances:
        total.update({'cpu': one.cpu or 0.0, 'cores': one.vcpus,
                      'memory': one.memory_mb, 'disk': one.disk_gb,
                      'slots': 1, **one.usage})
    return total


def size(host: Host, resource: str) -> float:
    """Return what a host has of a measured resource."""
    if resource == 'cpu':
        return host.cpus
    return 100.0 if resource == 'pressure' else host.capacities[resource]


def limits(host: Host) -> Iterator[tuple[str, float, float]]:
    """Yield, by policy, a resource, its limit for instances, and the slack.
    """
    for policy in host.policies:
        resource = policy.resource
        if resource in _INVENTORY:
            yield resource, policy.threshold, 0.0
            continue
        primary = (host.cpu_primary if resource == 'cpu'
                   else host.usage.get(resource)) or 0.0
        whole = size(host, resource)
        yield (resource, whole * policy.threshold / 100
               - whole * primary / 100, whole * SLACK)


class Replay:
    """Hosts and what runs on them, while instances move."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.where = {uuid: one.host
                      for uuid, one in cluster.instances.items()}
        self._there: dict[str, dict[str, Instance]] = defaultdict(dict)
        for uuid, one in cluster.instances.items():
            if one.host is not None:
                self._there[one.host][uuid] = one

    def move(self, uuid: str, target: str) -> None:
        """Move an instance, which leaves its host when it has arrived."""
        self._there[str(self.where[uuid])].pop(uuid, None)
        self._there[target][uuid] = self.cluster.instances[uuid]
        self.where[uuid] = target

    def preempt(self, uuid: str) -> None:
        """Let an instance use and hold nothing any more."""
        self._there[str(self.where[uuid])].pop(uuid, None)

    def fails(self, host: str, without: str = '', beside: str = '') -> bool:
        """Return whether a policy of a host fails.

        That is if an instance was gone, or another one there as well.
        """
        there = {**self._there[host]}
        there.pop(without, None)
        if beside:
            there[beside] = self.cluster.instances[beside]
        running = [one for one in there.values() if one.state in _USING]
        use = used(running)
        return bool(running) and any(
            use[resource] > limit + slack for resource, limit, slack
            in limits(self.cluster.hosts[host]))

    def overdrawn(self, host: str, beside: str = '') -> bool:
        """Return whether more is held on a host than its inventory has."""
        there = {**self._there[host]}
        if beside:
            there[beside] = self.cluster.instances[beside]
        held, values = used(there.values()), self.cluster.hosts[host]
        groups = [one.anti_affinity for one in there.values()
                  if one.anti_affinity]
        return len(groups) > len(set(groups)) or any(
            held[name] > values.total.get(claim, 0)
            - values.reserved.get(claim, 0)
            for name, claim in _INVENTORY.items())

    def relief(self, host: str) -> tuple[str, str] | None:
        """Return a single move that ends what fails on a host, if any."""
        for uuid, one in self._there[host].items():
            if one.state is not InstanceState.ACTIVE or self.fails(host, uuid):
                continue
            for name, other in self.cluster.hosts.items():
                if (name != host and other.usable and not other.blocked
                        and not any(p.violated for p in other.policies)
                        and not self.fails(name, beside=uuid)
                        and not self.overdrawn(name, beside=uuid)):
                    return uuid, name
        return None


class Outcome(typing.NamedTuple):
    """Result of a cluster: hosts, and moves by instance and target.

    ``violated`` hosts are those on which a policy fails in the end, and of
    those one move could relieve ``relievable`` ones; ``overloaded`` moves
    made a policy of their target fail, ``infeasible`` ones found no room.
    """

    violated: list[str]
    relievable: list[str]
    overloaded: list[tuple[str, str]]
    infeasible: list[tuple[str, str]]


def replay(cluster: Cluster, moves: Sequence[tuple[str, str]]) -> Outcome:
    """Carry moves out one after the other, of any planner."""
    state = Replay(cluster)
    overloaded, infeasible = [], []
    for uuid, target in moves:
        failed = state.fails(target)
        state.move(uuid, target)
        if state.overdrawn(target):
            infeasible.append((uuid, target))
        if state.fails(target) and not failed:
            overloaded.append((uuid, target))
    violated = [name for name in cluster.hosts if state.fails(name)]
    return Outcome(violated, [name for name in violated
                              if state.relief(name) is not None],
                   overloaded, infeasible)
