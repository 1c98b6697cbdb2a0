"""Instances that come, do their work and go.

Each is a lease of its own.  A cluster has a fixed number of places for them;
who finds all taken waits outside, in the order of arrival.
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
    """Who comes, in the order of time; all (arrivals,).

    ``time_s`` when and to which ``cluster``, the ``cores`` that each can use
    and the ``memory_mb`` that it holds, and the ``work`` in core-seconds
    after which it goes.  At most ``front`` of those that wait in a cluster
    are looked at.
    """

    time_s: Floats
    cluster: Ints
    cores: Floats
    memory_mb: Floats
    work: Floats
    front: int = 32


#: Nobody comes, and nobody goes.
NOBODY = Arrivals(*(np.zeros(0) for _one in range(5)))


class Turnover:
    """Lets instances into the world, as far as there are places."""

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
        """How many wait outside for a place in each cluster, (C,)."""
        return np.array([len(queue) for queue in self._outside])

    def arrive(self, now: float) -> None:
        """Let those come whose time it is."""
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
        """Let up to ``count`` of those outside in."""
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
