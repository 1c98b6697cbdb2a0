# SPDX-License-Identifier: Apache-2.0

"""Events of leases and queues for the log.

A lease is ``suspended`` while some instance of it is, else ``queued`` while
not all of it runs, else ``active``.  A lease that has left is ``done``.
"""

import numpy as np

from secondary_scheduler.simulation.record import Recorder
from secondary_scheduler.simulation.turnover import Turnover
from secondary_scheduler.simulation.world import Bools, Status, World

_DONE, _QUEUED, _SUSPENDED, _ACTIVE = range(4)
_NAMES = ('done', 'queued', 'suspended', 'active')


class LeaseEvents:
    """Recorder of changes of the leases of all clusters."""

    def __init__(self, world: World, turnover: Turnover, record: Recorder
                 ) -> None:
        self._world = world
        self._turnover = turnover
        self._record = record
        shape = world.shape
        self._place = world.cluster_of * len(shape.leases) + world.lease_of
        self._state = np.full(shape.clusters * len(shape.leases), _DONE)
        self._number = np.zeros(len(self._state), dtype=np.int64)
        self._waiting = np.zeros(shape.clusters, dtype=np.int64)

    def record_changes(self, now: float) -> None:
        """Record changed states of leases and lengths of queues."""
        world = self._world
        number = self._number.copy()
        number[self._place] = world.lease_number
        # A new lease may have the place of one that has left.
        self._become(np.where(number == self._number, self._state, _DONE),
                     now)
        self._number = number
        state = np.select(
            (~self._any(world.present),
             self._any(world.status == Status.SUSPENDED),
             self._any(world.present & ~world.running)),
            (_DONE, _SUSPENDED, _QUEUED), _ACTIVE)
        self._become(state, now)
        waits = (state == _QUEUED) | (state == _SUSPENDED)
        waiting = self._turnover.outside + waits.reshape(
            len(self._waiting), -1).sum(axis=1)
        for cluster in np.flatnonzero(waiting != self._waiting).tolist():
            self._record.event(cluster, 'queue', t=now,
                               length=int(waiting[cluster]))
        self._waiting = waiting

    def _any(self, instances: Bools) -> Bools:
        """Return the leases that have some of the given instances."""
        return np.bincount(self._place[instances],
                           minlength=len(self._state)) > 0

    def _become(self, state: np.ndarray, now: float) -> None:
        each = len(self._state) // len(self._waiting)
        for one in np.flatnonzero(state != self._state).tolist():
            self._record.event(one // each, 'lease', t=now,
                               id=int(self._number[one]),
                               state=_NAMES[state[one]])
        self._state = state
