# SPDX-License-Identifier: Apache-2.0

"""Placement by load of resources (Kaffes 2015, section 3.2.2, algorithm 3).

The load of a CPU is the sum over CPU, memory bandwidth, network and disk of
the use above a threshold.  Use of CPU counts on a CPU, memory bandwidth on
its package, network and disk on the host (reference/errata, Kaffes, scope of
resources).
"""

from collections.abc import Sequence

from secondary_scheduler.cpu_affinity.one_cpu import CpuLists, OneCpuDriver
from secondary_scheduler.cpu_affinity.workload_profiles import ResourceUse

_NO_USE = ResourceUse(0.0)


class ResourceAffinity(OneCpuDriver):
    """Fills CPUs up to a load of 0.

    A vCPU gets the first CPU that has a load of 0 with it.  If there is none,
    it gets the CPU whose load grows least.
    """

    def select(self, workload_class: str | None, candidates: Sequence[int],
               placed: CpuLists) -> int:
        """Return the CPU for a vCPU of a class."""
        use = self.profiles.use(workload_class)
        growth: dict[int, float] = {}
        for cpu in candidates:
            after = self._load(cpu, placed, use)
            if after == 0:
                return cpu
            growth[cpu] = after - self._load(cpu, placed, _NO_USE)
        least = min(growth.values())
        # Sums of the same uses in another order differ in their last digits.
        equal = [cpu for cpu in candidates if growth[cpu] <= least + 1e-9]
        if self.options.resource_tie_break == 'thesis':
            return equal[0]
        # Below the threshold CPUs are still filled one after the other.
        return min(equal, key=lambda cpu: (max(
            0.0, placed.cpu_use[cpu] + (use.cpu or 0.0)
            - self.options.resource_threshold_pct), cpu))

    def _load(self, cpu: int, placed: CpuLists, use: ResourceUse) -> float:
        """Return the load of a CPU with another use, in percent."""
        return sum(max(0.0, value + (more or 0.0)
                       - self.options.resource_threshold_pct)
                   for value, more in zip(
                       (placed.cpu_use[cpu], placed.bandwidth(cpu),
                        placed.network, placed.disk), use, strict=True))
