"""Policies that bind the hosts of an aggregate together.

No agent sees more than its host.  So what the agents report is counted to
notice that a policy fails, as it is for one host; what Nova knows bounds what
a decision may bring there.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from secondary_scheduler.estimation.room import RUNNING
from secondary_scheduler.model.cluster import Cluster, HostPolicy, Item
from secondary_scheduler.policies import language
from secondary_scheduler.watcher import scope as scopes


def members(policy: language.Policy,
            places: Mapping[str, scopes.HostPlace]) -> frozenset[str]:
    """Return the hosts that a policy binds."""
    return frozenset(name for name, place in places.items()
                     if policy.applies_to(name, place.aggregates))


def exceeded(policies: Iterable[language.Policy],
             places: Mapping[str, scopes.HostPlace],
             running: Callable[[Iterable[str]], Collection[str]],
             ) -> dict[str, frozenset[str]]:
    """Return the hosts that break a policy together, by its text.

    ``running`` returns who runs on some hosts, as their agents report it.
    """
    bound = {policy: members(policy, places)
             for policy in policies if policy.total}
    return {policy.text: hosts for policy, hosts in bound.items()
            if len(running(hosts)) > policy.threshold}


def items(policies: Iterable[language.Policy], cluster: Cluster,
          places: Mapping[str, scopes.HostPlace], inside: Collection[str],
          broken: Collection[str]) -> dict[str, Item]:
    """Return what the hosts inside a scope share, by name.

    What runs on a policy's hosts outside is nobody's to give away here: it
    leaves less for those inside.  A policy is violated if Nova and the agents
    (``broken``, by text) agree on it: a list of Nova's may be old, and knows
    instances that run no more.
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
        fails = policy.text in broken and _running(cluster, mine) > left
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
