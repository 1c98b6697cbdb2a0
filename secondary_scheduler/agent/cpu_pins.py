# SPDX-License-Identifier: Apache-2.0

"""Confinement of secondaries to chosen CPUs for the time of a measurement."""

from secondary_scheduler.agent import kernel_files
from secondary_scheduler.agent.cgroup_handles import key_of
from secondary_scheduler.agent.cpu_sets import AssignedCpus
from secondary_scheduler.agent.dedicated_cpus import DedicatedCpus
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.pins import Cpus


class PinError(Exception):
    """A guest that cannot be confined to the chosen CPUs."""


class CpuPins:
    """Confines thread groups of verified secondaries, and undoes it.

    The first value of each file is on disk before the first write, so that
    ``secondary-agent release`` and any later agent restore it.
    """

    def __init__(self, dedicated: DedicatedCpus) -> None:
        self._dedicated = dedicated

    def pin(self, guest: Secondary, cpus: Cpus) -> None:
        """Confine all threads of a guest to CPUs.

        :raises PinError: if that has no effect
        """
        # The host is without primaries.
        self._dedicated.own = frozenset()
        self._dedicated.narrow_sets([guest], lambda _: AssignedCpus(
            max(1, guest.vcpus) * (cpus,), cpus))
        problem = self._dedicated.problems.get(
            guest.uuid) or self._dedicated.refusals.get(key_of(guest))
        if problem:
            raise PinError(f'{guest.uuid} cannot be confined to CPUs '
                           f'{kernel_files.format_cpus(cpus)}: {problem}')

    def release(self, guest: Secondary) -> bool:
        """Restore the first sets of a guest; return whether that succeeded."""
        return self._dedicated.release(guest)
