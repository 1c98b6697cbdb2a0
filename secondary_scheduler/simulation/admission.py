# SPDX-License-Identifier: Apache-2.0

"""Selection of the leases for which the provisioner is called.

In a cloud the agents' inventories in Placement close a host without room.
Here the same is computed for all clusters at once, so that a decision is made
only if a lease may return.
"""

from collections.abc import Iterator

import numpy as np

from secondary_scheduler.simulation.checks import PolicyChecks
from secondary_scheduler.simulation.observe import SimulatedObserver
from secondary_scheduler.simulation.operations import RESOURCES, Operations
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.world import (
    NOWHERE,
    Bools,
    Floats,
    Ints,
    Status,
    World,
    compiled,
)

#: Largest number of hosts and instances in one decision: the thesis's cluster.
LOOKED_AT = 24 + 48


@compiled
def _count_due(due: Floats, cluster: Ints, lease: Ints, down: Bools,
               held: Bools, host: Ints, room: Floats, memory_mb: Floats,
               most_mb: Floats) -> None:
    """Count the instances of each lease that are ``down``, (C, leases).

    The count is -inf if an instance of the lease is ``held`` or has no place.
    It has a place if there is ``room`` (H,) on its host.  Without a host its
    memory must be at most ``most_mb`` (C,).
    """
    for one in range(len(cluster)):
        place = cluster[one], lease[one]
        if down[one]:
            due[place] += 1
        if held[one] or down[one] and not (
                room[host[one]] >= 1 if host[one] >= 0
                else memory_mb[one] <= most_mb[cluster[one]]):
            due[place] = -np.inf


class AdmissionModel:
    """Optimistic estimate of the room on hosts under policies."""

    def __init__(
        self,
        world: World,
        checks: PolicyChecks,
        observer: SimulatedObserver,
        operations: Operations,
        profile: Profile,
    ) -> None:
        self._world = world
        self._operations = operations
        self._checks = checks
        self._observer = observer
        self._profile = profile

    def running(self) -> Floats:
        """Return the number of instances above the floor, by host, (H,)."""
        return self._world.count_by_host(
            self._world.running & ~self._world.frozen)

    def slots(self) -> Floats:
        """Return the number of instances that static policies allow, (H,)."""
        slots = np.full(len(self._world.block_until), np.inf)
        for row, policy in enumerate(self._checks.policies):
            if policy.static:
                each = (1 if policy.resource == 'slots'
                        else self._world.shape.vcpus)
                slots = np.minimum(slots, self._checks.threshold[row] // each)
        return slots

    def _entry(self) -> Floats:
        """Return the least predicted use of a new instance, (C,).

        A suspended instance may need only the CPU of its resume.
        """
        overheads = self._profile.counting.overheads
        boot = overheads.arriving['start']['cpu']
        start = (boot + overheads.newcomer if overheads.lingers
                 else max(boot, overheads.newcomer))
        back = (self._world.status == Status.SUSPENDED).reshape(
            self._world.shape.clusters, -1).any(axis=1)
        return np.where(back, overheads.arriving['resume']['cpu'], start)

    def _open(self, now: float) -> Floats:
        """Return the number of instances that each host may add, (H,)."""
        world = self._world
        coming = self._operations.starts()
        free = self.slots() - coming - world.count_by_host(world.running)
        main = self._observer.foreseen()
        use = world.sum_by_host(self._observer.counted(), world.running)
        use = use + coming * self._profile.counting.overheads.newcomer
        entry = self._entry()[world.cluster_of_host]
        for row, policy in enumerate(self._checks.policies):
            if not policy.static and policy.resource == 'cpu':
                margin = self._profile.limits.margin
                room = (self._checks.threshold[row] - margin
                        - main[RESOURCES.index('cpu')] - use)
                free = np.minimum(free, room // entry)
        shut = ((world.block_until > now) | ~world.watched
                | self._observer.violated.any(axis=0))
        return np.where(shut, 0.0, np.maximum(0.0, free))

    def _unclaimed(self) -> Floats:
        """Return the CPU beyond the size of all guests, in percent, (H,)."""
        return (self._checks.set_point('cpu', self._profile.margin)
                - self._observer.foreseen()[RESOURCES.index('cpu')]
                - self._world.sum_by_host(
                    self._world.most,
                    self._world.running | self._world.booting))

    def asking(self, now: float) -> Iterator[tuple[int, Ints, Ints]]:
        """Yield the clusters in which a lease may start or resume.

        :returns: of each cluster, the number, the hosts to look at, and the
            instances of those leases.  The hosts are those of the instances,
            and hosts with room for instances without a host.
        """
        world, shape = self._world, self._world.shape
        room = self._open(now)
        free_mb = shape.memory_mb - world.sum_by_host(
            world.memory_mb, world.host >= 0)
        left = self._unclaimed() if self._profile.spreads else free_mb
        residents = world.count_by_host(world.host >= 0)
        busy = world.busy | world.reserved
        down = ~world.running & ~busy & world.present
        most_mb = np.where(room >= 1, free_mb, -1.0).reshape(
            shape.clusters, -1).max(axis=1)
        places = room.reshape(shape.clusters, -1)
        due = np.zeros((shape.clusters, len(shape.leases)))
        _count_due(due, world.cluster_of, world.lease_of, down,
                   busy | (world.hold_until > now), world.host, room,
                   world.memory_mb, most_mb)
        may = (due > 0) & (due <= places.sum(axis=1, keepdims=True))
        for cluster in np.flatnonzero(may.any(axis=1)).tolist():
            hosts, those = world.hosts_of(cluster), world.instances_of(cluster)
            asked = those.start + np.flatnonzero(may[cluster][
                world.lease_of[those.start:those.stop]])
            homes = world.host[asked]
            new = asked[homes == NOWHERE]
            fit = hosts.start + np.flatnonzero(
                (places[cluster] >= 1)
                & (free_mb[hosts.start:hosts.stop]
                   >= world.memory_mb[new].min(initial=np.inf)))
            best = fit[np.argsort(-left[fit], kind='stable')]
            if self._profile.spreads:
                # One host for each, and the one with most memory.
                best = np.append(fit[np.argsort(-free_mb[fit])[:1]],
                                 best[:len(new)])
            seen = np.cumsum(1 + residents[best])
            best = best[:max(1, np.searchsorted(seen, LOOKED_AT,
                                                side='right'))]
            yield cluster, np.array(sorted({
                *homes[homes != NOWHERE].tolist(), *best.tolist()})), asked
