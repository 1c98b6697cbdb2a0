"""Control groups, versions 1 and 2: where things are, and reading them.

Nothing here writes.  Directories are held open, and files are opened relative
to them: once a group is removed its directory yields nothing, even if another
group of the same name has taken its place.

A machine may have controllers of both versions: each is looked for where it
is.
"""

import contextlib
import dataclasses
import os
import re

from secondary_scheduler.agent import kernel_files
from secondary_scheduler.agent.kernel_files import (
    Damaged,
    parse_count,
    parse_table,
)

#: No file that is read again and again is longer.
_HOT_BYTES = 16384

#: libvirt's groups of a guest's threads.
_THREADS = re.compile(r'emulator|iothread\d+|vcpu\d+')
#: Blank, tab, line feed and backslash in a field of mountinfo.
_ESCAPED = re.compile(r'\\([0-3][0-7]{2})')

#: A bandwidth limit: quota (None: no limit) and period, in microseconds.
Limit = tuple[int | None, int]


class CgroupError(Exception):
    """A control group that cannot be found or read."""


@dataclasses.dataclass(frozen=True)
class Mount:
    """One mount of a hierarchy: ``root`` is what of it ``point`` shows."""

    controllers: frozenset[str]
    root: str
    point: str
    version: int

    def directory(self, path: str) -> str | None:
        """Map a path as /proc/PID/cgroup gives it to a directory."""
        if '..' in path.split('/'):
            return None     # outside of our cgroup namespace
        root = self.root.rstrip('/')
        if path != root and not path.startswith(root + '/'):
            return None
        return os.path.normpath(self.point + '/' + path[len(root):])


def _unescape(field: str) -> str:
    """Return a field of mountinfo as the path that it means."""
    return os.fsdecode(re.sub(
        _ESCAPED.pattern.encode(), lambda m: bytes([int(m[1], 8)]),
        os.fsencode(field)))


def _mounts(text: str) -> tuple[list[Mount], list[str]]:
    """Read the control group mounts of a mountinfo file.

    :returns: the mounts, and why others cannot be used.
    """
    found, unusable = [], []
    for line in text.split('\n'):
        left, _, right = line.partition(' - ')
        before, after = left.split(' '), right.split(' ')
        if len(before) < 5 or len(after) < 3 or after[0] not in (
                'cgroup', 'cgroup2'):
            continue
        root, point = _unescape(before[3]), _unescape(before[4])
        if after[0] == 'cgroup':
            names, version = frozenset(after[2].split(',')), 1
        else:
            try:
                names = frozenset(kernel_files.read(
                    point + '/cgroup.controllers').split())
            except (OSError, ValueError) as exc:    # or no such path can be
                unusable.append(kernel_files.explain(exc))
                continue
            version = 2
        found.append(Mount(names, root, point, version))
    return found, unusable


def _is_empty(mount: Mount) -> bool:
    """Tell whether there is nothing in a mount of version 1."""
    try:
        return mount.version == 1 and not os.listdir(mount.point)
    except (OSError, ValueError):
        return True


class Hierarchy:
    """The control groups as this process sees them.

    :raises CgroupError: if no ``cpu`` controller is mounted.
    """

    def __init__(self, proc: str = '/proc') -> None:
        self.proc = proc
        try:
            mounts, self._unusable = _mounts(
                kernel_files.read(f'{proc}/self/mountinfo'))
        except (OSError, ValueError) as exc:
            raise CgroupError(f'cannot read the mounts: {exc}') from exc
        # A later mount covers an earlier one at the same place.
        visible = {mount.point: mount for mount in mounts}.values()
        # A controller is in one version only: not in version 1 where a mount
        # of that is empty.  The mount that shows most of it comes first.
        self._mounts = sorted(visible, key=lambda mount: (
            _is_empty(mount), mount.version, len(mount.root.rstrip('/'))))
        self.version = self.version_of('cpu')

    def _those_with(self, controller: str) -> list[Mount]:
        """Return the mounts that have a controller, best first.

        :raises CgroupError: if there is none.
        """
        if controller == 'cpuacct' and self.version_of('cpu') == 2:
            # Version 2 counts in every group, without a controller.
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
        """Return the version of control groups that a controller is in.

        :raises CgroupError: if it is in none.
        """
        return self._those_with(controller)[0].version

    def root(self, controller: str) -> str:
        """Return the directory of the topmost group that we can see.

        :raises CgroupError: if the controller is not mounted.
        """
        return self._those_with(controller)[0].point

    def directory(self, pid: int, controller: str) -> str:
        """Return the directory of the group a process is in.

        :raises CgroupError: if it has none that we can see.
        """
        mounts = self._those_with(controller)
        file = f'{self.proc}/{pid}/cgroup'
        try:
            lines = [line.split(':', 2)
                     for line in kernel_files.read(file).split('\n')]
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

    def scope(self, pid: int) -> str:
        """Return the group of the guest whose QEMU a process is.

        libvirt has a group for each kind of thread in it.  The group of the
        process itself is meant where that is not so.

        :raises CgroupError: if it has none that we can see.
        """
        own = self.directory(pid, 'cpu')
        if not _THREADS.fullmatch(os.path.basename(own)):
            return own
        base = os.path.dirname(own)
        return (os.path.dirname(base) if os.path.basename(base) == 'libvirt'
                else base)


