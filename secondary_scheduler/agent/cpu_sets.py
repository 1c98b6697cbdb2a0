# SPDX-License-Identifier: Apache-2.0

"""CPU sets of a secondary's control groups, and the order to change them.

``dedicated_cpus`` decides which CPUs a secondary may use.
"""

from collections.abc import Mapping
import contextlib
import errno
import os
import typing

from oslo_log import log as logging

from secondary_scheduler.agent import (
    cgroup_handles,
    cgroups,
    kernel_files,
    pins,
)
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.pins import Cpus

LOG = logging.getLogger(__name__)

STATE = 'cpusets.json'
CPUS_FILE = 'cpuset.cpus'


class Record(typing.NamedTuple):
    """Original value of a file, and the values written by agents.

    There may be several ``written`` values: if an agent dies between two
    writes, either may be in force.
    """

    original: str
    written: tuple[str, ...] = ()


class AssignedCpus(typing.NamedTuple):
    """CPUs that a driver of CPU affinity has chosen for a secondary.

    :param vcpus: a set for each vCPU
    :param others: the set of emulator and I/O threads; None leaves them their
        first set
    """

    vcpus: tuple[Cpus, ...]
    others: Cpus | None

    def find(self, name: str) -> Cpus | None:
        """Return the set of a thread group, None if it has none."""
        if cgroup_handles.VCPU.fullmatch(name):
            number = int(name.removeprefix('vcpu'))
            return self.vcpus[number] if number < len(self.vcpus) else None
        return self.others if name else None


class CpuSets:
    """Open groups of one secondary, with the files of their CPU sets."""

    def __init__(self, hierarchy: cgroups.Hierarchy, guest: Secondary
                 ) -> None:
        """Open the groups.

        :raises CgroupError: if they cannot be verified as the guest's own.
        """
        self.path = cgroup_handles.base_of(hierarchy, guest, 'cpuset')
        scope = cgroup_handles.scope_of(self.path)
        self.v1 = hierarchy.version_of('cpuset') == 1
        self._paths_above = list(cgroups.groups_above(
            scope, hierarchy.root('cpuset')))
        #: The nearest group above with CPUs, once it was looked for.
        self._above: cgroups.Group | None = None
        #: The guest's topmost group as '', and its thread groups by name.
        self.groups: dict[str, cgroups.Group] = {}
        #: Sets that are known to confine the threads of their group.
        self.checked: dict[str, Cpus] = {}
        #: Inputs of the last check that found nothing to write: dedicated
        #: CPUs, assigned CPUs, the sets of all groups, and inherited CPUs.
        self.settled: tuple[typing.Any, ...] | None = None
        self._base = cgroups.Group(self.path)
        self._links = self._count_links()
        try:
            self.groups[''] = cgroups.Group(scope)
            for name in self._thread_groups():
                self.groups[name] = cgroups.Group(f'{self.path}/{name}')
            cgroup_handles.check_own(hierarchy, guest, 'cpuset', self.path)
        except cgroups.CgroupError:
            self.close()
            raise

    def _thread_groups(self) -> set[str]:
        return {name for name in self._base.children()
                if cgroup_handles.EMULATOR.fullmatch(name)
                or cgroup_handles.VCPU.fullmatch(name)}

    def is_complete(self) -> bool:
        """Return whether libvirt has neither added nor removed groups.

        If it has replaced a group, reading the open one fails.
        """
        return self._count_links() == self._links

    def _count_links(self) -> int:
        """Return the link count of the parent of the thread groups.

        The kernel counts a link for each group below.
        """
        return os.fstat(self._base.fd).st_nlink

    def read_set(self, name: str) -> str:
        """Return the set of a group, '' if it inherits that of its parent.

        :raises OSError: if it has no such file.
        """
        try:
            return self.groups[name].read(CPUS_FILE)
        except FileNotFoundError:
            if name and not self.v1:
                return ''
            raise

    def allowed(self, named: str) -> Cpus:
        """Return the CPUs of a set.

        :param named: the set as the kernel lists it.  '' stands for the CPUs
            of the nearest group above that has any.
        :raises CgroupError: if no group above has any.
        """
        return (kernel_files.parse_cpus(named, f'{self.path}/{CPUS_FILE}')
                or self.inherited())

    def inherited(self) -> Cpus:
        """Return the CPUs of the nearest group above that has any.

        :raises CgroupError: if no group above has any.
        """
        if self._above and (cpus := cgroups.effective_cpus(self._above)):
            return cpus
        self._close_above()
        for path in self._paths_above:
            with contextlib.suppress(cgroups.CgroupError):
                self._above = cgroups.Group(path)
                if cpus := cgroups.effective_cpus(self._above):
                    return cpus
                self._close_above()
        raise cgroups.CgroupError(
            f'no group above {self.path} has a set of CPUs')

    def _close_above(self) -> None:
        if self._above:
            self._above.close()
            self._above = None

    def check_threads(self, name: str, cpus: Cpus, proc: str) -> None:
        """Check that the threads of a group run on some CPUs only.

        In version 2 the kernel accepts any set, and uses what of it the
        groups above have.

        :raises OSError: if a thread may run on another CPU, or if its group
            cannot be read.
        """
        group = self.groups[name]
        for thread in group.read(
                'tasks' if self.v1 else 'cgroup.threads').split():
            found = pins.read_mask(f'{proc}/{thread}/status')
            if found and not found <= cpus:
                raise OSError(
                    errno.EIO, f'thread {thread} may run on CPUs '
                    f'{kernel_files.format_cpus(found)}, not only on '
                    f'{kernel_files.format_cpus(cpus)}',
                    f'{group.path}/{CPUS_FILE}')

    def close(self) -> None:
        """Close the groups."""
        self._base.close()
        self._close_above()
        for group in self.groups.values():
            group.close()


