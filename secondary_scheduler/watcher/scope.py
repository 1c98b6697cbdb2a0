# SPDX-License-Identifier: Apache-2.0

"""Hosts and instances in the scope of an audit.

The syntax is the ``compute`` scope of Watcher's own strategies
(host_aggregates, availability_zones, exclude).  It is resolved on the
collector's snapshot: Watcher's resolver uses its own model, and sends requests
to Nova each time.
"""

from collections.abc import Collection, Mapping, Sequence
import dataclasses
from typing import Any

from watcher.decision_engine.scope import base

ScopeRules = Sequence[Mapping[str, Any]] | None


@dataclasses.dataclass(frozen=True)
class HostPlace:
    """Aggregates (ids and names) and availability zone of a host."""

    aggregate_ids: frozenset[int] = frozenset()
    aggregates: frozenset[str] = frozenset()
    zone: str = ''


@dataclasses.dataclass(frozen=True)
class ResolvedScope:
    """Hosts in a scope, and the excluded instances and projects."""

    hosts: frozenset[str]
    excluded_instances: frozenset[str] = frozenset()
    excluded_projects: frozenset[str] = frozenset()

    def excludes(self, uuid: str, project: str) -> bool:
        """Return whether an instance is excluded."""
        return (uuid in self.excluded_instances
                or project in self.excluded_projects)


def _in_aggregates(place: HostPlace,
                   wanted: Collection[Mapping[str, Any]]) -> bool:
    for item in wanted:
        if '*' in (item.get('id'), item.get('name')):
            if place.aggregates:
                return True
        elif (item.get('id') in place.aggregate_ids
              or item.get('name') in place.aggregates):
            return True
    return False


def _in_zones(place: HostPlace,
              wanted: Collection[Mapping[str, Any]]) -> bool:
    return any(item.get('name') in ('*', place.zone) for item in wanted)


def resolve_scope(scope: ScopeRules,
            places: Mapping[str, HostPlace]) -> ResolvedScope:
    """Resolve an audit's scope; an empty one contains every host."""
    rules = next((part['compute'] for part in scope or ()
                  if part.get('compute')), ())
    including = [r for r in rules
                 if 'host_aggregates' in r or 'availability_zones' in r]
    hosts = {
        name for name, place in places.items()
        if not including or any(
            _in_aggregates(place, rule.get('host_aggregates', ()))
            or _in_zones(place, rule.get('availability_zones', ()))
            for rule in including)}
    instances: set[str] = set()
    projects: set[str] = set()
    for rule in rules:
        for part in rule.get('exclude', ()):
            hosts -= {n['name'] for n in part.get('compute_nodes', ())}
            hosts -= {name for name, place in places.items()
                      if _in_aggregates(place,
                                        part.get('host_aggregates', ()))}
            instances |= {i['uuid'] for i in part.get('instances', ())}
            projects |= {p['uuid'] for p in part.get('projects', ())}
    return ResolvedScope(frozenset(hosts), frozenset(instances),
                         frozenset(projects))


class SecondaryScope(base.BaseScope):
    """Scope handler that Watcher requires; it does not change the model."""

    def get_scoped_model(self, cluster_model: Any) -> Any:
        """Return the model unchanged."""
        return cluster_model
