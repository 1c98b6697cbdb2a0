# SPDX-License-Identifier: Apache-2.0

"""Draft of a plan: steps, and the cluster after them.

Steps are appended in an order in which they could run one by one; ``ordering``
then decides which of them may run at the same time.
"""

from collections import Counter
from collections.abc import Callable, Collection
import dataclasses
import functools

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.estimation.cluster_room import Rooms
from secondary_scheduler.estimation.durations import DurationInput
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import Cluster, Instance, InstanceState
from secondary_scheduler.model.lazy import Lazy
from secondary_scheduler.model.vocabulary import PreemptPolicy
from secondary_scheduler.plans.operations import OperationKind

#: Instances are never deleted; the policy ``delete`` becomes a stop.
PREEMPT_KIND = {PreemptPolicy.SUSPEND: OperationKind.SUSPEND,
                PreemptPolicy.SHELVE: OperationKind.SHELVE,
                PreemptPolicy.STOP: OperationKind.STOP,
                PreemptPolicy.DELETE: OperationKind.STOP}

_STATE_AFTER = {
    OperationKind.SUSPEND: InstanceState.SUSPENDED,
    OperationKind.STOP: InstanceState.STOPPED,
    OperationKind.SHELVE: InstanceState.SHELVED,
}


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation without its times: the instance before and after it."""

    kind: OperationKind
    old: Instance
    new: Instance

    @property
    def target(self) -> str | None:
        """Host on which the instance runs afterwards, None if it does not."""
        return (self.new.host if self.new.state is InstanceState.ACTIVE
                else None)

    @property
    def job(self) -> DurationInput:
        """Input of the duration model."""
        return DurationInput(self.kind, self.old.host, self.target,
                             self.old.memory_mb, self.old.dirty)


class Draft:
    """Steps, and the cluster after them."""

    def __init__(self, cluster: Cluster, limits: LoadLimits) -> None:
        self.instances = Lazy(cluster.instances.__getitem__)
        self.hosts = cluster.hosts
        self.rooms = Rooms(cluster, limits)
        self.steps: list[Step] = []
        self.cluster = cluster
        #: Number of instances that come to each host, by steps and by
        #: operations under way.
        self.newcomers = Counter(one.target for one in cluster.in_flight
                                 if one.target is not None)
        #: Sort keys of leases, the highest priority first.
        self.ranks = Lazy(self._rank)

    def _rank(self, lease: str) -> tuple[float, str]:
        return -min(one.priority for one in self.cluster.members(lease)), lease

    def members(self, lease: str) -> list[Instance]:
        """Return the instances of a lease after the steps, by UUID."""
        return [self.instances[one.uuid]
                for one in self.cluster.members(lease)]

    def leases(self) -> list[str]:
        """Return all leases, the highest priority first.

        A lease has the priority of its lowest member, since an owner may
        lower a priority but never raise it.
        """
        return sorted(self.cluster.named_leases(),
                      key=self.ranks.__getitem__)

    def priority(self, lease: str) -> float:
        """Return the priority of a lease."""
        return -self.ranks[lease][0]

    def is_free(self, instance: Instance) -> bool:
        """Return whether an operation on an instance is allowed now.

        Cooling down does not count for leases that run where a static policy
        is violated.
        """
        return not instance.blocked and (
            not instance.cooling_down or instance.lease in self._needed)

    def is_movable(self, instance: Instance) -> bool:
        """Return whether an instance may be migrated now."""
        return (instance.state is InstanceState.ACTIVE
                and self.is_free(instance)
                and not instance.migration_failed)

    @functools.cached_property
    def _needed(self) -> Collection[str]:
        """Leases that run where a static policy is violated."""
        places = (*self.cluster.hosts.values(), *self.cluster.items.values())
        return {one.lease for place in places
                if any(policy.violated and policy.static
                       for policy in place.policies)
                for one in self.cluster.residents(place.name)
                if one.state in (InstanceState.ACTIVE, InstanceState.BUSY)}

    def find_target(self, instance: Instance, budget: Budget,
                    closed: Collection[str] = (),
                    calm: bool = False) -> str | None:
        """Return the emptiest host that could take an instance, or None.

        A host with a higher predicted performance comes before an emptier one.

        :param budget: the result is None if it is spent
        :param closed: excluded hosts, beside the instance's own
        :param calm: also exclude hosts on which a policy fails at the moment
        """
        if instance.migration_failed:
            return None
        for name in self.cluster.prefer_predicted(
                self.rooms.emptiest(), instance, self.newcomers):
            if (name == instance.host or name in closed
                    or not self.cluster.is_open(name, calm)):
                continue
            if not budget.spend():
                return None
            if self.has_room(name, instance):
                return name
        return None

    def has_room(self, host: str, newcomer: Instance) -> bool:
        """Return whether a host has room for an instance."""
        return (self.rooms.may_enter(host, newcomer)
                and self.rooms.has_inventory(host, newcomer)
                and self.rooms.satisfies_constraints(host, newcomer))

    def migrate(self, instance: Instance, target: str) -> None:
        """Migrate a running instance and note its origin."""
        origin = instance.origin or instance.host
        self._add(OperationKind.MIGRATE, instance, host=target,
                  origin=None if target == origin else origin)

    def preempt(self, instance: Instance,
                kind: OperationKind | None = None) -> None:
        """Preempt an instance, by default as its flavor says."""
        kind = kind or PREEMPT_KIND[instance.preempt_policy]
        host = None if kind is OperationKind.SHELVE else instance.host
        self._add(kind, instance, host=host, state=_STATE_AFTER[kind],
                  preempted=True)

    def activate(self, instance: Instance, host: str) -> None:
        """Resume, start or unshelve an instance on ``host``."""
        kind = {
            InstanceState.SUSPENDED: OperationKind.RESUME,
            InstanceState.STOPPED: OperationKind.START,
            InstanceState.SHELVED: OperationKind.UNSHELVE,
        }[instance.state]
        self._add(kind, instance, host=host, state=InstanceState.ACTIVE,
                  preempted=False)

    def _add(self, kind: OperationKind, old: Instance,
             **changes: object) -> None:
        new = dataclasses.replace(
            old, **changes)  # type: ignore[arg-type]
        self._replace(old, new)
        self.steps.append(Step(kind, old, new))

    def attempt(self, add_steps: Callable[[], bool]) -> bool:
        """Add steps; undo them if the function that adds them returns False.

        :returns: what it returns
        """
        begun = len(self.steps)
        done = add_steps()
        if not done:
            self.rewind(begun)
        return done

    def rewind(self, length: int) -> None:
        """Undo the last steps until ``length`` are left."""
        while len(self.steps) > length:
            step = self.steps.pop()
            self._replace(step.new, step.old)

    def _replace(self, old: Instance, new: Instance) -> None:
        self.rooms.take(old)
        self.rooms.put(new)
        self.instances[old.uuid] = new
        for one, count in ((old, -1), (new, 1)):
            if one.host is not None and self._is_newcomer(one):
                self.newcomers[one.host] += count

    def _is_newcomer(self, instance: Instance) -> bool:
        """Return whether an instance runs on a host where it did not."""
        first = self.cluster.instances[instance.uuid]
        return instance.state is InstanceState.ACTIVE and (
            first.state is not InstanceState.ACTIVE
            or first.host != instance.host)
