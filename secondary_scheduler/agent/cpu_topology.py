# SPDX-License-Identifier: Apache-2.0

"""Topology of the CPUs of a host, as sysfs describes it.

A file that is missing or damaged makes a fact *unknown*, for all CPUs alike:

* each CPU is a core of its own if SMT siblings are unknown;
* dies, packages and NUMA nodes are one.  A guess of more would keep guests on
  the CPUs where they began, and would count the memory bandwidth of a package
  once for each CPU;
* caches are left unknown (``Topology.cache_domains``).

A kernel without NUMA has no folder of nodes, so that one node is known then.
"""

from collections.abc import Callable, Iterable
import os
import re

from secondary_scheduler.agent import kernel_files
from secondary_scheduler.model.topology import (
    Cpus,
    Partition,
    SharedCache,
    Topology,
    singletons,
)

SYSFS = '/sys/devices/system/cpu'
#: Folders of NUMA nodes and of caches.  Their numbers may have gaps.
_NODE = re.compile(r'node[0-9]+')
_CACHE = re.compile(r'index[0-9]+')


class _Inconsistent(ValueError):
    """Two CPUs whose files contradict each other."""


def read_topology(directory: str = SYSFS,
                  cpus: Iterable[int] | None = None) -> Topology:
    """Read the topology of CPUs.

    :param directory: folder with a folder for each CPU and, beside it, a
        folder ``node`` with one for each NUMA node
    :param cpus: CPUs to describe; by default those of the file ``online``
    :raises OSError: if the file ``online`` is needed and cannot be read
    :raises ValueError: if it is no list of CPUs, or if there is no CPU
    """
    path = f'{directory}/online'
    some = frozenset(kernel_files.parse_cpus(
        kernel_files.read_text(path), path) if cpus is None else cpus)
    if not some:
        raise kernel_files.Damaged(path, '', 'at least one CPU')
    reader = _Reader(directory, some)
    return Topology(
        cores=reader.partition('SMT siblings', reader.topology_file(
            'core_cpus_list', 'thread_siblings_list'), singletons(some)),
        caches=reader.caches(),
        dies=reader.partition('dies', reader.topology_file(
            'die_cpus_list', 'package_cpus_list', 'core_siblings_list'),
            (some,)),
        packages=reader.partition('packages', reader.topology_file(
            'package_cpus_list', 'core_siblings_list'), (some,)),
        nodes=reader.nodes(), unknown=tuple(reader.unknown))


class _Reader:
    """Reads facts about CPUs, and notes unknown ones."""

    def __init__(self, directory: str, cpus: Cpus) -> None:
        self._directory = directory
        self._cpus = cpus
        self.unknown: list[str] = []

    def topology_file(self, *names: str) -> Callable[[int], Cpus]:
        """Return a reader of the first of these files that exists.

        Kernels before 5.7 have other names for the same lists.
        """
        def read(cpu: int) -> Cpus:
            folder = f'{self._directory}/cpu{cpu}/topology'
            there = (name for name in names
                     if os.path.exists(f'{folder}/{name}'))
            return _read_list(f'{folder}/{next(there, names[0])}')
        return read

    def partition(self, name: str, read: Callable[[int], Cpus],
                  unknown: Partition) -> Partition:
        """Return the sets to which CPUs say that they belong.

        :param unknown: the sets if these are not known
        """
        try:
            return _partition({cpu: read(cpu) & self._cpus
                               for cpu in sorted(self._cpus)}, name)
        except (OSError, ValueError) as exc:
            self._note(name, exc)
            return unknown

    def caches(self) -> tuple[SharedCache, ...] | None:
        """Return the caches that at least two CPUs share, None if unknown."""
        levels: dict[int, dict[int, Cpus]] = {}
        try:
            for cpu in sorted(self._cpus):
                for level, cpus in self._caches_of(cpu):
                    levels.setdefault(level, {})[cpu] = cpus & self._cpus
            return tuple(
                SharedCache(level, part) for level in sorted(levels)
                for part in _partition(levels[level], f'level {level} caches')
                if len(part) > 1)
        except (OSError, ValueError) as exc:
            self._note('caches', exc)
            return None

    def _caches_of(self, cpu: int) -> Iterable[tuple[int, Cpus]]:
        """Yield level and CPUs of the data caches of a CPU."""
        folder = f'{self._directory}/cpu{cpu}/cache'
        caches = sorted(filter(_CACHE.fullmatch, os.listdir(folder)))
        if not caches:
            raise _Inconsistent(f'{folder} has no cache')
        for name in caches:
            if kernel_files.read_line(
                    f'{folder}/{name}/type') != 'Instruction':
                yield (kernel_files.read_count(f'{folder}/{name}/level'),
                       _read_list(f'{folder}/{name}/shared_cpu_list'))

    def nodes(self) -> Partition:
        """Return the CPUs of each NUMA node."""
        folder = os.path.join(os.path.dirname(
            self._directory.rstrip('/')) or '.', 'node')
        if not os.path.exists(folder):
            return (self._cpus,)
        try:
            found = [_read_list(f'{folder}/{name}/cpulist') & self._cpus
                     for name in filter(_NODE.fullmatch, os.listdir(folder))]
            return _partition({cpu: part for part in found for cpu in part},
                              'NUMA nodes', self._cpus)
        except (OSError, ValueError) as exc:
            self._note('NUMA nodes', exc)
            return (self._cpus,)

    def _note(self, name: str, problem: Exception) -> None:
        self.unknown.append(f'{name} ({kernel_files.explain(problem)})')


def _read_list(path: str) -> Cpus:
    return kernel_files.parse_cpus(kernel_files.read_text(path), path)


def _partition(sets: dict[int, Cpus], name: str,
               cpus: Cpus | None = None) -> Partition:
    """Return the sets of CPUs as a partition, by lowest CPU.

    :param cpus: the CPUs that must have a set, by default those that have one
    :raises _Inconsistent: if a CPU has no set, or is not in its own, or if
        another CPU of its set has another one
    """
    for cpu in sorted(sets.keys() if cpus is None else cpus):
        own = sets.get(cpu, frozenset())
        if cpu not in own:
            raise _Inconsistent(f'CPU {cpu} is in none of the {name}')
        for other in sorted(own):
            if sets.get(other) != own:
                raise _Inconsistent(
                    f'CPUs {cpu} and {other} disagree on their {name}')
    return tuple(sorted(set(sets.values()), key=min))
