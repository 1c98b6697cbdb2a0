"""Operations under way: what they cost, how long they really take, how they
end.

The true duration of the k-th of n parallel operations of a kind is a + b k
seconds, as storage serves one after the other, times lognormal noise; the
estimate is that all take as long as the last (EXPERIMENTS 2).  With
``congestion`` another model holds: an operation slows down while others share
what it needs, whenever they have begun.
"""

import bisect
from collections.abc import Callable, Iterable, Iterator
import dataclasses
import itertools
import math

import numpy as np

from secondary_scheduler.estimation.durations import ConcurrentDurations
from secondary_scheduler.estimation.feasibility import Overheads
from secondary_scheduler.plans.operations import RETURNS, OperationKind, Plan
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.record import Recorder
from secondary_scheduler.simulation.world import (
    NOWHERE,
    Bools,
    Floats,
    Ints,
    Status,
    World,
)

#: What goes through the shared storage, in each direction.
_CLASS = {
    OperationKind.SUSPEND: 'write',
    OperationKind.STOP: 'write',
    OperationKind.START: 'read',
    OperationKind.RESUME: 'read',
}
_AFTER = {
    OperationKind.SUSPEND: Status.SUSPENDED,
    OperationKind.STOP: Status.STOPPED,
    OperationKind.START: Status.RUNNING,
    OperationKind.RESUME: Status.RUNNING,
    OperationKind.MIGRATE: Status.RUNNING,
}
#: What burdens a host in steps of one operation; its order is that of rows.
RESOURCES = ('cpu', 'net_in', 'net_out')


@dataclasses.dataclass(frozen=True)
class Flight:
    """An operation on an instance, with numbers of hosts; times in s.

    ``estimate_s`` is how long the decision thinks that it takes.
    """

    id: int
    kind: OperationKind
    instance: int
    source: int
    target: int
    issued: float
    started: float
    estimate_s: float
    by: str
    after: frozenset[int] = frozenset()

    def remaining_s(self, now: float) -> float:
        """Return how long it is thought to take yet."""
        return max(1.0, self.estimate_s - (now - self.started))

    @property
    def hosts(self) -> set[int]:
        """The hosts that it has to do with."""
        return {self.source, self.target} - {NOWHERE}


