"""Signals that the primary is harmed, whoever has which part in it.

``pressure`` is about the primary alone: what secondaries wait for, which are
throttled all the time, is no harm.  The others are of the whole machine.
None says whose doing it is, so what follows from them is for all secondaries
of the host.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
import contextlib
import os
import time
import typing

from oslo_config import cfg

from secondary_scheduler.agent import cgroups, kernel_files
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.kernel_files import read_count
from secondary_scheduler.agent.sensors.base import (
    CounterRates,
    Reading,
    Readings,
    Sensor,
    damaged_is_unknown,
)

#: Threads that are looked at in one read; the others have their turn next.
_THREADS = 200
#: Seconds for which a list of threads is good.
_LIST_S = 5.0


class PressureSensor(Sensor):
    """``pressure``: share of time in which the primary waited for a CPU.

    It is that of the control group that waited most, of the services of the
    host and of the guests that are no secondaries.  A group says it itself
    where the kernel keeps pressure stall information for it (``some``);
    elsewhere it is the run delay of the thread that waited most.  Both count
    the time in which a quota of the group's own keeps it from running.
    """

    resources = ('pressure',)

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
                 ) -> None:
        super().__init__(conf, hierarchy)
        self._rates = CounterRates()
        self._delays = RunDelays(hierarchy)

    @damaged_is_unknown
    def read(self, guests: Sequence[Secondary]) -> Readings:
        """Return the pressure on the primary, and on secondaries if known."""
        scopes = {}
        for guest in guests:
            with contextlib.suppress(cgroups.CgroupError):  # it has ended
                scopes[guest.uuid] = self.hierarchy.scope(guest.pid)
        root = self.hierarchy.root('cpu')
        groups = [f'{root}/{name.strip("/")}' for name in
                  self.conf.secondary_agent.primary_groups] or list(
                      _others(root, set(scopes.values())))
        if not groups:
            raise OSError('there is no control group but those of '
                          'secondaries: set [secondary_agent] primary_groups')
        with self._rates:
            silent = []
            waits = []
            for group in groups:
                try:
                    waits.append(self._stalled(group))
                except OSError:
                    silent.append(group)
            if silent:
                waits.append(self._delays.worst(silent))
            instances = {}
            for uuid, scope in scopes.items():
                with contextlib.suppress(OSError, ValueError):
                    wait = self._stalled(scope)
                    if wait is not None:
                        instances[uuid] = wait
        return {'pressure': Reading(max(
            (wait for wait in waits if wait is not None), default=None),
            instances)}

    def _stalled(self, group: str) -> float | None:
        """Return the share of time in which a task of a group waited.

        :raises OSError: if the kernel keeps no such account.
        :raises Damaged: if it cannot be understood.
        """
        path = f'{group}/cpu.pressure'
        rate = self._rates.per_second(
            group, stalled_us(kernel_files.read_text(path), path))
        return None if rate is None else min(100.0, rate / 1e4)


def stalled_us(text: str, path: str) -> int:
    """Read for how many microseconds some task has waited so far.

    :raises Damaged: if a pressure file does not say so.
    """
    for line in text.splitlines():
        kind, *fields = line.split() or ['']
        for field in fields if kind == 'some' else ():
            name, _, value = field.partition('=')
            if name == 'total':
                return kernel_files.parse_count(value, path)
    raise kernel_files.Damaged(path, text, 'a line "some" with a total')


def _others(group: str, scopes: Collection[str]) -> Iterator[str]:
    """Yield the topmost groups below one that hold no secondary."""
    with os.scandir(group) as entries:
        below = sorted(entry.path for entry in entries
                       if entry.is_dir(follow_symlinks=False))
    for path in below:
        if path in scopes:
            continue
        if any(scope.startswith(path + '/') for scope in scopes):
            yield from _others(path, scopes)
        else:
            yield path


class _Seen(typing.NamedTuple):
    """A thread's schedstat, when it was read, and what it waited until then.
    """

    at: float
    counters: tuple[int, int, int]  # run and waited in ns, how often run
    percent: float | None


class RunDelays:
    """Run delays of threads, a bounded number of them in one go."""

    def __init__(self, hierarchy: cgroups.Hierarchy,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = hierarchy.proc
        self._file = 'tasks' if hierarchy.version == 1 else 'cgroup.threads'
        self._clock = clock
        self._listed: float | None = None
        self._threads: list[int] = []
        self._due: deque[int] = deque()
        self._seen: dict[int, _Seen] = {}

    def worst(self, groups: Collection[str]) -> float | None:
        """Return what the thread waits that waits most, in percent of time.

        None while it is known of none.

        :raises OSError: if a group is not there.
        """
        if not self._due:
            self._list(groups)
            self._due.extend(self._threads)
        for _ in range(min(_THREADS, len(self._due))):
            thread = self._due.popleft()
            try:
                self._seen[thread] = self._look(
                    thread, self._seen.get(thread))
            except (OSError, ValueError):
                self._seen.pop(thread, None)    # it has ended
        return max((one.percent for one in self._seen.values()
                    if one.percent is not None), default=None)

    def _list(self, groups: Collection[str]) -> None:
        now = self._clock()
        if self._listed is not None and now - self._listed < _LIST_S:
            return
        threads: list[int] = []
        for group in groups:
            os.stat(group)      # what is below may go at any time, not this
            for folder, _, _ in os.walk(group):
                path = f'{folder}/{self._file}'
                with contextlib.suppress(OSError):
                    threads += kernel_files.parse_counts(
                        kernel_files.read_text(path).split(), 0, path)
        self._listed, self._threads = now, threads
        alive = set(threads)
        self._seen = {thread: one for thread, one in self._seen.items()
                      if thread in alive}

    def _look(self, thread: int, before: _Seen | None) -> _Seen:
        path = f'{self._proc}/{thread}/schedstat'
        run, waited, times = kernel_files.read_counts(path, 3)[:3]
        now = self._clock()
        percent = None
        if (before is not None and now > before.at
                and waited >= before.counters[1]):
            percent = min(100.0, (waited - before.counters[1])
                          / (now - before.at) / 1e7)
            # The kernel counts a wait when it ends.
            if before.counters == (run, waited, times) and self._waits(
                    thread):
                percent = 100.0
        return _Seen(now, (run, waited, times), percent)

    def _waits(self, thread: int) -> bool:
        """Tell whether a thread wants to run."""
        return kernel_files.read_text(f'{self._proc}/{thread}/stat').rpartition(
            ')')[2].split()[:1] == ['R']


class StealSensor(Sensor):
    """``steal``: what a hypervisor below us gives to others.

    It is in percent of the CPU time of the whole machine, and 0 on one that
    is no virtual machine itself.
    """

    resources = ('steal',)

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
                 ) -> None:
        super().__init__(conf, hierarchy)
        self._last: tuple[int, int] | None = None

    @damaged_is_unknown
    def read(self, guests: Sequence[Secondary]) -> Readings:
        """Return the time that was stolen since the last read."""
        path = f'{self.hierarchy.proc}/stat'
        name, *times = kernel_files.read_line(path).split() or ['']
        if name != 'cpu':
            raise kernel_files.Damaged(path, name, 'a line "cpu"')
        # Those of guests, after the eighth, are in the others already.
        counts = kernel_files.parse_counts(times[:8], 8, path)
        before, self._last = self._last, (counts[7], sum(counts))
        if before is None:
            return {'steal': Reading(None)}
        stolen, passed = (now - then for now, then in zip(
            self._last, before, strict=True))
        if not 0 <= stolen <= passed or not passed:
            # Idle time counts as well, so all of it cannot stand still.
            return {'steal': Reading(
                None, why='the times of /proc/stat do not go on')}
        return {'steal': Reading(100.0 * stolen / passed)}


class ResctrlSensor(Sensor):
    """``membw`` and ``llc``: memory bandwidth and last-level cache.

    That is what the groups that are named have of them, by the hardware's
    monitoring, or the whole machine.
    """

    resources = ('membw', 'llc')

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy,
                 root: str = '/sys/fs/resctrl',
                 cache: str = '/sys/devices/system/cpu/cpu0/cache/index3'
                 ) -> None:
        super().__init__(conf, hierarchy)
        self._root = root
        self._cache = cache
        self._rates = CounterRates()

    @damaged_is_unknown
    def read(self, guests: Sequence[Secondary]) -> Readings:
        """Return what is used of memory bandwidth and cache."""
        domains = [f'{group}/mon_data/{name}' for group in self._groups()
                   for name in sorted(os.listdir(f'{group}/mon_data'))
                   if name.startswith('mon_L3_')]
        if not domains:
            raise OSError(f'{self._root} monitors no cache')
        found = {}
        if speed := self.conf.secondary_agent.memory_bandwidth:
            with self._rates:
                rates = [self._rates.per_second(
                    domain, read_count(f'{domain}/mbm_total_bytes'))
                    for domain in domains]
            known = [rate for rate in rates if rate is not None]
            found['membw'] = Reading(
                100.0 * sum(known) / (speed << 20)
                if len(known) == len(rates) else None)
        with contextlib.suppress(FileNotFoundError):    # it has no such
            caches = len({os.path.basename(domain) for domain in domains})
            found['llc'] = Reading(100.0 * sum(
                read_count(f'{domain}/llc_occupancy') for domain in domains)
                / (caches * self._cache_bytes()))
        return found

    def _groups(self) -> list[str]:
        """Return the groups that count; a group below one is in its sum."""
        if named := self.conf.secondary_agent.resctrl_groups:
            return [f'{self._root}/{name.strip("/")}' for name in named]
        return [self._root, *(
            f'{self._root}/{name}' for name in sorted(os.listdir(self._root))
            if os.path.isdir(f'{self._root}/{name}/mon_data'))]

    def _cache_bytes(self) -> int:
        path = f'{self._cache}/size'
        size = kernel_files.read_text(path).strip()
        return kernel_files.parse_count(size.removesuffix('K'), path) << 10
