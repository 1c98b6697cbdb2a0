# SPDX-License-Identifier: Apache-2.0

"""Check of placement constraints, which hold at every instant of a plan.

This is a part of the checker, which shares no code with the decisions.  It
judges states before and after each arrival by ``Constraint.broken``, and a
root or a quarantine by rules of its own.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
import functools

from secondary_scheduler.model.cluster import Cluster
from secondary_scheduler.model.constraints import (
    Among,
    Ban,
    Constraint,
    Fence,
    Gather,
    Lonely,
    Quarantine,
    Root,
    Split,
    Spread,
    check_kinds,
)
from secondary_scheduler.plans.operations import Operation
from secondary_scheduler.plans.presences import MOVES, Presence, Presences

_KNOWN = (Spread, Gather, Ban, Fence, Among, Lonely, Split, Root, Quarantine)


class ConstraintChecks:
    """Check of constraints at the estimated times of a plan.

    :param held: hosts on which an instance has claims now, kept up to date
    :param there: the same by host
    """

    def __init__(self, cluster: Cluster, held: Mapping[str, set[str]],
                 there: Mapping[str, set[str]]) -> None:
        self.cluster = cluster
        self.held = held
        self.there = there
        check_kinds(cluster.constraints, _KNOWN)

    @functools.cached_property
    def _naming(self) -> Mapping[str, list[Constraint]]:
        found: dict[str, list[Constraint]] = defaultdict(list)
        for one in self.cluster.constraints:
            for uuid in one.named:
                found[uuid].append(one)
        return found

    @functools.cached_property
    def _quarantines(self) -> list[Constraint]:
        return [one for one in self.cluster.constraints
                if isinstance(one, Quarantine)]

    def broken_by(self, operation: Operation) -> Iterator[str]:
        """Yield the violations that the start of an operation adds."""
        if not self.cluster.constraints:
            return
        uuid, source, target = (
            operation.instance, operation.source, operation.target)
        if operation.kind not in MOVES and source is not None:
            return      # it stays
        for one in (*self._naming.get(uuid, ()), *self._quarantines):
            if _is_forbidden(one, source, target):
                yield f'forbidden by {one}'
        if target is None or target in self.held[uuid]:
            return
        concerned = [*self._naming.get(uuid, ())]
        concerned += (one for other in self.there.get(target, ())
                      for one in self._naming.get(other, ())
                      if isinstance(one, Lonely))
        for one in dict.fromkeys(concerned):
            state = self._state(one, uuid, target)
            before = one.broken(state)
            state[uuid] = {*state.get(uuid, ()), target}
            for violation in sorted(one.broken(state) - before):
                yield f'breaks {one}: {violation}'

    def _state(self, constraint: Constraint, uuid: str, target: str
               ) -> dict[str, set[str]]:
        """Return the hosts of members, and of instances on a target.

        A ban and a fence may name thousands, but judge each one alone.
        """
        named = ({uuid} if isinstance(constraint, (Ban, Fence))
                 else set(constraint.named))
        if isinstance(constraint, Lonely):
            named |= self.there.get(target, set())
        return {uuid: self._hosts_of(uuid) for uuid in named}

    def _hosts_of(self, uuid: str) -> set[str]:
        return hosts_before(self.cluster, self.held, uuid)


def _is_forbidden(constraint: Constraint, source: str | None,
                  target: str | None) -> bool:
    """Return whether a root or a quarantine forbids a change of hosts.

    :param constraint: a quarantine, or one that names the instance
    """
    if target is None or source == target:
        return False
    if isinstance(constraint, Root):
        return source is not None
    return isinstance(constraint, Quarantine) and (
        source in constraint.hosts or target in constraint.hosts)


def hosts_before(cluster: Cluster, holding: Mapping[str, set[str]],
                 uuid: str) -> set[str]:
    """Return the hosts that an instance is on, none if it is unknown."""
    if uuid in holding:
        return holding[uuid]
    instance = cluster.instances.get(uuid)
    return (set() if instance is None or instance.host is None
            else {instance.host})


class ConstraintOrders:
    """Check of constraints in all executions of a plan.

    Two arrivals, or an arrival and an instance that is there, conflict if
    they break a constraint and may meet.  A gather and an among that are
    broken before the plan are left to the check at the estimated times.

    :param holding: hosts on which each instance has claims before the plan
    :param staying: instances without operations, by host
    """

    def __init__(self, cluster: Cluster, presences: Presences,
                 holding: Mapping[str, set[str]],
                 staying: Mapping[str, set[str]]) -> None:
        self.cluster = cluster
        self.presences = presences
        self.holding = holding
        self.staying = staying

    def conflicts(self) -> Iterator[tuple[Presence, Constraint]]:
        """Yield arrivals that may break a constraint."""
        for constraint in self.cluster.constraints:
            if isinstance(constraint, (Spread, Split)):
                there = self._of_members(constraint)
            elif isinstance(constraint, Lonely):
                there = self._with_others(constraint)
            elif isinstance(constraint, (Gather, Among)):
                several = self._all_of(constraint)
                if constraint.broken({
                        uuid: hosts_before(self.cluster, self.holding, uuid)
                        for uuid in constraint.named}):
                    continue
                there = {'': several}
            else:
                # It concerns single members, at any time.
                check_kinds([constraint], (Ban, Fence, Root, Quarantine))
                continue
            for several in there.values():
                yield from ((one, constraint) for one in self._meeting(
                    constraint, several))

    def _all_of(self, constraint: Constraint) -> list[Presence]:
        return [one for uuid in sorted(constraint.named)
                for one in self._of(uuid)]

    def _of(self, uuid: str) -> list[Presence]:
        """Return the presences of any instance."""
        if uuid in self.presences.by_instance:
            return self.presences.by_instance[uuid]
        instance = self.cluster.instances.get(uuid)
        return [] if instance is None else [
            Presence(instance, host, None, None) for host in hosts_before(
                self.cluster, self.holding, uuid)]

    def _of_members(self, constraint: Constraint) -> dict[str, list[Presence]]:
        """Return the presences of members by host."""
        found: dict[str, list[Presence]] = defaultdict(list)
        for one in self._all_of(constraint):
            found[one.place].append(one)
        return found

    def _with_others(self, constraint: Constraint
                     ) -> dict[str, list[Presence]]:
        """Return the presences of all instances on hosts of members."""
        found = self._of_members(constraint)
        for host, several in found.items():
            known = {one.instance.uuid for one in several}
            several += (one for one in self.presences.claims.get(host, ())
                        if one.instance.uuid not in known)
            several += (Presence(self.cluster.instances[one], host, None, None)
                        for one in self.staying.get(host, set()) - known)
        return found

    def _meeting(self, constraint: Constraint, several: list[Presence]
                 ) -> Iterator[Presence]:
        """Yield arrivals in conflict with a presence that they may meet."""
        if (all(one.arrival is None for one in several)
                or not _conflict(constraint, several)):
            return
        for one in several:
            if one.arrival is not None and any(
                    other is not one and _conflict(constraint, (one, other))
                    and self.presences.overlap(one, other)
                    for other in several):
                yield one


def _conflict(constraint: Constraint, presences: Iterable[Presence]) -> bool:
    hosts: dict[str, set[str]] = defaultdict(set)
    for one in presences:
        hosts[one.instance.uuid].add(one.place)
    return bool(constraint.broken(hosts))