class Operations:
    """Carries plans out on the world."""

    def __init__(self, world: World, profile: Profile, record: Recorder
                 ) -> None:
        self.world = world
        self.flights: dict[int, Flight] = {}    # by instance
        #: Their instances, ascending: those of a cluster are neighbours.
        self._flying: list[int] = []
        self.burden = np.zeros((len(RESOURCES), len(world.block_until)))
        self._profile = profile
        self._record = record
        self._waiting: list[list[Flight]] = [[] for _one in world.random]
        #: Of plans, by their numbers; what others wait for among them.
        self._undone: set[int] = set()
        self._model = ConcurrentDurations()
        self._overheads = Overheads()
        self._number = 0

    def of_cluster(self, cluster: int) -> Iterator[Flight]:
        """Yield what is under way in a cluster, and what waits to begin."""
        yield from self._waiting[cluster]
        for one in self._ongoing(cluster):
            yield self.flights[one]

    def starts(self) -> Floats:
        """Return how many are to come up from scratch on each host, (H,)."""
        return np.bincount(
            [one.target for one in itertools.chain(
                *self._waiting, self.flights.values())
             if one.kind is OperationKind.START],
            minlength=len(self.world.block_until)).astype(float)

    def of_the_frozen(self) -> Bools:
        """Return the hosts where all that goes on is on guests at the floor.
        """
        world = self.world
        found = np.zeros(len(world.block_until), dtype=bool)
        busy = np.array(self._flying, dtype=np.int64)
        for host in {host for one in busy[world.frozen[busy]].tolist()
                     for host in self.flights[one].hosts}:
            found[host] = all(world.frozen[one] for one in self.on_host(host))
        return found

    def on_host(self, host: int) -> set[int]:
        """Return the instances whose operations burden a host.

        What is being stopped uses nothing any more.
        """
        cluster = int(self.world.cluster_of_host[host])
        return {one for one in self._ongoing(cluster)
                if host in self.flights[one].hosts
                and self.flights[one].kind is not OperationKind.STOP}

    def _ongoing(self, cluster: int) -> list[int]:
        those = self.world.instances_of(cluster)
        return self._flying[bisect.bisect_left(self._flying, those.start):
                            bisect.bisect_left(self._flying, those.stop)]

    # beginning

    def issue(self, plan: Plan, cluster: int, now: float, by: str) -> None:
        """Begin a plan of a cluster (names are numbers in the cluster)."""
        hosts = self.world.hosts_of(cluster).start
        instances = self.world.instances_of(cluster).start
        first = self._number
        for one in plan.operations:
            self._number = max(self._number, first + one.id)
            self._undone.add(first + one.id)
            self.world.reserved[instances + int(one.instance)] = True
            self._waiting[cluster].append(Flight(
                first + one.id, one.kind, instances + int(one.instance),
                _number(one.source, hosts), _number(one.target, hosts), now,
                now, one.duration_s, by, frozenset() if self._profile.parallel
                else frozenset(first + other for other in one.after)))
        self._begin_what_may(cluster, now)

    def order(self, kind: OperationKind, instances: Iterable[int], now: float,
              by: str) -> None:
        """Begin operations that take instances down, without a plan."""
        for instance in instances:
            self._number += 1
            self._begin(Flight(
                self._number, kind, instance, int(self.world.host[instance]),
                NOWHERE, now, now, self._model.predict(kind), by))

    def _begin_what_may(self, cluster: int, now: float) -> None:
        waiting = self._waiting[cluster]
        while waiting:
            ready = [one for one in waiting
                     if one.after.isdisjoint(self._undone)]
            if not ready:
                return
            for one in ready:
                waiting.remove(one)
                self._begin(dataclasses.replace(one, started=now))

    def _begin(self, flight: Flight) -> None:
        """Begin, unless the world has changed since it was planned."""
        world, one = self.world, flight.instance
        world.reserved[one] = False
        needs = {
            OperationKind.START: Status.STOPPED,
            OperationKind.RESUME: Status.SUSPENDED,
        }.get(flight.kind, Status.RUNNING)
        gone = any(not (world.up[host] and world.watched[host])
                   for host in flight.hosts)
        if one in self.flights or world.status[one] != needs or gone:
            self._undone.discard(flight.id)
            return
        world.left[one] = self._true_duration(flight)
        self.flights[one] = flight
        bisect.insort(self._flying, one)
        if flight.kind is OperationKind.START:
            world.booting[one] = True
        if needs is not Status.RUNNING:
            world.host[one] = flight.target
        if flight.kind is OperationKind.STOP:    # its use drops at once
            self._lose(one, 'stop', flight.started)
            world.status[one] = Status.STOPPED
        self._burden(flight, 1)
        # locked with the instance (3.7)
        if flight.kind is OperationKind.MIGRATE:
            world.block_until[flight.target] = math.inf

    def _true_duration(self, flight: Flight) -> float:
        cluster = int(self.world.cluster_of[flight.instance])
        others = [self.flights[one] for one in self._ongoing(cluster)]
        place = self._place(flight, others)
        if self._profile.congestion:
            place = 1   # others slow it down as long as they are there
        noise = self.world.random[cluster].normal(0.0, self._profile.noise)
        return self._lasts(flight.kind, place) * math.exp(noise)

    def _lasts(self, kind: OperationKind, place: int) -> float:
        """Return the duration of the k-th of parallel operations."""
        base: float = getattr(self._model, f'{kind}_base')
        each: float = getattr(self._model, f'{kind}_each')
        return base + each * place

    def _place(self, flight: Flight, others: Iterable[Flight]) -> int:
        """Return how many share what an operation needs, itself included."""
        if flight.kind is OperationKind.MIGRATE:
            return 1 + max(sum(host in one.hosts for one in others)
                           for host in flight.hosts)
        return 1 + sum(_CLASS.get(one.kind) == _CLASS[flight.kind]
                       for one in others)

    def _crowding(self, busy: Ints) -> Floats:
        """Return how fast operations go on that share what they need."""
        rate = np.ones(len(self.world.left))
        for cluster in range(len(self.world.random)):
            flights = [self.flights[one] for one in self._ongoing(cluster)]
            for one in flights:
                place = self._place(one, [
                    other for other in flights if other is not one])
                rate[one.instance] = (self._lasts(one.kind, 1)
                                      / self._lasts(one.kind, place))
        return rate[busy]

    def _burden(self, flight: Flight, sign: int) -> None:
        throttled = (flight.kind is OperationKind.START
                     and self._profile.throttles_boot)
        for row, resource in enumerate(RESOURCES):
            if throttled and resource == 'cpu':
                continue    # it is the guest's use, under its cap
            for host, table in ((flight.source, self._overheads.leaving),
                                (flight.target, self._overheads.arriving)):
                if host != NOWHERE and (
                        table is self._overheads.arriving
                        or flight.target == NOWHERE
                        or flight.kind is OperationKind.MIGRATE):
                    self.burden[row, host] += sign * table.get(
                        flight.kind, {}).get(resource, 0.0)

    # ending

    def advance(self, seconds: float, use: Floats, now: float) -> None:
        """Let operations go on.

        A boot that an agent throttles goes on as the guest's ``use`` (N,) of
        CPU lets it, in percent of the host.
        """
        world = self.world
        busy = np.array(self._flying, dtype=np.int64)
        rate = np.where(
            world.booting[busy] & self._profile.throttles_boot,
            use[busy] / world.boot[busy], 1.0)
        if self._profile.congestion:
            rate *= self._crowding(busy)
        world.left[busy] -= seconds * rate
        for instance in busy[world.left[busy] <= 1e-9]:
            flight = self.flights.get(int(instance))
            if flight is None or world.left[instance] > 1e-9:
                continue    # its peer has failed, and something else goes on
            cluster = int(world.cluster_of[instance])
            fails = (
                flight.kind is not OperationKind.STOP
                and self._profile.failures
                and self.world.random[cluster].random()
                < self._profile.failures
            )
            self._end(flight, now, not fails)
            self._begin_what_may(cluster, now)

    def _end(self, flight: Flight, now: float, ok: bool) -> None:
        world, one = self.world, flight.instance
        if ok:
            world.status[one] = _AFTER[flight.kind]
            if flight.kind is OperationKind.MIGRATE:
                world.host[one] = flight.target
        self._finish(flight, now, ok)
        if world.status[one] != Status.RUNNING:
            self._leave(one, now)
        wait = now + self._profile.backoff_s
        world.hold_until[one] = max(world.hold_until[one], wait)
        for host in flight.hosts:
            world.block_until[host] = wait
        if not ok and flight.kind in RETURNS:   # it is cleaned up (R29)
            self._take_peers_down(one, OperationKind.SUSPEND, now, flight.by)

    def _finish(self, flight: Flight, now: float, ok: bool) -> None:
        one = flight.instance
        del self.flights[one]
        self._undone.discard(flight.id)
        self._flying.remove(one)
        self.world.left[one] = np.inf
        self.world.booting[one] = False
        self._burden(flight, -1)
        self._say(one, 'operation', id=flight.id, kind=str(flight.kind),
                  lease=int(self.world.lease_number[one]),
                  **{'from': self._host(flight.source)},
                  to=self._host(flight.target), issued=flight.issued,
                  started=flight.started, ended=now, ok=ok, by=flight.by,
                  estimate_s=flight.estimate_s)

    def _leave(self, instance: int, now: float) -> None:
        """See to what follows when an instance does not run (any more)."""
        world = self.world
        cluster = int(world.cluster_of[instance])
        world.queued_since[cluster, world.lease_of[instance]] = now
        world.frozen[instance] = False
        if not self._profile.sticky:
            world.host[instance] = NOWHERE

    # the last resort

    def kill(self, instance: int, now: float) -> None:
        """End an instance at once, and its lease with it (R35, R42)."""
        self.fail(instance, now, 'kill')
        self.world.hold_until[instance] = now + self._profile.remedy_s

    def fail(self, instance: int, now: float, event: str) -> None:
        """Let an instance end at once, and take its lease down with it.

        Where agents hold the others meanwhile there is time to save them.
        """
        self._down(instance, now, event)
        self._say(instance, event, t=now)
        self._take_peers_down(
            instance,
            OperationKind.SUSPEND
            if self._profile.freeze
            else OperationKind.STOP,
            now,
            'local',
        )

    def _take_peers_down(
        self, instance: int, down: OperationKind, now: float, by: str
    ) -> None:
        """Take down what runs, boots or is to come up of its lease."""
        world = self.world
        peers = [one for one in world.members(instance) if one != instance]
        self._withdraw(int(world.cluster_of[instance]), lambda one: (
            one.instance in peers and one.kind in RETURNS))
        for one in peers:
            if one in self.flights and (world.running[one]
                                        or self.flights[one].kind in RETURNS):
                self._abort(one, now)
        self.order(down, [one for one in peers if world.running[one]],
                   now, by)

    def _down(self, instance: int, now: float, cause: str) -> None:
        if instance in self.flights:
            self._abort(instance, now)
        self._lose(instance, cause, now)
        self.world.status[instance] = Status.STOPPED
        self._leave(instance, now)

    def lose_host(self, host: int, now: float) -> None:
        """Let a host fail with all that runs there (X24).

        Nova evacuates: who ran there may start anywhere.  Who was suspended
        there waits for the host, where its memory is.
        """
        world = self.world
        world.up[host] = False
        here = np.flatnonzero((world.host == host)
                              & (world.running | world.booting)).tolist()
        for one in here:    # peers elsewhere may have taken it down already
            if world.running[one] or world.booting[one]:
                self.fail(one, now, 'crash')
            world.host[one] = NOWHERE
        for flight in list(self.flights.values()):
            if host in flight.hosts:
                self._abort(flight.instance, now)
        world.block_until[host] = math.inf

    def lose_agent(self, host: int) -> None:
        """Let a host's agent die.

        Its unit takes all secondaries to the floor in the end, where there is
        one; else the limits stay in force.
        """
        world = self.world
        world.watched[host] = False
        if self._profile.freeze:
            here = (world.host == host) & (world.running | world.booting)
            world.frozen_s[here & ~world.frozen] = 0.0
            world.frozen |= here

    def return_host(self, host: int, now: float) -> None:
        """Let a host be there again."""
        self.world.up[host] = True
        self.world.block_until[host] = now

    def depart(self, instance: int, now: float) -> None:
        """Let an instance go for good, by itself, whatever is under way."""
        if instance in self.flights:
            self._abort(instance, now)
        self._withdraw(int(self.world.cluster_of[instance]),
                       lambda one: one.instance == instance)
        self.world.remove(instance)

    def _withdraw(self, cluster: int, which: Callable[[Flight], bool]) -> None:
        """Take back operations that wait to begin."""
        waiting = self._waiting[cluster]
        for one in list(filter(which, waiting)):
            waiting.remove(one)
            self._undone.discard(one.id)
            self.world.reserved[one.instance] = False

    def _abort(self, instance: int, now: float) -> None:
        flight = self.flights[instance]
        self._finish(flight, now, False)
        for host in flight.hosts:
            self.world.block_until[host] = now + self._profile.backoff_s
        if not self.world.running[instance]:
            self._leave(instance, now)

    def _lose(self, instance: int, cause: str, now: float) -> None:
        self._say(instance, 'work_lost', t=now, cause=cause,
                  core_s=float(self.world.work[instance]))
        self.world.work[instance] = 0.0

    def _say(self, instance: int, event: str, **fields: object) -> None:
        self._record.event(int(self.world.cluster_of[instance]), event,
                           instance=self.world.name(instance), **fields)

    def _host(self, host: int) -> int | None:
        return None if host == NOWHERE else host % self.world.shape.hosts


def _number(name: str | None, first: int) -> int:
    return NOWHERE if name is None else first + int(name)
