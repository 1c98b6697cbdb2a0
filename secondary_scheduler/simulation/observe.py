"""What decisions get to see: one cluster as a value of the core's model."""

import numpy as np

from secondary_scheduler.model.cluster import (
    DOWN,
    Cluster,
    Host,
    HostPolicy,
    InFlight,
    Instance,
    Lease,
    State,
)
from secondary_scheduler.model.vocabulary import MEMORY_MB, RESOURCE_CLASSES
from secondary_scheduler.simulation.checks import Checks
from secondary_scheduler.simulation.operations import RESOURCES, Operations
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.world import (
    NOWHERE,
    Bools,
    Floats,
    Ints,
    Status,
    World,
)

#: Seconds over which the estimator averages (Boettger Eq. 4.2).
WINDOW = 5

#: No inventory but that of memory binds here: policies alone do.
_PLENTY = dict.fromkeys(RESOURCE_CLASSES, 10**6)
_STATES = {Status.STOPPED: State.STOPPED, Status.SUSPENDED: State.SUSPENDED,
           Status.RUNNING: State.ACTIVE}


class Observer:
    """Averages over the last seconds, and clusters made of them."""

    def __init__(self, world: World, checks: Checks, operations: Operations,
                 profile: Profile) -> None:
        self._world = world
        self._checks = checks
        self._operations = operations
        self._profile = profile
        hosts, instances = len(world.block_until), len(world.status)
        self._inventory = _PLENTY | {MEMORY_MB: world.shape.memory_mb}
        self._main = np.zeros((WINDOW, len(RESOURCES), hosts))
        self._use = np.zeros((WINDOW, instances))
        self._seen = 0
        #: Which policies ask for the cloud's help, (P, H); see ``judge``.
        self.violated = np.zeros_like(checks.failed, dtype=bool)

    def see(self, main: Floats, use: Floats) -> None:
        """Take a second: primaries (resources, H), instances' CPU (N,)."""
        place = self._seen % WINDOW
        self._main[place], self._use[place] = main, use
        self._seen += 1

    def main(self) -> Floats:
        """Return the mean use of primaries, (resources, H)."""
        return np.asarray(self._main[:min(self._seen, WINDOW)].mean(axis=0))

    def counted(self, instances: Ints | slice = slice(None)) -> Floats:
        """Return what a decision counts for some instances, in percent.

        What an agent can squeeze counts with its useful share at most.
        """
        use = self._use[:min(self._seen, WINDOW), instances].mean(axis=0)
        if self._profile.forecasts_demand:
            return np.asarray(use)
        return np.minimum(use, self._profile.useful_share)

    def judge(self) -> None:
        """Find out which policies ask for the cloud's help now.

        An agent that freezes holds dynamic ones for as long as it is patient.
        """
        world = self._world
        self.violated = self._checks.violated & world.watched
        if not self._profile.patient:
            return
        tired = world.frozen & (world.frozen_s >= self._profile.patience_s)
        relief = world.sum_by_host(
            tired.astype(float), tired & (world.host >= 0)) > 0
        dynamic = np.array([[not one.static]
                            for one in self._checks.policies])
        self.violated = np.where(dynamic, relief, self.violated
                                 ) & world.watched

    def cluster(self, number: int, now: float) -> Cluster:
        """Return a cluster as it is known now; names are numbers."""
        those = self._world.instances_of(number)
        return self._seen_as(
            number, now, np.array(self._world.hosts_of(number)), those.start
            + np.flatnonzero(self._world.present[those.start:those.stop]))

    def part(self, number: int, now: float, hosts: Ints, instances: Ints
             ) -> Cluster:
        """Return what a decision needs that is about some hosts only.

        That is who is there, the ``instances`` in question, and all that is
        under way in the cluster.
        """
        world = self._world
        those = world.instances_of(number)
        there = those.start + np.flatnonzero(np.isin(
            world.host[those.start:those.stop], hosts))
        under_way = [one.instance for one in
                     self._operations.of_cluster(number)]
        return self._seen_as(number, now, hosts, np.unique(
            np.concatenate((there, instances, under_way))).astype(np.int64))

    def _seen_as(self, number: int, now: float, hosts: Ints, instances: Ints
                 ) -> Cluster:
        world = self._world
        resting_hosts, resting = self._resting(now)
        flights = list(self._operations.of_cluster(number))
        busy = {one.instance for one in flights}
        first_host = world.hosts_of(number).start
        first = world.instances_of(number).start

        def name(host: int) -> str | None:
            return None if host == NOWHERE else f'{host - first_host:04}'

        main = self._main[:min(self._seen, WINDOW), :, hosts].mean(axis=0)
        seen_hosts = {}
        for host, (cpu, net_in, net_out) in zip(
                hosts.tolist(), main.T.tolist(), strict=True):
            one = Host(
                str(name(host)), float(world.shape.cores), self._inventory,
                cpu_primary=cpu, policies=self._policies(host),
                blocked=bool(resting_hosts[host]),
                usage={'net_in': net_in, 'net_out': net_out})
            seen_hosts[one.name] = one
        usage = {'net_in': 0.0, 'net_out': world.shape.net}
        seen, leases = {}, {}
        columns = (world.host, world.lease_of, world.status, world.vcpus,
                   world.memory_mb, resting)
        for instance, host, lease, status, vcpus, memory_mb, held, cpu in zip(
                instances.tolist(), *(column[instances].tolist()
                                      for column in columns),
                self.counted(instances).tolist(), strict=True):
            guest = Instance(
                f'{instance - first:05}', f'{lease:05}', name(host),
                State.BUSY if instance in busy else _STATES[status],
                vcpus, int(memory_mb), 0, cpu=cpu, blocked=held, usage=usage)
            seen[guest.uuid] = guest
            if guest.state in DOWN:     # nobody else waits
                leases[guest.lease] = Lease(
                    guest.lease, queued=True, priority=5.0, waited_s=now
                    - float(world.queued_since[number, lease]))
        return Cluster(seen_hosts, seen, leases, tuple(
            InFlight(one.kind, f'{one.instance - first:05}',
                     name(one.source), name(one.target),
                     one.remaining_s(now)) for one in flights))

    def _resting(self, now: float) -> tuple[Bools, Bools]:
        """Return which hosts and instances are to be left alone, (H,), (N,).

        Where ``rests`` is off, what was operated on a moment ago is left
        alone only until a violation calls for it: it would be killed in the
        end, and with it its work (X35).
        """
        world = self._world
        hosts = (world.block_until > now) | ~world.watched
        instances = world.hold_until > now
        called = self.violated.any(axis=0)
        if not self._profile.rests and called.any():
            # A migration that is under way locks its target for good.
            hosts &= (~called | ~world.watched
                      | np.isinf(world.block_until))
            lease = (world.cluster_of * len(world.shape.leases)
                     + world.lease_of)
            here = world.running & called[world.host]
            instances &= ~(world.running & np.isin(lease, lease[here]))
        return hosts, instances

    def _policies(self, host: int) -> tuple[HostPolicy, ...]:
        checks = self._checks
        return tuple(
            HostPolicy(one.text, one.resource,
                       float(checks.threshold[row, host]), one.timelimit,
                       int(checks.failed[row, host]),
                       bool(self.violated[row, host]),
                       int(checks.sensitivity[row, 0]))
            for row, one in enumerate(checks.policies))
