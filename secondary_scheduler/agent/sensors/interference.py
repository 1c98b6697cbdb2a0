# SPDX-License-Identifier: Apache-2.0

"""Sensors of interference: PSI, steal and resctrl.

They show harm to the primary, but cannot attribute it to one secondary.  So
the reactions apply to all secondaries of the host.  ``pressure`` is measured
for the primary alone, since secondaries are throttled and wait all the time.
The other signals are measured for the whole machine.
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

#: Number of threads per read; the others follow in the next reads.
_THREADS = 200
#: Seconds for which a list of threads is used.
_LIST_S = 5.0


class PressureSensor(Sensor):
    """``pressure``: share of time in which the primary waited for a CPU.

    It is the maximum over all control groups of host services and primary
    guests.  Where the kernel keeps pressure stall information for a group, its
    value ``some`` is used.  Elsewhere it is the largest run delay of a thread.
    Both include the time in which the group's own quota stops it.
    """

    resources = ('pressure',)

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
                 ) -> None:
        super().__init__(conf, hierarchy)
        self._rates = CounterRates()
        self._delays = RunDelays(hierarchy)

    @damaged_is_unknown
    def read(self, guests: Sequence[Secondary]) -> Readings:
        """Measure the pressure on the primary, and on secondaries if known."""
        scopes = {}
        for guest in guests:
            with contextlib.suppress(cgroups.CgroupError):  # it has ended
                scopes[guest.uuid] = self.hierarchy.scope(guest.pid)
        root = self.hierarchy.root('cpu')
        groups = [f'{root}/{name.strip("/")}' for name in
                  self.conf.secondary_agent.primary_groups] or list(
                      _primary_groups(root, set(scopes.values())))
        if not groups:
            raise OSError('there is no control group without '
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

        :raises OSError: if the kernel does not account for it.
        :raises Damaged: if the file cannot be understood.
        """
        path = f'{group}/cpu.pressure'
        rate = self._rates.per_second(
            group, stalled_us(kernel_files.read_text(path), path))
        return None if rate is None else min(100.0, rate / 1e4)


def stalled_us(text: str, path: str) -> int:
    """Parse the time in which some task has waited, in microseconds.

    :raises Damaged: if the text of a pressure file lacks it.
    """
    for line in text.splitlines():
        kind, *fields = line.split() or ['']
        for field in fields if kind == 'some' else ():
            name, _, value = field.partition('=')
            if name == 'total':
                return kernel_files.parse_count(value, path)
    raise kernel_files.Damaged(path, text, 'a line "some" with a total')


def _primary_groups(group: str, scopes: Collection[str]) -> Iterator[str]:
    """Yield the topmost groups below ``group`` that contain no secondary."""
    with os.scandir(group) as entries:
        below = sorted(entry.path for entry in entries
                       if entry.is_dir(follow_symlinks=False))
    for path in below:
        if path in scopes:
            continue
        if any(scope.startswith(path + '/') for scope in scopes):
            yield from _primary_groups(path, scopes)
        else:
            yield path


class _Seen(typing.NamedTuple):
    """schedstat of a thread, and its waiting time since the read before."""

    at: float
    counters: tuple[int, int, int]  # run and waited in ns, how often run
    percent: float | None


class RunDelays:
    """Run delays of threads, read for a limited number of threads at once."""

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
        """Return the largest run delay of a thread, in percent of time.

        :returns: None while no delay is known.
        :raises OSError: if a group is missing.
        """
        if not self._due:
            self._list(groups)
            self._due.extend(self._threads)
        for _ in range(min(_THREADS, len(self._due))):
            thread = self._due.popleft()
            try:
                self._seen[thread] = self._read_thread(
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
            os.stat(group)      # raises if the group itself is missing
            for folder, _, _ in os.walk(group):
                path = f'{folder}/{self._file}'
                with contextlib.suppress(OSError):
                    threads += kernel_files.parse_counts(
                        kernel_files.read_text(path).split(), 0, path)
        self._listed, self._threads = now, threads
        alive = set(threads)
        self._seen = {thread: one for thread, one in self._seen.items()
                      if thread in alive}

    def _read_thread(self, thread: int, before: _Seen | None) -> _Seen:
        path = f'{self._proc}/{thread}/schedstat'
        run, waited, times = kernel_files.read_counts(path, 3)[:3]
        now = self._clock()
        percent = None
        if (before is not None and now > before.at
                and waited >= before.counters[1]):
            percent = min(100.0, (waited - before.counters[1])
                          / (now - before.at) / 1e7)
            # The kernel counts a wait when it ends.
            if before.counters == (run, waited, times) and self._is_runnable(
                    thread):
                percent = 100.0
        return _Seen(now, (run, waited, times), percent)

    def _is_runnable(self, thread: int) -> bool:
        """Return whether a thread is runnable."""
        text = kernel_files.read_text(f'{self._proc}/{thread}/stat')
        return text.rpartition(')')[2].split()[:1] == ['R']


class StealSensor(Sensor):
    """``steal``: CPU time that a hypervisor gives to other machines.

    It is in percent of the CPU time of this virtual machine, and 0 on a
    physical one.
    """

    resources = ('steal',)

    def __init__(self, conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
                 ) -> None:
        super().__init__(conf, hierarchy)
        self._last: tuple[int, int] | None = None

    @damaged_is_unknown
    def read(self, guests: Sequence[Secondary]) -> Readings:
        """Measure the time that was stolen since the last read."""
        path = f'{self.hierarchy.proc}/stat'
        name, *times = kernel_files.read_line(path).split() or ['']
        if name != 'cpu':
            raise kernel_files.Damaged(path, name, 'a line "cpu"')
        # Times of guests, after the eighth, are included in the others.
        counts = kernel_files.parse_counts(times[:8], 8, path)
        before, self._last = self._last, (counts[7], sum(counts))
        if before is None:
            return {'steal': Reading(None)}
        stolen, passed = (now - then for now, then in zip(
            self._last, before, strict=True))
        if not 0 <= stolen <= passed or not passed:
            # Idle time is included, so the sum must grow.
            return {'steal': Reading(
                None, why='the times of /proc/stat do not advance')}
        return {'steal': Reading(100.0 * stolen / passed)}


class ResctrlSensor(Sensor):
    """``membw`` and ``llc``: memory bandwidth and last-level cache.

    The hardware measures them for ``resctrl_groups``, or for the whole
    machine.
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
        """Measure the use of memory bandwidth and cache."""
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
        # The file is missing if the hardware does not measure it.
        with contextlib.suppress(FileNotFoundError):
            caches = len({os.path.basename(domain) for domain in domains})
            found['llc'] = Reading(100.0 * sum(
                read_count(f'{domain}/llc_occupancy') for domain in domains)
                / (caches * self._cache_bytes()))
        return found

    def _groups(self) -> list[str]:
        """Return the measured groups; the sum of each includes those below."""
        if named := self.conf.secondary_agent.resctrl_groups:
            return [f'{self._root}/{name.strip("/")}' for name in named]
        return [self._root, *(
            f'{self._root}/{name}' for name in sorted(os.listdir(self._root))
            if os.path.isdir(f'{self._root}/{name}/mon_data'))]

    def _cache_bytes(self) -> int:
        path = f'{self._cache}/size'
        size = kernel_files.read_text(path).strip()
        return kernel_files.parse_count(size.removesuffix('K'), path) << 10