class Group:
    """One control group, held open; its files are read with one call."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._files: dict[str, int] = {}
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except (OSError, ValueError) as exc:
            raise CgroupError(f'cannot open {path}: {exc}') from exc

    def read(self, name: str) -> str:
        """Return what a file says, without the line's end.

        :raises OSError: if it is not there, or the group is gone.
        :raises Damaged: if it is longer than any such file is.
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
        """Tell whether a file is there and can be read."""
        try:
            self.read(name)
        except (OSError, ValueError):
            return False
        return True

    def is_current(self) -> bool:
        """Tell whether the path still leads to this group.

        systemd removes a slice with its last unit, and makes another one of
        the same name for the next.
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
        """Let go of the directory and its files."""
        for fd in (*self._files.values(), self.fd):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._files = {}
        self.fd = -1


def is_deserted(path: str, version: int) -> bool:
    """Tell whether nobody is in a group, nor in those below it.

    libvirtd leaves the groups behind of guests that were there before it.
    Where it cannot be told somebody is.
    """
    def fail(exc: OSError) -> None:
        raise exc

    try:
        if version == 2:
            return kernel_files.read_table(
                f'{path}/cgroup.events', 'populated') == [0]
        for folder, _, _ in os.walk(path, onerror=fail):
            if kernel_files.read(f'{folder}/cgroup.procs'):
                return False
    except (OSError, ValueError):
        return False
    return True


def usage_ns(group: Group, version: int) -> int:
    """Return the CPU time a group has used, in nanoseconds.

    :raises OSError: if the group is gone.
    :raises Damaged: if it does not say so.
    """
    if version == 1:
        return parse_count(group.read('cpuacct.usage'),
                           f'{group.path}/cpuacct.usage')
    return 1000 * parse_table(group.read('cpu.stat'), ['usage_usec'],
                              f'{group.path}/cpu.stat')[0]


def parse_limit(text: str, path: str = '') -> Limit:
    """Read ``quota period`` as either version writes it.

    :raises Damaged: if it is not that.
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


def read_limit(group: Group, version: int, child: str = '.') -> Limit:
    """Return the bandwidth limit of a group, or of one below it.

    :raises OSError: if the group is gone, or the root of all groups.
    :raises Damaged: if its files cannot be understood.
    """
    path = os.path.normpath(f'{group.path}/{child}')
    if version == 1:
        return parse_limit(group.read(f'{child}/cpu.cfs_quota_us') + ' '
                           + group.read(f'{child}/cpu.cfs_period_us'),
                           f'{path}/cpu.cfs_quota_us')
    return parse_limit(group.read(f'{child}/cpu.max'), f'{path}/cpu.max')


def bandwidth(group: Group, version: int) -> float | None:
    """Return a group's bandwidth limit in CPUs, None if it has none.

    :raises Damaged: if its files cannot be understood.
    """
    try:
        quota, period = read_limit(group, version)
    except OSError:
        return None     # the root of all groups has no such file
    return None if quota is None else quota / period


def effective_cpus(group: Group) -> frozenset[int]:
    """Return the CPUs that a group may use; empty if it does not say.

    :raises Damaged: if it says something else.
    """
    for name in ('cpuset.cpus.effective', 'cpuset.effective_cpus',
                 'cpuset.cpus'):
        with contextlib.suppress(OSError):
            if cpus := kernel_files.parse_cpus(group.read(name),
                                               f'{group.path}/{name}'):
                return cpus
    return frozenset()


class HostCpu:
    """CPU time used on the host, and how many CPUs it has.

    The host is the root of the control groups that the agent sees: the whole
    machine on a real host, the container or the one-machine cloud's part of
    the machine elsewhere.  /proc/stat is not used, since it shows the whole
    machine from everywhere.  The kernel charges groups with the time of
    tasks: what hard interrupts take outside of tasks is not seen (with
    interrupt time accounting), which on a host busy with network traffic may
    be a few percent.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._version = hierarchy.version
        self._cpu = Group(hierarchy.root('cpu'))
        self._accounting_version = hierarchy.version_of('cpuacct')
        self._accounting = Group(hierarchy.root('cpuacct'))
        #: Whether the files that say what a host has can be understood.
        self._sized = True
        try:
            self._cpuset: Group | None = Group(hierarchy.root('cpuset'))
        except CgroupError:
            self._cpuset = None

    def usage_ns(self) -> int | None:
        """Return the CPU time used so far in nanoseconds, None if unknown.

        So it is, too, while it is not known what the host has.
        """
        try:
            return (usage_ns(self._accounting, self._accounting_version)
                    if self._sized else None)
        except (OSError, ValueError):
            return None

    def capacity(self) -> float:
        """Return the host's capacity in CPUs; the machine's if unknown."""
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
    """The host's memory, and how much of it can still be had.

    The host is the whole machine, unless the topmost control group that we
    see has less (a container, the one-machine cloud): then it is that group,
    of which pages of files that can go count as available.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._proc = Group(hierarchy.proc)
        #: What /proc/meminfo said the last time.
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
        """Return the size and what is available of it, in bytes.

        :raises OSError: if the kernel does not say.
        :raises Damaged: if what it says cannot be understood.
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
        """Return what a file of the group counts."""
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
            return None     # the root of all groups has no such file
        limit = self._counted(self._limit)
        if not limit:
            raise Damaged(f'{self._group.path}/{self._limit}', '0',
                          'some memory')
        return limit
