# SPDX-License-Identifier: Apache-2.0

"""Observation of a simulated cluster as a value of the core's model."""

import math

import numpy as np

from secondary_scheduler.model import units
from secondary_scheduler.model.cluster import (
    DOWN,
    Cluster,
    Host,
    HostPolicy,
    InFlight,
    Instance,
    InstanceState,
    LeaseMembers,
)
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.model.vocabulary import MEMORY_MB, RESOURCE_CLASSES
from secondary_scheduler.simulation.checks import PolicyChecks
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

#: Seconds over which the estimator averages (Boettger 2012, eq. 4.2).
WINDOW = 5

#: Seconds of a block, of which the highest use is kept.
BLOCK = 10

#: All hosts are alike, so amounts are percentages.
_ALIKE = dict.fromkeys(units.UNITS, units.WHOLE)
#: Only the inventory of memory binds; policies do the rest.
_PLENTY = dict.fromkeys(RESOURCE_CLASSES, 10**6)
_STATES = {
    Status.STOPPED: InstanceState.STOPPED,
    Status.SUSPENDED: InstanceState.SUSPENDED,
    Status.RUNNING: InstanceState.ACTIVE,
}


class SimulatedObserver:
    """Averages of the last seconds, and clusters made of them."""

    def __init__(
        self,
        world: World,
        checks: PolicyChecks,
        operations: Operations,
        profile: Profile,
    ) -> None:
        self._world = world
        self._checks = checks
        self._operations = operations
        self._profile = profile
        hosts, instances = len(world.block_until), len(world.status)
        self._host_names = [f'{one:04}' for one in range(world.shape.hosts)]
        self._names = [f'{one:05}' for one in range(world.shape.instances)]
        self._inventory = _PLENTY | {MEMORY_MB: world.shape.memory_mb}
        self._usage = {'net_in': 0.0, 'net_out': world.shape.net}
        #: Instances as last shown, and the values they were made of.  Most
        #: running instances do not change, and are not made again.
        self._shown = np.full((instances, 8), np.nan)
        self._guests: dict[int, Instance] = {}
        self._main = np.zeros((WINDOW, len(RESOURCES), hosts))
        self._use = np.zeros((WINDOW, instances))
        #: Mean use when each instance ran or booted last.
        self._last_use = np.zeros(instances)
        self._seen = 0
        #: Highest CPU use of primaries in each of the last blocks.
        self._peaks = np.zeros((math.ceil(profile.memory_s / BLOCK), hosts))
        #: Violated policies, (P, H); see ``update_violated``.
        self.violated = np.zeros_like(checks.failed, dtype=bool)

    def add_second(self, main: Floats, use: Floats) -> None:
        """Add the use of primaries (resources, H) and guests' CPU (N,).

        A guest that is down keeps the use that it had before, so that its
        return counts with it.
        """
        place = self._seen % WINDOW
        up = self._world.running | self._world.booting
        self._main[place] = main
        self._use[place] = np.where(up, use, self._last_use)
        if len(self._peaks):
            block, first = divmod(self._seen, BLOCK)
            block %= len(self._peaks)
            self._peaks[block] = main[0] if not first else np.maximum(
                self._peaks[block], main[0])
        self._seen += 1
        self._last_use = np.where(up, self._mean_use(), self._last_use)

    def _mean_use(self, instances: Ints | slice = slice(None)) -> Floats:
        """Return the mean CPU use of instances in the window, (N,)."""
        return np.asarray(
            self._use[:min(self._seen, WINDOW), instances].mean(axis=0))

    def main(self, hosts: Ints | slice = slice(None)) -> Floats:
        """Return the mean use of primaries on some hosts, (resources, H)."""
        return np.asarray(
            self._main[:min(self._seen, WINDOW), :, hosts].mean(axis=0))

    def foreseen(self, hosts: Ints | slice = slice(None)) -> Floats:
        """Return the predicted use of primaries, (resources, H).

        It decides on starts.  A guest that boots cannot be moved, so without
        a floor the highest use of the last ``memory_s`` counts.
        """
        main = self.main(hosts)
        if not self._profile.freeze and len(self._peaks):
            main[0] = self._peaks[:, hosts].max(axis=0)
        return main

    def counted(self, instances: Ints | slice = slice(None)) -> Floats:
        """Return the CPU that a decision counts for instances, in percent.

        A guest that an agent can throttle counts with its useful share at
        most.
        """
        use = self._mean_use(instances)
        if self._profile.forecasts_demand or not self._profile.local_control:
            return use
        return np.minimum(use, self._profile.useful_share)

    def update_violated(self) -> None:
        """Update the policies that are violated, so that decisions see them.

        An agent with a floor does not report a dynamic policy before a guest
        has been there for ``patience_s``.
        """
        world = self._world
        self.violated = self._checks.violated & world.watched
        if not self._profile.patient:
            return
        expired = world.frozen & (world.frozen_s >= self._profile.patience_s)
        relief = world.count_by_host(expired & (world.host >= 0)) > 0
        self.violated = np.where(self._checks.dynamic, relief, self.violated
                                 ) & world.watched

    def cluster(self, number: int, now: float) -> Cluster:
        """Return a cluster as observed now; names are numbers."""
        those = self._world.instances_of(number)
        hosts = np.array(self._world.hosts_of(number))
        return self._seen_as(
            number, now, self.main(hosts), hosts, those.start + np.flatnonzero(
                self._world.present[those.start:those.stop]))

    def part(self, number: int, now: float, hosts: Ints, instances: Ints
             ) -> Cluster:
        """Return the part of a cluster for a decision about some hosts.

        It has the instances of these hosts, the given ``instances``, and all
        instances with an operation under way in the cluster.
        """
        world = self._world
        these, those = world.hosts_of(number), world.instances_of(number)
        # The last element is for instances without a host.
        shown = np.zeros(len(these) + 1, dtype=bool)
        shown[hosts - these.start] = True
        there = shown[np.maximum(
            world.host[those.start:those.stop] - these.start, NOWHERE)]
        there[instances - those.start] = True
        there[[one.instance - those.start for one in
               self._operations.of_cluster(number)]] = True
        return self._seen_as(number, now, self.foreseen(hosts), hosts,
                             those.start + np.flatnonzero(there))

    def _seen_as(self, number: int, now: float, main: Floats, hosts: Ints,
                 instances: Ints) -> Cluster:
        """Return a cluster; ``main`` is the use of primaries on its hosts."""
        world = self._world
        flights = list(self._operations.of_cluster(number))
        first_host = world.hosts_of(number).start
        first = world.instances_of(number).start
        cooling_hosts, cooling_guests = self._cooling_down(number, now)

        def name(host: int) -> str | None:
            return (None if host == NOWHERE
                    else self._host_names[host - first_host])

        seen_hosts = {}
        for host, (cpu, net_in, net_out), policies, cools in zip(
                hosts.tolist(), main.T.tolist(),
                self._policies(hosts),
                cooling_hosts[hosts - first_host].tolist(), strict=True):
            one = Host(
                str(name(host)), float(world.shape.cores), self._inventory,
                cpu_primary=cpu, policies=policies, blocked=cools,
                usage={'net_in': net_in, 'net_out': net_out},
                capacities=_ALIKE)
            seen_hosts[one.name] = one
        busy = np.zeros(len(world.status), dtype=bool)
        busy[[one.instance for one in flights]] = True
        rows = np.stack([
            busy[instances], cooling_guests[instances - first],
            self.counted(instances), *(column[instances] for column in (
                world.host, world.lease_of, world.status, world.vcpus,
                world.memory_mb))], axis=1)
        changed = (rows != self._shown[instances]).any(axis=1)
        self._shown[instances] = rows
        for instance, (held, cools, cpu, host, lease, status, vcpus,
                       memory_mb) in zip(instances[changed].tolist(),
                                         rows[changed].tolist(), strict=True):
            self._guests[instance] = Instance(
                self._names[instance - first],
                self._names[int(lease)],
                name(int(host)),
                InstanceState.BUSY if held else _STATES[status],
                int(vcpus),
                int(memory_mb),
                0,
                cpu=cpu,
                blocked=bool(cools),
                usage=self._usage,
            )
        guests = [self._guests[one] for one in instances.tolist()]
        leases = {guest.lease: LeaseMembers(
            guest.lease, state=LeaseState.QUEUED, priority=5.0,
            waited_s=now - float(
                world.queued_since[number, int(guest.lease)]))
            for guest in guests if guest.state in DOWN}
        return Cluster(seen_hosts, {
            guest.uuid: guest for guest in guests}, leases, tuple(
            InFlight(one.kind, self._names[one.instance - first],
                     name(one.source), name(one.target),
                     one.remaining_s(now)) for one in flights))

    def _cooling_down(self, number: int, now: float) -> tuple[Bools, Bools]:
        """Return hosts (h,) and instances (n,) that are cooling down.

        With ``rests`` off a violation ends the cooling down: otherwise the
        instance would be killed, and its work lost.  With ``rests`` on it
        goes on in any case.  The thesis limits this rule to dynamic policies.
        But its 13 % of kills in ``pattern`` (interval 20 s, time limit 50 s)
        follow only if static ones are included.
        """
        world = self._world
        these, those = world.hosts_of(number), world.instances_of(number)
        blocked = world.block_until[these.start:these.stop]
        unwatched = ~world.watched[these.start:these.stop]
        hosts = (blocked > now) | unwatched
        instances = world.hold_until[those.start:those.stop] > now
        called = self.violated.any(axis=0)
        if not self._profile.rests and called[these.start:these.stop].any():
            # A migration under way locks its target in any case.
            hosts &= (~called[these.start:these.stop] | unwatched
                      | np.isinf(blocked))
            lease = world.lease_of[those.start:those.stop]
            running = world.running[those.start:those.stop]
            here = running & called[world.host[those.start:those.stop]]
            instances &= ~(running & np.isin(lease, lease[here]))
        return hosts, instances

    def _policies(self, hosts: Ints) -> list[tuple[HostPolicy, ...]]:
        """Return the policies of each of some hosts."""
        checks = self._checks
        rows = [[
            HostPolicy(one.text, one.resource, threshold, one.timelimit,
                       failed, violated, sensitivity)
            for threshold, failed, violated, sensitivity in zip(*(
                values[row, hosts].tolist() for values in (
                    checks.threshold, checks.failed, self.violated,
                    checks.sensitivity)), strict=True)]
                for row, one in enumerate(checks.policies)]
        return [tuple(row[place] for row in rows)
                for place in range(len(hosts))]
