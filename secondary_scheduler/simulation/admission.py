"""Whom it is worth asking the provisioner for.

In a cloud Placement's inventories, kept by the agents, close a host that has
no room; here the same is seen for all clusters at once, so that a decision is
made only where something might come of it.
"""

from collections.abc import Iterator

import numpy as np

from secondary_scheduler.simulation.checks import Checks
from secondary_scheduler.simulation.observe import Observer
from secondary_scheduler.simulation.operations import RESOURCES
from secondary_scheduler.simulation.profiles import Profile
from secondary_scheduler.simulation.world import Floats, Status, World


class Admission:
    """Room on hosts under policies, at its most optimistic."""

    def __init__(self, world: World, checks: Checks, observer: Observer,
                 profile: Profile) -> None:
        self._world = world
        self._checks = checks
        self._observer = observer
        self._profile = profile

    def running(self) -> Floats:
        """Return how many instances count on each host, (H,)."""
        world = self._world
        active = world.running & ~world.frozen
        return world.sum_by_host(np.ones(len(active)), active)

    def slots(self) -> Floats:
        """Return how many instances static policies allow, (H,)."""
        slots = np.full(len(self._world.block_until), np.inf)
        for row, policy in enumerate(self._checks.policies):
            if policy.static:
                each = (1 if policy.resource == 'slots'
                        else self._world.shape.vcpus)
                slots = np.minimum(slots, self._checks.threshold[row] // each)
        return slots

    def _entry(self) -> Floats:
        """Return the least that a newcomer is predicted to use, (C,).

        One that comes back may be known to need next to nothing.
        """
        overheads = self._profile.counting.overheads
        boot = overheads.arriving['start']['cpu']
        start = (boot + overheads.newcomer if overheads.lingers
                 else max(boot, overheads.newcomer))
        back = (self._world.status == Status.SUSPENDED).reshape(
            self._world.shape.clusters, -1).any(axis=1)
        return np.where(back, overheads.arriving['resume']['cpu'], start)

    def _open(self, now: float) -> Floats:
        """Return for how many more there may be room on each host, (H,)."""
        world = self._world
        here = (world.running | world.booting) & (world.host >= 0)
        count = world.sum_by_host(np.ones(len(here)), here)
        free = self.slots() - count
        main = self._observer.main()
        use = world.sum_by_host(self._observer.counted(), here)
        entry = self._entry()[world.cluster_of_host]
        for row, policy in enumerate(self._checks.policies):
            if not policy.static and policy.resource == 'cpu':
                margin = self._profile.limits.margin
                room = (self._checks.threshold[row] - margin
                        - main[RESOURCES.index('cpu')] - use)
                free = np.minimum(free, room // entry)
        shut = ((world.block_until > now)
                | self._observer.violated().any(axis=0))
        return np.where(shut, 0.0, np.maximum(0.0, free))

    def asking(self, now: float) -> Iterator[tuple[int, list[int]]]:
        """Yield clusters where a lease might come up, and on which hosts.

        Hosts are counted within the cluster.
        """
        world, shape = self._world, self._world.shape
        room = self._open(now)
        down = ~world.running & ~world.busy & ~world.reserved
        held = (world.busy | world.reserved | (world.hold_until > now))
        homeless = down & ((world.host >= 0) & (room[world.host] < 1))
        lease = world.cluster_of * len(shape.leases) + world.lease_of
        size = shape.clusters * len(shape.leases)
        due, bad = (np.bincount(lease, which, minlength=size).reshape(
            shape.clusters, -1) for which in (down, held | homeless))
        places = room.reshape(shape.clusters, -1)
        may = (due > 0) & (bad == 0) & (due <= places.sum(
            axis=1, keepdims=True))
        for cluster in np.flatnonzero(may.any(axis=1)):
            yield int(cluster), [
                int(one) for one in np.flatnonzero(places[cluster] >= 1)]
