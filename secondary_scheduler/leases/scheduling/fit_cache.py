# SPDX-License-Identifier: Apache-2.0

"""Cheap pre-check that skips queued leases which cannot start now."""

import numpy as np

from secondary_scheduler.leases.scheduling.lease import Terms
from secondary_scheduler.leases.scheduling.planner import Planner
from secondary_scheduler.leases.scheduling.queue import LeaseShape, QueuedLease
from secondary_scheduler.leases.scheduling.schedule_state import ScheduleState
from secondary_scheduler.leases.scheduling.types import Ints


class FitCache:
    """Upper bounds of free capacity, shared by leases of one shape.

    In a long queue most leases cannot start, pass after pass.
    """

    def __init__(self, state: ScheduleState, planner: Planner) -> None:
        self._state = state
        self._planner = planner
        self._end_times: dict[tuple[tuple[int, ...], int], Ints] = {}
        self._durations: dict[LeaseShape, Ints] = {}

    def clear(self) -> None:
        """Discard all bounds; call it after each change of the schedule."""
        self._end_times.clear()
        self._durations.clear()

    def durations(self, shape: LeaseShape) -> Ints:
        """Return for how long one VM, two and so on fit, after a delay."""
        found = self._durations.get(shape)
        if found is None:
            times = [self._state.now + delay for delay in shape.delays]
            found, *others = sorted(
                (self._vm_end_times(shape.need, time) - time
                 for time in times),
                key=len, reverse=True)
            for one in others:
                np.maximum(found[:len(one)], one, out=found[:len(one)])
            self._durations[shape] = found
        return found

    def has_room(self, terms: Terms) -> bool:
        """Return whether enough VMs fit now, however briefly."""
        return all(
            len(self._vm_end_times(one.need, self._state.now)) >= one.number
            for one in terms.nodes)

    def may_start(self, entry: QueuedLease) -> bool:
        """Return whether the first node set alone fits for long enough."""
        shape = entry.shape
        if not shape.delays:
            shape = shape._replace(
                delays=self._planner.start_delays(entry.work))
        durations = self.durations(shape)
        return (entry.number <= len(durations)
                and int(durations[entry.number - 1]) >= entry.minimum_s)

    def _vm_end_times(self, need: tuple[int, ...], time: int) -> Ints:
        """Return the end of each place for a VM, the latest first."""
        found = self._end_times.get((need, time))
        if found is None:
            found = self._end_times[need, time] = (
                self._state.table.vm_end_times(need, time))
        return found
