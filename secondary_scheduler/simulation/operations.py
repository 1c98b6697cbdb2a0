# SPDX-License-Identifier: Apache-2.0

"""Execution of operations: their load on hosts, their ends and failures."""

import bisect
from collections.abc import Callable, Iterable, Iterator
import dataclasses
import itertools
import math

import numpy as np

from secondary_scheduler.estimation.durations import ConcurrentDurations
from secondary_scheduler.estimation.feasibility import Overheads
from secondary_scheduler.plans.operations import RETURNS, OperationKind, Plan
from secondary_scheduler.simulation.flights import Flight, TrueDurations
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

#: Status of an instance after a successful operation.
_AFTER = {
    OperationKind.SUSPEND: Status.SUSPENDED,
    OperationKind.STOP: Status.STOPPED,
    OperationKind.START: Status.RUNNING,
    OperationKind.RESUME: Status.RUNNING,
    OperationKind.MIGRATE: Status.RUNNING,
}
#: Resources that operations use, in the order of the rows of ``burden``.
RESOURCES = ('cpu', 'net_in', 'net_out')


class Operations:
    """Executor of plans on the simulated clusters."""

    def __init__(self, world: World, profile: Profile, record: Recorder
                 ) -> None:
        self.world = world
        self.flights: dict[int, Flight] = {}    # by instance
        #: Instances of ``flights``, ascending; a cluster is one slice of it.
        self._flying: list[int] = []
        self.burden = np.zeros((len(RESOURCES), len(world.block_until)))
        self._profile = profile
        self._record = record
        self._waiting: list[list[Flight]] = [[] for _one in world.random]
        #: Ids of planned operations that have not ended; others wait for them.
        self._undone: set[int] = set()
        self._model = ConcurrentDurations()
        self._durations = TrueDurations(self._model, profile)
        self._overheads = Overheads()
        self._number = 0

    def of_cluster(self, cluster: int) -> Iterator[Flight]:
        """Yield the operations of a cluster, waiting ones first."""
        yield from self._waiting[cluster]
        for one in self._ongoing(cluster):
            yield self.flights[one]

    def starts(self) -> Floats:
        """Return the number of starts to each host, waiting or not, (H,)."""
        return np.bincount(
            [one.target for one in itertools.chain(
                *self._waiting, self.flights.values())
             if one.kind is OperationKind.START],
            minlength=len(self.world.block_until)).astype(float)

    def of_the_frozen(self) -> Bools:
        """Return the hosts whose operations are all on guests at the floor.
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

        An instance that is being stopped uses nothing any more.
        """
        cluster = int(self.world.cluster_of_host[host])
        return {one for one in self._ongoing(cluster)
                if host in self.flights[one].hosts
                and self.flights[one].kind is not OperationKind.STOP}

    def _ongoing(self, cluster: int) -> list[int]:
        those = self.world.instances_of(cluster)
        return self._flying[bisect.bisect_left(self._flying, those.start):
                            bisect.bisect_left(self._flying, those.stop)]

    # start of operations

    def issue(self, plan: Plan, cluster: int, now: float, by: str) -> None:
        """Begin a plan of a cluster; its names are numbers in the cluster."""
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
        self._begin_ready(cluster, now)

    def order(self, kind: OperationKind, instances: Iterable[int], now: float,
              by: str) -> None:
        """Begin suspends or stops without a plan."""
        for instance in instances:
            self._number += 1
            self._begin(Flight(
                self._number, kind, instance, int(self.world.host[instance]),
                NOWHERE, now, now, self._model.predict(kind), by))

    def _begin_ready(self, cluster: int, now: float) -> None:
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
        """Begin an operation, unless its instance or host has changed."""
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
        # The target is locked with the instance (Boettger 2012, 4.4.5.1).
        if flight.kind is OperationKind.MIGRATE:
            world.block_until[flight.target] = math.inf

    def _true_duration(self, flight: Flight) -> float:
        cluster = int(self.world.cluster_of[flight.instance])
        return self._durations.draw_s(
            flight, [self.flights[one] for one in self._ongoing(cluster)],
            self.world.random[cluster])

    def _rates(self, busy: Ints) -> Floats:
        """Return the speed of operations that share a resource."""
        rate = np.ones(len(self.world.left))
        for cluster in range(len(self.world.random)):
            flights = [self.flights[one] for one in self._ongoing(cluster)]
            for one in flights:
                rate[one.instance] = self._durations.rate(one, flights)
        return rate[busy]

    def _burden(self, flight: Flight, sign: int) -> None:
        throttled = (flight.kind is OperationKind.START
                     and self._profile.throttles_boot)
        for row, resource in enumerate(RESOURCES):
            if throttled and resource == 'cpu':
                continue    # counted as the guest's use, under its cap
            for host, table in ((flight.source, self._overheads.leaving),
                                (flight.target, self._overheads.arriving)):
                if host != NOWHERE and (
                        table is self._overheads.arriving
                        or flight.target == NOWHERE
                        or flight.kind is OperationKind.MIGRATE):
                    self.burden[row, host] += sign * table.get(
                        flight.kind, {}).get(resource, 0.0)

    # end of operations

    def advance(self, seconds: float, use: Floats, now: float) -> None:
        """Advance all operations, and end the finished ones.

        A throttled boot advances with the guest's ``use`` of CPU, (N,) in
        percent of the host.
        """
        world = self.world
        busy = np.array(self._flying, dtype=np.int64)
        rate = np.where(
            world.booting[busy] & self._profile.throttles_boot,
            use[busy] / world.boot[busy], 1.0)
        if self._profile.congestion:
            rate *= self._rates(busy)
        world.left[busy] -= seconds * rate
        for instance in busy[world.left[busy] <= 1e-9]:
            flight = self.flights.get(int(instance))
            if flight is None or world.left[instance] > 1e-9:
                continue    # a failed peer has replaced its operation
            cluster = int(world.cluster_of[instance])
            fails = (
                flight.kind is not OperationKind.STOP
                and self._profile.failures
                and self.world.random[cluster].random()
                < self._profile.failures
            )
            self._end(flight, now, not fails)
            self._begin_ready(cluster, now)

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
        if not ok and flight.kind in RETURNS:   # no lease runs in part
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
        """Queue the lease of an instance that does not run."""
        world = self.world
        cluster = int(world.cluster_of[instance])
        world.queued_since[cluster, world.lease_of[instance]] = now
        world.frozen[instance] = False
        if not self._profile.sticky:
            world.host[instance] = NOWHERE

    # kills and losses

    def kill(self, instance: int, now: float) -> None:
        """Kill an instance, and take its lease down."""
        self.fail(instance, now, 'kill')
        self.world.hold_until[instance] = now + self._profile.remedy_s

    def fail(self, instance: int, now: float, event: str) -> None:
        """Stop an instance at once, and take the rest of its lease down.

        With agents that keep guests at the floor there is time to suspend
        the rest; without, it is stopped.
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
        """Take down the peers that run, boot or are about to return."""
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
        """Take a host down with all instances that run there.

        Evacuated instances may start anywhere.  Suspended instances wait for
        the host, which has their memory.
        """
        world = self.world
        world.up[host] = False
        here = np.flatnonzero((world.host == host)
                              & (world.running | world.booting)).tolist()
        for one in here:    # the loss of a peer may have taken it down
            if world.running[one] or world.booting[one]:
                self.fail(one, now, 'crash')
            world.host[one] = NOWHERE
        for flight in list(self.flights.values()):
            if host in flight.hosts:
                self._abort(flight.instance, now)
        world.block_until[host] = math.inf

    def lose_agent(self, host: int) -> None:
        """Take the agent of a host down.

        With a floor its systemd unit takes all secondaries there; without,
        their limits stay in force.
        """
        world = self.world
        world.watched[host] = False
        if self._profile.freeze:
            here = (world.host == host) & (world.running | world.booting)
            world.frozen_s[here & ~world.frozen] = 0.0
            world.frozen |= here

    def return_host(self, host: int, now: float) -> None:
        """Bring a lost host back."""
        self.world.up[host] = True
        self.world.block_until[host] = now

    def depart(self, instance: int, now: float) -> None:
        """Remove an instance for good, and abort its operation."""
        if instance in self.flights:
            self._abort(instance, now)
        self._withdraw(int(self.world.cluster_of[instance]),
                       lambda one: one.instance == instance)
        self.world.remove(instance)

    def _withdraw(self, cluster: int, which: Callable[[Flight], bool]) -> None:
        """Cancel operations that have not begun."""
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
