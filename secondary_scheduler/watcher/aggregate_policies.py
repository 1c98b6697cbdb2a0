# SPDX-License-Identifier: Apache-2.0

"""Policies on all hosts of an aggregate together.

An agent sees only its host.  So a violation is detected by adding up the
reports of agents.  Decisions are bounded by the instances that Nova knows.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from secondary_scheduler.estimation.room import RUNNING
from secondary_scheduler.model.cluster import Cluster, HostPolicy, Item
from secondary_scheduler.policies import language
from secondary_scheduler.watcher.scope import HostPlace


def members(policy: language.Policy,
            places: Mapping[str, HostPlace]) -> frozenset[str]:
    """Return the hosts to which a policy applies."""
    return frozenset(name for name, place in places.items()
                     if policy.applies_to(name, place.aggregates))


def exceeded(policies: Iterable[language.Policy],
             places: Mapping[str, HostPlace],
             running: Callable[[Iterable[str]], Collection[str]],
             ) -> dict[str, frozenset[str]]:
    """Return the policies exceeded by reports: hosts, by the policy's text.

    :param running: returns the instances that run on given hosts, as their
        agents report them.
    """
    bound = {policy: members(policy, places)
             for policy in policies if policy.total}
    return {policy.text: hosts for policy, hosts in bound.items()
            if len(running(hosts)) > policy.threshold}


def items(policies: Iterable[language.Policy], cluster: Cluster,
          places: Mapping[str, HostPlace], inside: Collection[str],
          broken: Collection[str]) -> dict[str, Item]:
    """Return the items that the hosts of a scope share, by name.

    Instances on a policy's hosts outside the scope reduce its threshold for
    the hosts inside.  A policy is violated if both Nova's facts and the
    agents' reports exceed it: Nova's list may be old, and contains instances
    that no longer run.

    :param inside: hosts of the scope.
    :param broken: texts of the policies that reports exceed.
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
