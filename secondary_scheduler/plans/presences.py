# SPDX-License-Identifier: Apache-2.0

"""Presences: from an arrival of an instance on a place to its departure.

Two presences overlap in some execution of a plan if neither arrival waits for
the other's departure.  This is a part of the checker, which shares no code
with the decisions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
import typing

from secondary_scheduler.model.cluster import Cluster, Instance, InstanceState
from secondary_scheduler.plans.antichains import heaviest_antichain
from secondary_scheduler.plans.operations import (
    PREEMPTIONS,
    Operation,
    OperationKind,
)
from secondary_scheduler.plans.reachability import Reachability

#: Kinds that change the hosts on which an instance has claims.
MOVES = frozenset(
    {OperationKind.MIGRATE, OperationKind.SHELVE, OperationKind.UNSHELVE})
#: States in which an instance may use its host.
RUNNING = frozenset(
    {InstanceState.ACTIVE, InstanceState.BUSY, InstanceState.OTHER})


class Presence(typing.NamedTuple):
    """An instance on a place.

    :param place: a host, or an item for an instance that runs
    :param arrival: operation with whose start it begins; None if it has begun
    :param departure: operation with whose end it ends; None if it stays
    """

    instance: Instance
    place: str
    arrival: Operation | None
    departure: Operation | None


class Presences:
    """Presences of the instances that a plan operates on.

    :param holding: hosts on which each instance has claims before the plan
    :ivar claims: presences on hosts by claims, also of suspended instances
    :ivar running: presences on hosts and items by use
    :ivar by_instance: ``claims`` by instance
    """

    def __init__(self, cluster: Cluster, reach: Reachability,
                 holding: Mapping[str, set[str]]) -> None:
        self.cluster = cluster
        self.reach = reach
        self.claims: dict[str, list[Presence]] = defaultdict(list)
        self.running: dict[str, list[Presence]] = defaultdict(list)
        self.by_instance: dict[str, list[Presence]] = defaultdict(list)
        operations = defaultdict(list)
        for operation in reach.order:
            operations[operation.instance].append(operation)
        for uuid, several in operations.items():
            instance = cluster.instances[uuid]
            for one in self._claims(instance, several, holding[uuid]):
                self.claims[one.place].append(one)
                self.by_instance[uuid].append(one)
            for one in self._running(instance, several, holding[uuid]):
                self.running[one.place].append(one)

    @staticmethod
    def _claims(instance: Instance, operations: Sequence[Operation],
                hosts: set[str]) -> Iterator[Presence]:
        began: dict[str, Operation | None] = dict.fromkeys(hosts)
        for one in operations:
            if one.target is not None:
                began.setdefault(one.target, one)
            if one.kind in MOVES and one.source in began:
                yield Presence(instance, one.source,
                               began.pop(one.source), one)
        for host, arrival in began.items():
            yield Presence(instance, host, arrival, None)

    def _running(self, instance: Instance, operations: Sequence[Operation],
                 hosts: set[str]) -> Iterator[Presence]:
        began: dict[str, Operation | None] = {}
        if instance.state in RUNNING:
            for host in hosts:
                began.update(dict.fromkeys(self.cluster.places(host)))
        for one in operations:
            reached = (() if one.target is None
                       else self.cluster.places(one.target))
            for place in reached:
                began.setdefault(place, one)
            if (one.kind is OperationKind.MIGRATE or one.kind in PREEMPTIONS
                    ) and one.source is not None:
                for place in self.cluster.places(one.source):
                    if place in began and place not in reached:
                        yield Presence(instance, place, began.pop(place), one)
        for place, arrival in began.items():
            yield Presence(instance, place, arrival, None)

    def overlap(self, one: Presence, other: Presence) -> bool:
        """Return whether two presences overlap in some execution."""
        return not (self.reach.precedes(one.departure, other.arrival)
                    or self.reach.precedes(other.departure, one.arrival))

    def overfull(self, presences: Sequence[Presence], room: float,
                 amount: Callable[[Instance], int]) -> Iterator[Operation]:
        """Yield arrivals at which the room may be too small.

        Only the amounts of instances that are on the place at the arrival in
        the same execution are added.

        :param presences: presences on one place
        :param room: room for them
        :param amount: amount of an instance there
        """
        if sum(amount(one.instance) for one in presences) <= room:
            return
        here = [one for one in presences if one.arrival is None]
        arrivals = [(one.arrival.start_s, one.arrival.id, one.arrival, one)
                    for one in presences if one.arrival is not None]
        # Each set of presences that overlap has a last arrival by the times.
        for _start, _id, arrival, last in sorted(
                arrivals, key=lambda one: one[:2]):
            others = [one for one in here if self.overlap(one, last)]
            here.append(last)
            left = room - amount(last.instance)
            if (sum(amount(one.instance) for one in others) > left
                    and self._most(others, amount) > left):
                yield arrival

    def _most(self, presences: Sequence[Presence],
              amount: Callable[[Instance], int]) -> int:
        """Return the largest amount of presences that all overlap."""
        return heaviest_antichain(
            [amount(one.instance) for one in presences],
            lambda one, other: self.reach.precedes(
                presences[one].departure, presences[other].arrival))
