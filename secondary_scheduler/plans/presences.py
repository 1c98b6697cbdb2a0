# SPDX-License-Identifier: Apache-2.0

"""Presences: from an arrival of an instance on a place to its departure.

Two presences overlap in some execution of a plan if neither arrival waits for
the other's departure.  This is a part of the checker, which shares no code
with the decisions.
"""

from collections import defaultdict
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
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
        if self._bound(presences, amount) <= room:
            return
        here = [one for one in presences if one.arrival is None]
        # Each set of presences that overlap has a last arrival by the times.
        for last, arrival in _by_arrival(presences):
            others = [one for one in here if self.overlap(one, last)]
            here.append(last)
            left = room - amount(last.instance)
            if (self._bound(others, amount) > left
                    and self._most(others, amount) > left):
                yield arrival

    def _bound(self, presences: Sequence[Presence],
               amount: Callable[[Instance], int]) -> int:
        """Return an upper bound of the amount of presences that overlap.

        Each arrival takes over what departures leave for which it waits, the
        last ones first, as far as earlier arrivals have not taken it.
        """
        total = 0
        left: dict[tuple[int, int], int] = {}
        departures: dict[int, int] = defaultdict(int)
        for one in presences:
            total += amount(one.instance)
            if one.departure is not None and amount(one.instance):
                component, bit = self.reach.locate(one.departure)
                departures[component] |= bit
                left[component, bit] = amount(one.instance)
        for one, arrival in _by_arrival(presences):
            component, _bit = self.reach.locate(arrival)
            needed = amount(one.instance)
            awaited = self.reach.before(arrival) & departures[component]
            while needed and awaited:
                bit = 1 << awaited.bit_length() - 1
                taken = min(needed, left[component, bit])
                total -= taken
                needed -= taken
                left[component, bit] -= taken
                if not left[component, bit]:
                    departures[component] ^= bit
                    awaited ^= bit
        return total

    def _most(self, presences: Sequence[Presence],
              amount: Callable[[Instance], int]) -> int:
        """Return the largest amount of presences that all overlap."""
        return heaviest_antichain(
            [amount(one.instance) for one in presences],
            lambda one, other: self.reach.precedes(
                presences[one].departure, presences[other].arrival))


def _by_arrival(presences: Iterable[Presence]
                ) -> list[tuple[Presence, Operation]]:
    """Return the presences with an arrival, by its estimated time."""
    return sorted(((one, one.arrival) for one in presences
                   if one.arrival is not None),
                  key=lambda pair: (pair[1].start_s, pair[1].id))
