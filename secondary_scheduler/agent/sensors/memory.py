# SPDX-License-Identifier: Apache-2.0

"""Sensor of memory: the resource ``mem``."""

from collections.abc import Sequence

from oslo_config import cfg

from secondary_scheduler.agent import cgroups, host_capacity, processes
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.sensors.base import (
    Reading,
    Readings,
    Sensor,
    damaged_is_unknown,
)

#: The agent writes its status to a file each second, so some figure of the
#: host's memory changes.  After so many reads without a change they are stuck.
_MOST_EQUAL_READS = 60


class MemorySensor(Sensor):
    """``mem``: memory that is not available, and resident memory of each QEMU.

    On a host that is a part of the machine (a container), it is the charge of
    its control group.  File pages that can be reclaimed do not count.
    """

    resources = ('mem',)

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
                 ) -> None:
        super().__init__(conf, hierarchy)
        self._host = host_capacity.HostMemory(hierarchy)
        self._figures, self._same = '', 0

    @damaged_is_unknown
    def read(self, guests: Sequence[Secondary]) -> Readings:
        """Measure the use of memory."""
        total, available = self._measured()
        held = {guest.uuid: 100.0 * size / total for guest in guests
                if (size := processes.resident(
                    guest.pid, self.hierarchy.proc)) is not None}
        return {'mem': Reading(100.0 * (total - available) / total, held)}

    def _measured(self) -> tuple[int, int]:
        """Return the host's total and available memory, in bytes."""
        sizes = self._host.read()
        figures = self._host.figures
        self._same = self._same + 1 if figures == self._figures else 0
        self._figures = figures
        if self._same >= _MOST_EQUAL_READS:
            raise OSError('no figure of /proc/meminfo changes')
        return sizes
