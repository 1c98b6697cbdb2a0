"""Control groups, versions 1 and 2: where things are, and reading them.

Nothing here writes.  Directories are held open, and files are opened relative
to them: once a group is removed its directory yields nothing, even if another
group of the same name has taken its place.
"""

import contextlib
import dataclasses
import os
import re

_HOT_BYTES = 4096
#: No counter of the kernel's reaches this, and no limit.
_LARGEST = 1 << 64
#: More CPUs than Linux knows.
_MOST_CPUS = 1 << 16

#: libvirt's groups of a guest's threads.
_THREADS = re.compile(r'emulator|iothread\d+|vcpu\d+')

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
    return re.sub(r'\\([0-7]{3})', lambda m: chr(int(m[1], 8)), field)


def _mounts(text: str) -> list[Mount]:
    """Read the control group mounts of a mountinfo file."""
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(' - ')
        before, after = left.split(), right.split()
        if len(before) < 5 or len(after) < 3 or after[0] not in (
                'cgroup', 'cgroup2'):
            continue
        root, point = _unescape(before[3]), _unescape(before[4])
        if after[0] == 'cgroup':
            names, version = frozenset(after[2].split(',')), 1
        else:
            try:
                with open(point + '/cgroup.controllers') as file:
                    names = frozenset(file.read().split())
            except (OSError, ValueError):   # or no such path can be
                continue
            version = 2
        found.append(Mount(names, root, point, version))
    return found


class Hierarchy:
    """The control groups as this process sees them.

    :raises CgroupError: if no ``cpu`` controller is mounted.
    """

    def __init__(self, proc: str = '/proc') -> None:
        self.proc = proc
        try:
            with open(f'{proc}/self/mountinfo') as file:
                self._mounts = _mounts(file.read())
        except (OSError, ValueError) as exc:
            raise CgroupError(f'cannot read the mounts: {exc}') from exc
        self.version = self._mount('cpu').version

    def _mount(self, controller: str) -> Mount:
        # Of several mounts the last may cover the others.
        for mount in reversed(self._mounts):
            if controller in mount.controllers:
                return mount
        if controller == 'cpuacct':
            # Version 2 counts in every group, without a controller.
            return self._mount('cpu')
        raise CgroupError(f'no control group mount has the controller '
                          f'{controller}')

    def root(self, controller: str) -> str:
        """Return the directory of the topmost group that we can see."""
        return self._mount(controller).point

    def directory(self, pid: int, controller: str) -> str:
        """Return the directory of the group a process is in.

        :raises CgroupError: if it has none that we can see.
        """
        mount = self._mount(controller)
        try:
            with open(f'{self.proc}/{pid}/cgroup') as file:
                lines = [line.split(':', 2) for line in file]
        except OSError as exc:
            raise CgroupError(f'process {pid} is gone') from exc
        except ValueError as exc:
            raise CgroupError(f'the groups of process {pid} cannot be read: '
                              f'{exc}') from exc
        for number, names, path in (one for one in lines if len(one) == 3):
            mine = (number == '0' and not names if mount.version == 2
                    else mount.controllers & set(names.split(',')))
            if mine and (found := mount.directory(path.rstrip('\n'))):
                return found
        raise CgroupError(f'process {pid} has no group of {controller} '
                          'that is visible here')

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
        """
        fd = self._files.get(name)
        if fd is None:
            fd = self._files[name] = os.open(name, os.O_RDONLY,
                                             dir_fd=self.fd)
        try:
            return os.pread(fd, _HOT_BYTES, 0).decode().strip()
        except OSError:
            os.close(self._files.pop(name))
            raise

    def has(self, name: str) -> bool:
        """Tell whether a file is there and can be read."""
        try:
            self.read(name)
        except OSError:
            return False
        return True

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
            with open(f'{path}/cgroup.events') as file:
                return 'populated 0' in file.read()
        for folder, _, _ in os.walk(path, onerror=fail):
            with open(f'{folder}/cgroup.procs') as file:
                if file.read():
                    return False
    except OSError:
        return False
    return True


def usage_ns(group: Group, version: int) -> int:
    """Return the CPU time a group has used, in nanoseconds.

    :raises OSError: if the group is gone.
    :raises ValueError: if it does not say so.
    """
    if version == 1:
        return _counter(group.read('cpuacct.usage'))
    for line in group.read('cpu.stat').splitlines():
        name, _, value = line.partition(' ')
        if name == 'usage_usec':
            return _counter(value) * 1000
    raise OSError('cpu.stat has no usage_usec')


def _counter(text: str) -> int:
    value = int(text)
    if not 0 <= value < _LARGEST:
        raise ValueError(f'no counter: {text[:40]}')
    return value


def parse_limit(text: str) -> Limit:
    """Read ``quota period`` as either version writes it.

    :raises ValueError: if it is not that.
    """
    words = text.split()
    if len(words) != 2:
        raise ValueError(f'no limit: {text[:40]}')
    quota = None if words[0] in ('max', '-1') else _counter(words[0])
    period = _counter(words[1])
    if quota == 0 or not period:
        raise ValueError(f'no limit: {text[:40]}')
    return quota, period


def read_limit(group: Group, version: int, child: str = '.') -> Limit:
    """Return the bandwidth limit of a group, or of one below it.

    :raises OSError: if the group is gone, or the root of all groups.
    :raises ValueError: if its files cannot be understood.
    """
    if version == 1:
        return parse_limit(group.read(f'{child}/cpu.cfs_quota_us') + ' '
                           + group.read(f'{child}/cpu.cfs_period_us'))
    return parse_limit(group.read(f'{child}/cpu.max'))


def bandwidth(group: Group, version: int) -> float | None:
    """Return a group's bandwidth limit in CPUs, None if it has none."""
    try:
        quota, period = read_limit(group, version)
    except (OSError, ValueError):
        return None     # the root of all groups has no such file
    return None if quota is None else quota / period


