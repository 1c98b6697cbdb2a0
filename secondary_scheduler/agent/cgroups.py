# SPDX-License-Identifier: Apache-2.0

"""Control groups of versions 1 and 2: locate and read them.

Nothing here writes.  Directories are held open, and files are opened relative
to them.  Once a group is removed, reading its files fails, even if another
group of the same name has taken its place.

A machine may have controllers of both versions; each is looked up in its own.
"""

from collections.abc import Iterator
import contextlib
import os
import re

from secondary_scheduler.agent import kernel_files
from secondary_scheduler.agent.cgroup_mounts import (
    Mount,
    is_empty,
    read_mounts,
)
from secondary_scheduler.agent.kernel_files import (
    Damaged,
    parse_count,
    parse_table,
)

#: Bytes that no control file reaches.
_HOT_BYTES = 16384

#: libvirt's groups of a guest's threads.
_THREADS = re.compile(r'emulator|iothread\d+|vcpu\d+')

#: A bandwidth limit: quota (None: no limit) and period, in microseconds.
Limit = tuple[int | None, int]

#: Smallest quota that the kernel accepts, in microseconds.
LEAST_QUOTA_US = 1000
#: Longest period at which a throttled vCPU does not stall QEMU for too long.
LONG_PERIOD_US = 100_000


class CgroupError(Exception):
    """A control group that cannot be found or read."""


class Hierarchy:
    """The control group hierarchies that are visible to this process.

    :raises CgroupError: if no ``cpu`` controller is mounted.
    """

    def __init__(self, proc: str = '/proc') -> None:
        self.proc = proc
        try:
            mounts, self._unusable = read_mounts(
                kernel_files.read_text(f'{proc}/self/mountinfo'))
        except (OSError, ValueError) as exc:
            raise CgroupError(f'cannot read the mounts: {exc}') from exc
        # A later mount covers an earlier one at the same place.
        visible = {mount.point: mount for mount in mounts}.values()
        # A controller is in one version only, and an empty mount of version
        # 1 shows that it is not there.  Prefer the mount that shows most.
        self._mounts = sorted(visible, key=lambda mount: (
            is_empty(mount), mount.version, len(mount.root.rstrip('/'))))
        self.version = self.version_of('cpu')

    def _mounts_with(self, controller: str) -> list[Mount]:
        """Return the mounts that have a controller, best first.

        :raises CgroupError: if there is none.
        """
        if controller == 'cpuacct' and self.version_of('cpu') == 2:
            # Version 2 counts CPU time in every group, without a controller.
            controller = 'cpu'
        found = [mount for mount in self._mounts
                 if controller in mount.controllers]
        if not found:
            raise CgroupError('; '.join((
                f'no control group mount in {self.proc}/self/mountinfo has '
                f'the controller {controller}', *self._unusable)))
        return [mount for mount in found
                if mount.version == found[0].version]

    def version_of(self, controller: str) -> int:
        """Return the version of control groups that has a controller.

        :raises CgroupError: if none has it.
        """
        return self._mounts_with(controller)[0].version

    def root(self, controller: str) -> str:
        """Return the directory of the topmost visible group.

        :raises CgroupError: if the controller is not mounted.
        """
        return self._mounts_with(controller)[0].point

    def directory(self, pid: int, controller: str) -> str:
        """Return the directory of the group of a process.

        :raises CgroupError: if it has no visible group.
        """
        mounts = self._mounts_with(controller)
        file = f'{self.proc}/{pid}/cgroup'
        try:
            lines = [line.split(':', 2)
                     for line in kernel_files.read_text(file).split('\n')]
        except OSError as exc:
            raise CgroupError(f'process {pid} is gone') from exc
        except ValueError as exc:
            raise CgroupError(f'the groups of process {pid} cannot be read: '
                              f'{exc}') from exc
        hidden = ''
        for number, names, path in (one for one in lines if len(one) == 3):
            for mount in mounts:
                if not (number == '0' and not names if mount.version == 2
                        else mount.controllers & set(names.split(','))):
                    continue
                if found := mount.directory(path):
                    return found
                hidden = (f': it is in {path}, and {mount.point} shows '
                          f'{mount.root} only')
        raise CgroupError(f'process {pid} has no group of {controller} '
                          f'that is visible here, by {file}{hidden}')

    def scope(self, pid: int, controller: str = 'cpu') -> str:
        """Return the group of a guest, by the PID of its QEMU.

        libvirt makes a group for each kind of thread below it.  Without such
        groups, this is the group of the process itself.

        :raises CgroupError: if the process has no visible group.
        """
        own = self.directory(pid, controller)
        if not _THREADS.fullmatch(os.path.basename(own)):
            return own
        base = os.path.dirname(own)
        return (os.path.dirname(base) if os.path.basename(base) == 'libvirt'
                else base)