def order_writes(sets: CpuSets, now: Mapping[str, str],
                 wanted: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the writes from the present to the wanted sets, in order.

    In version 2 the topmost group bounds all groups below it, so that these
    need a write only where their own set changes.  In version 1 the topmost
    group must always have all CPUs of the groups below it.

    :returns: pairs of group and value.
    """
    if not sets.v1:
        return [(name, value) for name, value in sorted(wanted.items())
                if not name or value != now[name]]
    both = sets.allowed(now['']) | sets.allowed(wanted[''])
    return [('', kernel_files.format_cpus(both)),
            *((name, wanted[name]) for name in sorted(wanted) if name),
            ('', wanted[''])]


def update_record(known: Record | None, now: str, sets: CpuSets,
                  parent: Record | None) -> Record:
    """Return the record of a file with the present value ``now``.

    A value written by another program becomes the original value, unless it
    has CPUs that the original value lacks.

    :param parent: the record of the group above.  libvirt copies the set of
        that group, narrowed or not, into each group that it makes.  None if
        the domain names a set of its own.
    """
    if known is None:
        return Record(parent.original if parent and now in parent.written
                      else now)
    if now not in (known.original, *known.written) and (
            sets.allowed(now) <= sets.allowed(known.original)):
        return Record(now)
    return known


def parse_records(state: Mapping[str, typing.Any]
                  ) -> dict[str, dict[str, Record]]:
    """Return the saved records by process key and group.

    Damaged records are left out.
    """
    guests = state.get('guests', {})
    found: dict[str, dict[str, Record]] = {}
    for key, files in guests.items() if isinstance(guests, dict) else ():
        if not isinstance(files, dict):
            continue
        for name, entry in files.items():
            try:
                original, written = entry
                for text in (original, *written):
                    kernel_files.parse_cpus(text, STATE)
            except (TypeError, ValueError, AttributeError):
                LOG.error('Ignoring a record in %s that cannot be read',
                          STATE)
                continue
            found.setdefault(key, {})[name] = Record(original,
                                                     tuple(written))
    return found
