# SPDX-License-Identifier: Apache-2.0

"""Confinement of secondaries to chosen CPUs for the time of a measurement."""

from collections.abc import Mapping

from secondary_scheduler.agent import kernel_files, pins
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

    def __init__(self, dedicated: DedicatedCpus, proc: str) -> None:
        self._dedicated = dedicated
        self._proc = proc

    def pin(self, guest: Secondary, cpus: Mapping[str, Cpus]) -> None:
        """Confine a guest to CPUs.

        :param cpus: CPUs of each thread group, such as ``vcpu0``.  All groups
            get the CPUs of all of them
        :raises PinError: if that has no effect
        """
        wanted = frozenset[int]().union(*cpus.values())
        # The guest must keep off all other CPUs, as if primaries had them.
        self._dedicated.own = frozenset(range(kernel_files.MOST_CPUS)) - wanted
        self._dedicated.narrow_sets([guest])
        if problem := self._dedicated.problems.get(guest.uuid):
            raise PinError(f'{guest.uuid} cannot be confined to CPUs '
                           f'{kernel_files.format_cpus(wanted)}: {problem}')
        # Version 2 accepts a set that it does not apply.
        threads = pins.read_threads(guest.pid, self._proc)
        for mask in (*threads.vcpus, *threads.others):
            if not mask <= wanted:
                raise PinError(f'{guest.uuid} still runs on CPUs '
                               f'{kernel_files.format_cpus(mask)}')

    def release(self, guest: Secondary) -> bool:
        """Restore the first sets of a guest; return whether that succeeded."""
        return self._dedicated.release(guest)