def count_cpus(cpus: str) -> int:
    """Count the CPUs of a list like ``0-3,8``.

    :raises ValueError: if it is not that.
    """
    total = 0
    for part in filter(None, cpus.split(',')):
        first, _, last = part.partition('-')
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < _MOST_CPUS:
            raise ValueError(f'no CPUs: {part[:40]}')
        total += high - low + 1
    return total


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
        self._accounting = Group(hierarchy.root('cpuacct'))
        try:
            self._cpuset: Group | None = Group(hierarchy.root('cpuset'))
        except CgroupError:
            self._cpuset = None

    def usage_ns(self) -> int | None:
        """Return the CPU time used so far in nanoseconds, None if unknown."""
        try:
            return usage_ns(self._accounting, self._version)
        except (OSError, ValueError):
            return None

    def capacity(self) -> float:
        """Return the host's capacity in CPUs."""
        cpus = float(self._effective_cpus())
        limit = bandwidth(self._cpu, self._version)
        return min(cpus, limit) if limit else cpus

    def _effective_cpus(self) -> int:
        for name in ('cpuset.cpus.effective', 'cpuset.effective_cpus',
                     'cpuset.cpus'):
            try:
                if self._cpuset and (
                        count := count_cpus(self._cpuset.read(name))):
                    return count
            except (OSError, ValueError):
                continue
        return os.cpu_count() or 1


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
        self._limit, self._used, self._cache = (
            ('memory.limit_in_bytes', 'memory.usage_in_bytes',
             'total_inactive_file') if hierarchy.version == 1
            else ('memory.max', 'memory.current', 'inactive_file'))
        try:
            self._group: Group | None = Group(hierarchy.root('memory'))
        except CgroupError:
            self._group = None

    def read(self) -> tuple[int, int]:
        """Return the size and what is available of it, in bytes.

        :raises OSError: if the kernel does not say.
        :raises ValueError: if what it says cannot be understood.
        """
        self.figures = self._proc.read('meminfo')
        sizes = {name: words for name, _, words in (
            line.partition(':') for line in self.figures.splitlines())}
        try:
            total, available = (
                1024 * int(sizes[name].split()[0])
                for name in ('MemTotal', 'MemAvailable'))
        except (KeyError, IndexError) as exc:
            raise ValueError(f'meminfo has no {exc}') from exc
        limit = self._limited()
        if limit is None or limit >= total or self._group is None:
            return total, available
        used = int(self._group.read(self._used))
        stat = dict(line.split() for line in
                    self._group.read('memory.stat').splitlines())
        left = limit - used + int(stat.get(self._cache, 0))
        return limit, max(0, min(left, limit, available))

    def _limited(self) -> int | None:
        """Return the group's limit, None if it has none."""
        try:
            limit = self._group.read(self._limit) if self._group else 'max'
        except OSError:
            return None     # the root of all groups has no such file
        return None if limit == 'max' else int(limit)
