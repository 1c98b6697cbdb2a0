# SPDX-License-Identifier: Apache-2.0

"""Size and use of the host: CPU time and memory.

The host is the root of the control groups that the agent sees.  On a real
host that is the whole machine; in a container or in the one-machine cloud it
is the part of the machine given to it.
"""

import contextlib
import os

from secondary_scheduler.agent.cgroups import (
    CgroupError,
    Group,
    Hierarchy,
    bandwidth,
    effective_cpus,
    usage_ns,
)
from secondary_scheduler.agent.kernel_files import (
    Damaged,
    parse_count,
    parse_table,
)


class HostCpu:
    """CPU time used on the host, and its capacity in CPUs.

    /proc/stat is not used, since it always shows the whole machine.  Groups
    are charged with the time of tasks only.  With interrupt time accounting,
    the time of hard interrupts is therefore missing.  That may be a few
    percent on a host busy with network traffic.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._version = hierarchy.version
        self._cpu = Group(hierarchy.root('cpu'))
        self._accounting_version = hierarchy.version_of('cpuacct')
        self._accounting = Group(hierarchy.root('cpuacct'))
        #: Whether the files with the host's capacity can be parsed.
        self._sized = True
        try:
            self._cpuset: Group | None = Group(hierarchy.root('cpuset'))
        except CgroupError:
            self._cpuset = None

    def usage_ns(self) -> int | None:
        """Return the CPU time used so far in nanoseconds, None if unknown.

        While the host's capacity cannot be read, it counts as unknown, too.
        """
        try:
            return (usage_ns(self._accounting, self._accounting_version)
                    if self._sized else None)
        except (OSError, ValueError):
            return None

    def capacity(self) -> float:
        """Return the host's capacity in CPUs, or the machine's if unknown."""
        machine = float(os.cpu_count() or 1)
        self._sized = True
        try:
            cpus = float(len(effective_cpus(self._cpuset))
                         if self._cpuset else 0) or machine
            limit = bandwidth(self._cpu, self._version)
        except ValueError:
            self._sized = False
            return machine
        return min(cpus, limit) if limit else cpus


class HostMemory:
    """The host's memory, and the part of it that is available.

    If the topmost visible group has a memory limit below the machine's size,
    the host is that group.  Then its inactive file pages count as available.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._proc = Group(hierarchy.proc)
        #: Text of /proc/meminfo at the last reading.
        self.figures = ''
        self._group: Group | None = None
        version = hierarchy.version
        with contextlib.suppress(CgroupError):
            version = hierarchy.version_of('memory')
            self._group = Group(hierarchy.root('memory'))
        self._limit, self._used, self._cache = (
            ('memory.limit_in_bytes', 'memory.usage_in_bytes',
             'total_inactive_file') if version == 1
            else ('memory.max', 'memory.current', 'inactive_file'))

    def read(self) -> tuple[int, int]:
        """Return the size and the available part of it, in bytes.

        :raises OSError: if a file cannot be read.
        :raises Damaged: if a file cannot be parsed.
        """
        path = f'{self._proc.path}/meminfo'
        self.figures = self._proc.read('meminfo')
        total, available = (1024 * size for size in parse_table(
            self.figures, ('MemTotal', 'MemAvailable'), path))
        if not total:
            raise Damaged(path, self.figures, 'some memory')
        limit = self._limited()
        if limit is None or limit >= total or self._group is None:
            return total, available
        used = self._counted(self._used)
        cache, = parse_table(self._group.read('memory.stat'), [self._cache],
                             f'{self._group.path}/memory.stat')
        return limit, max(0, min(limit - used + cache, limit, available))

    def _counted(self, name: str) -> int:
        """Return the number in a file of the group."""
        if self._group is None:
            raise FileNotFoundError(name)
        return parse_count(self._group.read(name),
                           f'{self._group.path}/{name}')

    def _limited(self) -> int | None:
        """Return the group's limit, None if it has none."""
        try:
            if self._group is None or self._group.read(
                    self._limit) == 'max':
                return None
        except OSError:
            return None     # the root group has no such file
        limit = self._counted(self._limit)
        if not limit:
            raise Damaged(f'{self._group.path}/{self._limit}', '0',
                          'some memory')
        return limit
