# SPDX-License-Identifier: Apache-2.0

"""Durations of saving, loading and moving memory, and of shutdown.

Sotomayor 2010, section 7.1 (equations 7.1 and 7.2): operations on one host do
not overlap, or on the whole site if memory is saved to one storage, since they
share a disk or a link.

``OperationTimes`` computes these for all VMs of a lease together.  Durations
of single operations on instances are in ``estimation.durations``.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from secondary_scheduler.leases.scheduling.types import Ints


@dataclasses.dataclass(frozen=True)
class OperationTimes:
    """Rates (MB/s) and durations (s) of operations.

    * ``shared``: memory is saved to one storage of the whole site.
    * ``command``: latency of each command to suspend or resume.
    * ``shutdown``: time to shut down the VMs of a lease.
    * ``migration_rate``: rate at which saved memory moves to another host; 0:
      instantly, None: it cannot move.
    * ``margin``: share by which planned suspensions exceed the model.
    """

    suspend_rate: float = 50.0
    resume_rate: float = 50.0
    shared: bool = False
    command: float = 0.0
    shutdown: int = 0
    migration_rate: float | None = 100.0
    margin: float = 0.0

    def suspend_time(self, vms: Sequence[Ints], memory: Sequence[int]) -> int:
        """Return the planned seconds to suspend a placed lease.

        :param vms: for each node set the number of VMs on each host
        :param memory: for each node set the memory of a VM, in MB
        """
        return math.ceil(self.transfer_time(vms, memory, self.suspend_rate)
                         * (1 + self.margin))

    def resume_time(self, vms: Sequence[Ints], memory: Sequence[int]) -> int:
        """Return the seconds to resume a lease on the given hosts."""
        return math.ceil(self.transfer_time(vms, memory, self.resume_rate))

    def transfer_time(self, vms: Sequence[Ints], memory: Sequence[int],
                      rate: float) -> float:
        """Return the seconds of equation 7.2 for a placement."""
        megabytes = sum(count * size for count, size
                        in zip(vms, memory, strict=True))
        number = sum(int(count.sum()) for count in vms)
        most = np.sum(megabytes) if self.shared else np.max(megabytes)
        return number * self.command + float(most) / rate

    def minimum_overheads(self, numbers: Sequence[int], memory: Sequence[int]
                          ) -> tuple[int, int]:
        """Return the least seconds to load and to save, for any placement."""
        seconds = self._least(numbers, memory, self.suspend_rate)
        return (math.ceil(self._least(numbers, memory, self.resume_rate)),
                math.ceil(seconds * (1 + self.margin)))

    def _least(self, numbers: Sequence[int], memory: Sequence[int],
               rate: float) -> float:
        most = (sum(n * size for n, size in zip(numbers, memory, strict=True))
                if self.shared else max(memory))
        return sum(numbers) * self.command + most / rate

    def migration_time(self, before: Sequence[Ints], after: Sequence[Ints],
                       memory: Sequence[int]) -> int | None:
        """Return the seconds to move saved memory to its new hosts.

        Moves run in parallel, but each host takes part in one at a time.
        None if memory has to move but cannot.
        """
        moving = [(np.maximum(old - new, 0), np.maximum(new - old, 0), size)
                  for old, new, size in zip(before, after, memory,
                                            strict=True)]
        if not any(out.any() for out, _, _ in moving):
            return 0
        if self.migration_rate is None:
            return None
        if not self.migration_rate:
            return 0
        busy = sum((out + into) * size for out, into, size in moving)
        return math.ceil(float(np.max(busy)) / self.migration_rate)

    def first_move_time(self, before: Sequence[Ints], memory: Sequence[int]
                        ) -> int:
        """Return the seconds to move the largest VM to another host."""
        if not self.migration_rate:
            return 0
        return math.ceil(max(memory) / self.migration_rate)