class Group:
    """One open control group; its files are read with one system call."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._files: dict[str, int] = {}
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except (OSError, ValueError) as exc:
            raise CgroupError(f'cannot open {path}: {exc}') from exc

    def read(self, name: str) -> str:
        """Return the text of a file, without surrounding white space.

        :raises OSError: if the file or the group is gone.
        :raises Damaged: if it is longer than a control file can be.
        """
        try:
            fd = self._files.get(name)
            if fd is None:
                fd = self._files[name] = os.open(name, os.O_RDONLY,
                                                 dir_fd=self.fd)
            data = os.pread(fd, _HOT_BYTES, 0)
        except OSError as exc:
            if name in self._files:
                os.close(self._files.pop(name))
            raise OSError(exc.errno, exc.strerror,
                          f'{self.path}/{name}') from exc
        text = os.fsdecode(data).strip()
        if len(data) == _HOT_BYTES:
            raise Damaged(f'{self.path}/{name}', text,
                          f'less than {_HOT_BYTES} bytes')
        return text

    def has(self, name: str) -> bool:
        """Return whether a file can be read."""
        try:
            self.read(name)
        except (OSError, ValueError):
            return False
        return True

    def is_current(self) -> bool:
        """Return whether the path still leads to this group.

        systemd removes a slice after its last unit.  For the next unit it
        makes another slice of the same name.
        """
        try:
            return os.path.samestat(os.fstat(self.fd), os.stat(self.path))
        except OSError:
            return False

    def children(self) -> list[str]:
        """Return the names of the groups below."""
        with os.scandir(self.fd) as entries:
            return sorted(entry.name for entry in entries
                          if entry.is_dir(follow_symlinks=False))

    def close(self) -> None:
        """Close the directory and its files."""
        for fd in (*self._files.values(), self.fd):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._files = {}
        self.fd = -1


def is_deserted(path: str, version: int) -> bool:
    """Return whether no process is in a group or in those below it.

    libvirtd leaves empty groups of guests that it has not started itself.  A
    group that cannot be read counts as having a process.
    """
    def fail(exc: OSError) -> None:
        raise exc

    try:
        if version == 2:
            return kernel_files.read_table(
                f'{path}/cgroup.events', 'populated') == [0]
        for folder, _, _ in os.walk(path, onerror=fail):
            if kernel_files.read_text(f'{folder}/cgroup.procs'):
                return False
    except (OSError, ValueError):
        return False
    return True


def usage_ns(group: Group, version: int) -> int:
    """Return the CPU time a group has used, in nanoseconds.

    :raises OSError: if the group is gone.
    :raises Damaged: if its file cannot be parsed.
    """
    if version == 1:
        return parse_count(group.read('cpuacct.usage'),
                           f'{group.path}/cpuacct.usage')
    return 1000 * parse_table(group.read('cpu.stat'), ['usage_usec'],
                              f'{group.path}/cpu.stat')[0]


def parse_limit(text: str, path: str = '') -> Limit:
    """Parse ``QUOTA PERIOD`` as either version writes them.

    :raises Damaged: if it is anything else.
    """
    words = text.split()
    if len(words) != 2:
        raise Damaged(path, text, 'a quota and a period')
    quota = None if words[0] in ('max', '-1') else parse_count(
        words[0], path)
    period = parse_count(words[1], path)
    if quota == 0 or not period:
        raise Damaged(path, text, 'a quota and a period')
    return quota, period


def format_limit(limit: Limit) -> str:
    """Return a limit as version 2 writes it."""
    return f'{"max" if limit[0] is None else limit[0]} {limit[1]}'


def read_limit(group: Group, version: int, child: str = '.') -> Limit:
    """Return the bandwidth limit of a group, or of one below it.

    :raises OSError: if the group is gone, or if it is the root group.
    :raises Damaged: if its files cannot be parsed.
    """
    path = os.path.normpath(f'{group.path}/{child}')
    if version == 1:
        return parse_limit(group.read(f'{child}/cpu.cfs_quota_us') + ' '
                           + group.read(f'{child}/cpu.cfs_period_us'),
                           f'{path}/cpu.cfs_quota_us')
    return parse_limit(group.read(f'{child}/cpu.max'), f'{path}/cpu.max')


def bandwidth(group: Group, version: int) -> float | None:
    """Return a group's bandwidth limit in CPUs, None if it has none.

    :raises Damaged: if its files cannot be parsed.
    """
    try:
        quota, period = read_limit(group, version)
    except OSError:
        return None     # the root group has no such file
    return None if quota is None else quota / period


def effective_cpus(group: Group) -> frozenset[int]:
    """Return the CPUs that a group may use; empty if it names none.

    :raises Damaged: if its files cannot be parsed.
    """
    for name in ('cpuset.cpus.effective', 'cpuset.effective_cpus',
                 'cpuset.cpus'):
        with contextlib.suppress(OSError):
            if cpus := kernel_files.parse_cpus(group.read(name),
                                               f'{group.path}/{name}'):
                return cpus
    return frozenset()


def groups_above(path: str, root: str) -> Iterator[str]:
    """Yield the groups above one, up to the topmost visible one."""
    while path != root and path.startswith(root):
        path = os.path.dirname(path)
        yield path
