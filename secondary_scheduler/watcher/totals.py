"""Policies that bind the hosts of an aggregate together.

No agent sees more than its host.  So the leader counts what the agents report
to notice that a policy fails, and what Nova knows to decide what to do.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from secondary_scheduler.estimation.room import RUNNING
from secondary_scheduler.model.cluster import Cluster, HostPolicy, Item
from secondary_scheduler.policies import language
from secondary_scheduler.watcher import scope as scopes


def members(policy: language.Policy,
            places: Mapping[str, scopes.HostPlace]) -> frozenset[str]:
    """Return the hosts that a policy binds."""
    return frozenset(name for name, place in places.items()
                     if policy.applies_to(name, place.aggregates))


def items(policies: Iterable[language.Policy], cluster: Cluster,
          places: Mapping[str, scopes.HostPlace],
          inside: Collection[str]) -> dict[str, Item]:
    """Return what the hosts inside a scope share, by name.

    What runs on a policy's hosts outside is nobody's to give away here: it
    leaves less for those inside.
    """
    hosts: dict[str, tuple[str, ...]] = {}
    found: dict[str, list[HostPolicy]] = defaultdict(list)
    for policy in policies:
        bound = members(policy, places) & cluster.hosts.keys()
        mine = tuple(sorted(bound.intersection(inside)))
        if not policy.total or not mine:
            continue
        left = max(0.0, policy.threshold - _running(
            cluster, bound.difference(mine)))
        fails = _running(cluster, mine) > left
        name = f'{policy.scope_kind}:{policy.scope_name}'
        hosts[name] = mine
        found[name].append(HostPolicy(
            policy.text, policy.resource, left, policy.timelimit,
            failed=int(fails), violated=fails))
    return {name: Item(name, hosts[name], tuple(bounds))
            for name, bounds in found.items()}


def _running(cluster: Cluster, hosts: Iterable[str]) -> int:
    return sum(one.state in RUNNING for host in hosts
               for one in cluster.by_host.get(host, ()))
