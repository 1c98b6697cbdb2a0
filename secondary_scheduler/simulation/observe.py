"""What decisions get to see: one cluster as a value of the core's model."""

import numpy as np

from secondary_scheduler.model.cluster import (
    Cluster,
    Host,
    HostPolicy,
    InFlight,
    Instance,
    Lease,
    State,
)
from secondary_scheduler.model.vocabulary import RESOURCE_CLASSES
from secondary_scheduler.simulation.checks import Checks
from secondary_scheduler.simulation.operations import RESOURCES, Operations
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.world import (
    NOWHERE,
    Bools,
    Floats,
    Status,
    World,
)

#: Seconds over which the estimator averages (Boettger Eq. 4.2).
WINDOW = 5

#: No inventory binds here: policies alone do.
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
        self._main = np.zeros((WINDOW, len(RESOURCES), hosts))
        self._use = np.zeros((WINDOW, instances))
        self._seen = 0

    def see(self, main: Floats, use: Floats) -> None:
        """Take a second: primaries (resources, H), instances' CPU (N,)."""
        place = self._seen % WINDOW
        self._main[place], self._use[place] = main, use
        self._seen += 1

    def main(self) -> Floats:
        """Return the mean use of primaries, (resources, H)."""
        return np.asarray(self._main[:min(self._seen, WINDOW)].mean(axis=0))

    def counted(self) -> Floats:
        """Return what a decision counts for each instance, in percent.

        What an agent can squeeze counts with its useful share at most.
        """
        use = self._use[:min(self._seen, WINDOW)].mean(axis=0)
        if self._profile.forecasts_demand:
            return np.asarray(use)
        return np.minimum(use, self._profile.useful_share)

    def violated(self) -> Bools:
        """Return which policies ask for the cloud's help, (P, H).

        An agent that freezes holds dynamic ones for as long as it is patient.
        """
        violated, world = self._checks.violated, self._world
        if not self._profile.patient:
            return violated
        tired = world.frozen & (world.frozen_s >= self._profile.patience_s)
        relief = world.sum_by_host(
            tired.astype(float), tired & (world.host >= 0)) > 0
        dynamic = np.array([[not one.static]
                            for one in self._checks.policies])
        return np.asarray(np.where(dynamic, relief, violated))

    def cluster(self, number: int, now: float) -> Cluster:
        """Return a cluster as it is known now; names are numbers."""
        world = self._world
        hosts = world.hosts_of(number)
        main, violated = self.main(), self.violated()
        counted = self.counted()
        flights = list(self._operations.of_cluster(number))
        first = world.instances_of(number).start

        def name(host: int) -> str | None:
            return None if host == NOWHERE else f'{host - hosts.start:04}'

        seen_hosts = {}
        for host in hosts:
            one = Host(
                str(name(host)), float(world.shape.cores), _PLENTY,
                cpu_primary=float(main[0, host]),
                policies=self._policies(host, violated),
                blocked=bool(world.block_until[host] > now),
                usage={'net_in': float(main[1, host]),
                       'net_out': float(main[2, host])})
            seen_hosts[one.name] = one
        busy = {one.instance for one in flights}
        seen = {}
        for one in world.instances_of(number):
            instance = Instance(
                f'{one - first:05}', f'{world.lease_of[one]:05}',
                name(int(world.host[one])),
                State.BUSY if one in busy
                else _STATES[Status(world.status[one])],
                world.shape.vcpus, 0, 0, cpu=float(counted[one]),
                blocked=bool(world.hold_until[one] > now),
                usage={'net_in': 0.0, 'net_out': world.shape.net})
            seen[instance.uuid] = instance
        leases = {f'{lease:05}': Lease(f'{lease:05}', queued=True,
                                       waited_s=now - float(since),
                                       priority=5.0)
                  for lease, since in enumerate(world.queued_since[number])}
        return Cluster(seen_hosts, seen, leases, tuple(
            InFlight(one.kind, f'{one.instance - first:05}',
                     name(one.source), name(one.target),
                     one.remaining_s(now)) for one in flights))

    def _policies(self, host: int, violated: Bools
                  ) -> tuple[HostPolicy, ...]:
        checks = self._checks
        return tuple(
            HostPolicy(one.text, one.resource,
                       float(checks.threshold[row, host]), one.timelimit,
                       int(checks.failed[row, host]),
                       bool(violated[row, host]),
                       int(checks.sensitivity[row, 0]))
            for row, one in enumerate(checks.policies))
