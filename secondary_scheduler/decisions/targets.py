# SPDX-License-Identifier: Apache-2.0

"""Targets of migrations in the guided search."""

from collections import defaultdict
from collections.abc import Callable, Collection
import functools

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.decisions.what_if import WhatIf
from secondary_scheduler.estimation.feasibility import TimedOperation
from secondary_scheduler.model.cluster import Host, Instance
from secondary_scheduler.model.constraints import PlacementRules
from secondary_scheduler.plans.operations import OperationKind


def _needs(instance: Instance, home: Host | None, rules: PlacementRules
           ) -> tuple[object, ...]:
    """Return the properties that decide which hosts can take an instance."""
    sizes = () if home is None else (
        home.cpus, *sorted(home.capacities.items()))
    return (sizes, instance.vcpus, instance.memory_mb, instance.disk_gb,
            instance.cpu, tuple(sorted(instance.usage.items())),
            instance.anti_affinity,
            *((instance.host, rules.concerning(instance.uuid))
              if rules.constraints else ()))


class TargetFinder:
    """Finds hosts for instances by first fit.

    Hosts are in the order of predicted performance, if there are predictions,
    and of their names.

    :param violated: places with a violation, which are no targets
    """

    def __init__(self, draft: Draft, preview: WhatIf, budget: Budget,
                 violated: Collection[str]) -> None:
        self._draft = draft
        self._preview = preview
        self._budget = budget
        self._violated = violated
        self._unfit: set[tuple[object, ...]] = set()

    @functools.cached_property
    def _targets(self) -> list[str]:
        hosts = self._preview.cluster.hosts
        return [name for name in sorted(hosts) if self._takes(hosts[name])]

    def _takes(self, host: Host) -> bool:
        return (host.usable and not host.blocked and host.can_run
                and not host.violated
                and host.name not in self._violated
                and self._preview.known(host))

    def find_target(self, instance: Instance,
                    deadline: Callable[[str | None], float],
                    avoid: Collection[str] = ()) -> str | None:
        """Return the first host that can take an instance in time, or None.

        If all hosts with room would take too long, the first of them is
        returned.  The branch then fails for lack of time, not of room.

        :param deadline: returns the seconds left to relieve a host
        :param avoid: excluded hosts
        """
        slow: str | None = None
        changes: dict[str, tuple[str, ...]] = defaultdict(tuple)
        cluster = self._preview.cluster
        places = cluster.places
        needs = _needs(instance, self._draft.hosts.get(instance.host or ''),
                       self._draft.cluster.rules)
        for step in self._draft.steps:
            for name in {place for host in {step.old.host, step.new.host}
                         - {None} for place in places(str(host))}:
                changes[name] += (step.kind, step.old.uuid)
        for host in map(cluster.hosts.__getitem__, cluster.prefer_predicted(
                self._targets, instance, self._draft.newcomers)):
            look = (host.name, tuple(changes[place] for place in places(
                host.name)), needs)
            if (host.name == instance.host or host.name in avoid
                    or look in self._unfit):
                continue
            if not self._budget.spend():
                return None
            if not self._fits(host, instance):
                self._unfit.add(look)
                continue
            begun = len(self._draft.steps)
            self._draft.migrate(instance, host.name)
            works = self._preview.works(self._draft.steps)
            self._draft.rewind(begun)
            if self._preview.spoils(host.name, works):
                continue
            if all(work.end_s <= deadline(work.source)
                   for work in works if work.target == host.name):
                return host.name
            slow = slow or host.name
            if len([1 for work in works
                    if host.name in (work.source, work.target)]) == 1:
                break   # no host has fewer operations
        return slow

    def _fits(self, host: Host, instance: Instance) -> bool:
        """Return whether a host will finally have room for an instance.

        This is the quick part of the check, without any times.
        """
        cluster = self._preview.cluster
        if any(cluster.at(place).violated
               and instance.host not in cluster.hosts_of(place)
               for place in cluster.places(host.name)):
            return False
        works = self._preview.outcome(
            self._draft.steps, *cluster.places(host.name))
        works.append(TimedOperation(OperationKind.MIGRATE, instance.uuid,
                                    instance.host, host.name))
        return (
            self._draft.rooms.has_inventory(host.name, instance)
            and self._draft.rooms.satisfies_constraints(host.name, instance)
            and self._preview.allow(host.name, works)
        )
