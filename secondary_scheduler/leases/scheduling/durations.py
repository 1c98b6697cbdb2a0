"""How long it takes to save, load and move memory, and to shut down.

Haizea's model (equations 7.1 and 7.2): operations on one host, or on the whole
site where the memory is kept in one place, do not overlap, since they share a
disk or a link.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from secondary_scheduler.leases.scheduling.types import Ints


@dataclasses.dataclass(frozen=True)
class OperationTimes:
    """Rates in MB/s, times in s.

    ``shared`` tells that memory is kept in one place for the whole site;
    ``command`` is what each command takes before it has an effect;
    ``migration_rate`` is how quickly saved memory moves to another host, 0 at
    once, None not at all.  ``margin`` is the share by which suspensions are
    planned longer than the model says, so that few take longer than that.
    """

    suspend_rate: float = 50.0
    resume_rate: float = 50.0
    shared: bool = False
    command: float = 0.0
    shutdown: int = 0
    migration_rate: float | None = 100.0
    margin: float = 0.0

    def suspend(self, vms: Sequence[Ints], memory: Sequence[int]) -> int:
        """Return how long it takes to save a lease that is so placed.

        ``vms`` holds, for each node set, how many are on each host, and
        ``memory`` how many MB each of them has.
        """
        return math.ceil(self.transfer(vms, memory, self.suspend_rate)
                         * (1 + self.margin))

    def resume(self, vms: Sequence[Ints], memory: Sequence[int]) -> int:
        """Return how long it takes to load a lease that is to be so placed."""
        return math.ceil(self.transfer(vms, memory, self.resume_rate))

    def transfer(self, vms: Sequence[Ints], memory: Sequence[int],
                 rate: float) -> float:
        """Return the seconds of eq. 7.2 for this placement."""
        megabytes = sum(count * size for count, size
                        in zip(vms, memory, strict=True))
        number = sum(int(count.sum()) for count in vms)
        most = np.sum(megabytes) if self.shared else np.max(megabytes)
        return number * self.command + float(most) / rate

    def overheads(self, numbers: Sequence[int], memory: Sequence[int]
                  ) -> tuple[int, int]:
        """Return the least that loading and saving takes, wherever VMs are."""
        seconds = self._least(numbers, memory, self.suspend_rate)
        return (math.ceil(self._least(numbers, memory, self.resume_rate)),
                math.ceil(seconds * (1 + self.margin)))

    def _least(self, numbers: Sequence[int], memory: Sequence[int],
               rate: float) -> float:
        most = (sum(n * size for n, size in zip(numbers, memory, strict=True))
                if self.shared else max(memory))
        return sum(numbers) * self.command + most / rate

    def migration(self, before: Sequence[Ints], after: Sequence[Ints],
                  memory: Sequence[int]) -> int | None:
        """Return how long saved memory takes to its new hosts.

        Moves run side by side, as far as no host takes part in two of them.
        None if what has to move cannot.
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

    def nearest(self, before: Sequence[Ints], memory: Sequence[int]) -> int:
        """Return the least that it takes to move a VM from where all are."""
        if not self.migration_rate:
            return 0
        return math.ceil(max(memory) / self.migration_rate)
