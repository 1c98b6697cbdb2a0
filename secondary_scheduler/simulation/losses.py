# SPDX-License-Identifier: Apache-2.0

"""Failures: crashed instances, lost hosts and lost agents.

* A crash takes the whole lease down.
* A lost host stops its primary and all instances that run there.  Suspended
  instances are there when it is back.
* While an agent is lost, the policies of its host are not checked, and no
  operation begins there.  Its guests are at the floor, or keep their limits
  if the profile has no floor.
"""

from collections.abc import Sequence
import dataclasses
import enum

import numpy as np

from secondary_scheduler.simulation.operations import Operations
from secondary_scheduler.simulation.record import Recorder
from secondary_scheduler.simulation.world import Shape, World


class Lost(enum.StrEnum):
    """Kind of a loss."""

    INSTANCE = 'instance'
    HOST = 'host'
    AGENT = 'agent'


@dataclasses.dataclass(frozen=True)
class Loss:
    """Loss of an instance, host or agent at ``time_s``, for ``lasts_s``.

    ``number`` is that of the instance or host, counted over all clusters.  A
    crash has no duration; it has no effect if the instance does not run.
    """

    time_s: float
    what: Lost
    number: int
    lasts_s: float = 0.0


def draw_losses(shape: Shape, seconds: float, every_s: dict[Lost, float],
                lasts_s: float, seeds: Sequence[tuple[int, ...]]
                ) -> list[Loss]:
    """Draw losses of each kind, as Poisson processes.

    Each instance, host or agent is lost every ``every_s`` seconds on average.
    ``seeds`` has the seed of each cluster.  Hosts and agents are back after
    ``lasts_s``.
    """
    found = []
    for cluster, seed in enumerate(seeds):
        random = np.random.default_rng(seed)
        for what, mean_s in every_s.items():
            each = (shape.instances if what is Lost.INSTANCE else shape.hosts)
            count = random.poisson(each * seconds / mean_s)
            found += [Loss(time_s, what, cluster * each + number, lasts_s)
                      for time_s, number in zip(
                          random.uniform(0, seconds, count).tolist(),
                          random.integers(0, each, count).tolist(),
                          strict=True)]
    return found


class Damage:
    """Executor of losses and of their end."""

    def __init__(self, losses: Sequence[Loss], world: World,
                 operations: Operations, record: Recorder) -> None:
        self._coming = sorted(losses, key=lambda loss: -loss.time_s)
        self._back: dict[tuple[Lost, int], float] = {}
        self._world = world
        self._operations = operations
        self._record = record

    def strike(self, now: float) -> list[int]:
        """Apply all that is due; return the hosts whose agents restart."""
        anew = []
        for (what, number), at in list(self._back.items()):
            if at <= now:
                del self._back[what, number]
                if what is Lost.HOST:
                    self._operations.return_host(number, now)
                else:
                    self._world.watched[number] = True
                    anew.append(number)
        while self._coming and self._coming[-1].time_s <= now:
            self._lose(self._coming.pop(), now)
        return anew

    def _lose(self, loss: Loss, now: float) -> None:
        world, one = self._world, loss.number
        if loss.what is Lost.INSTANCE:
            if world.running[one] or world.booting[one]:
                self._operations.fail(one, now, 'crash')
            return
        key = loss.what, one
        self._record.event(
            int(world.cluster_of_host[one]), f'{loss.what}_lost', t=now,
            host=one % world.shape.hosts, lasts_s=loss.lasts_s)
        if key not in self._back:
            if loss.what is Lost.HOST:
                self._operations.lose_host(one, now)
            else:
                self._operations.lose_agent(one)
        self._back[key] = max(self._back.get(key, 0.0), now + loss.lasts_s)
