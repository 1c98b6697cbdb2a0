# SPDX-License-Identifier: Apache-2.0

"""Instances that arrive, do their work and leave.

Each is a lease of its own.  A cluster has a fixed number of places; an
instance that finds none waits outside, in the order of arrival.
"""

from collections import deque
import dataclasses

import numpy as np

from secondary_scheduler.simulation.world import (
    NOWHERE,
    Floats,
    Ints,
    Status,
    World,
)


@dataclasses.dataclass(frozen=True)
class Arrivals:
    """Arriving instances in the order of ``time_s``; all (arrivals,).

    Each arrives at a ``cluster``, can use ``cores``, holds ``memory_mb``, and
    leaves after ``work`` core-seconds.  At most ``front`` of the waiting
    instances of a cluster have a place.
    """

    time_s: Floats
    cluster: Ints
    cores: Floats
    memory_mb: Floats
    work: Floats
    front: int = 32


#: Default of a workload: a fixed set of instances.
NO_ARRIVALS = Arrivals(*(np.zeros(0) for _one in range(5)))


class Turnover:
    """Admission of arriving instances to free places."""

    def __init__(self, arrivals: Arrivals, world: World) -> None:
        self.arrivals = arrivals
        self._world = world
        self._come = 0
        self._outside: list[deque[int]] = [
            deque() for _one in range(world.shape.clusters)]
        if len(arrivals.time_s):
            world.status[:] = Status.ABSENT

    @property
    def outside(self) -> Ints:
        """Number of instances that wait for a place, by cluster, (C,)."""
        return np.array([len(queue) for queue in self._outside])

    def arrive(self, now: float) -> None:
        """Admit the instances that have arrived."""
        arrivals, world = self.arrivals, self._world
        come = int(np.searchsorted(arrivals.time_s, now, side='right'))
        for one in range(self._come, come):
            self._outside[int(arrivals.cluster[one])].append(one)
        self._come = come
        room = arrivals.front - world.count_by_cluster(
            (world.status == Status.STOPPED) & ~world.busy)
        for cluster in np.flatnonzero(room > 0).tolist():
            if self._outside[cluster]:
                self._enter(cluster, int(room[cluster]))

    def _enter(self, cluster: int, count: int) -> None:
        """Give up to ``count`` waiting instances a place."""
        world, queue = self._world, self._outside[cluster]
        count = min(count, len(queue))
        those = world.instances_of(cluster)
        places = those.start + np.flatnonzero(
            ~world.present[those.start:those.stop])[:count]
        new = np.array([queue.popleft() for _place in places], dtype=np.int64)
        arrivals = self.arrivals
        world.status[places] = Status.STOPPED
        world.host[places] = NOWHERE
        world.number[places] = world.lease_number[places] = new
        world.vcpus[places] = np.ceil(arrivals.cores[new])
        world.most[places] = world.shape.percent(arrivals.cores[new])
        world.boot[places] = np.minimum(world.shape.boot, world.most[places])
        world.memory_mb[places] = arrivals.memory_mb[new]
        world.unit[places] = arrivals.work[new]
        world.hold_until[places] = -np.inf
        world.queued_since[cluster, world.lease_of[places]] = (
            arrivals.time_s[new])
