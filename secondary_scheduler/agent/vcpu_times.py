# SPDX-License-Identifier: Apache-2.0

"""Times of the vCPUs of secondaries: run, waiting, throttled.

The kernel counts for each thread how long it ran, and how long it was ready to
run but did not (``schedstat``).  The second includes the time for which a
quota stopped it, which its group counts, too.  What is left is the waiting for
other threads on the same CPUs (Kaffes 2015, section 5.2, slow-down by sharing
of time).
"""

from collections import deque
from collections.abc import Callable, Iterable
import contextlib
import time
import typing

from secondary_scheduler.agent import cgroup_handles, cgroups, kernel_files
from secondary_scheduler.agent.domains import Secondary


class VcpuTimes(typing.NamedTuple):
    """Times of all vCPUs of a guest since their start, in nanoseconds.

    :param run: CPU time
    :param ready: time for which they were ready to run, but did not
    :param throttled: the part of ``ready`` for which a quota stopped them
    """

    run: int
    ready: int
    throttled: int

    def since(self, before: 'VcpuTimes') -> 'VcpuTimes':
        """Return the times that have passed since earlier ones."""
        return VcpuTimes(*(now - then for now, then in zip(
            self, before, strict=True)))

    @property
    def slowdown(self) -> float | None:
        """Slow-down by other threads on the same CPUs, at least 1.

        None if they have not run.  Without the throttled time a quota would
        count as harm by neighbours.
        """
        if self.run <= 0:
            return None
        return 1.0 + max(0, self.ready - self.throttled) / self.run


class _VcpuGroups(typing.NamedTuple):
    """Open directories of the vCPUs of a guest.

    :param vcpus: group and thread of each vCPU
    :param opened: closes them
    """

    vcpus: list[tuple[cgroups.Group, cgroups.Group]]
    opened: contextlib.ExitStack


class VcpuMeter:
    """Times of the vCPUs of secondaries over the last seconds.

    :param window_s: seconds for which samples are kept
    """

    def __init__(self, hierarchy: cgroups.Hierarchy, window_s: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._hierarchy = hierarchy
        self._window_s = window_s
        self._clock = clock
        self._groups: dict[str, _VcpuGroups] = {}
        self._samples: dict[str, deque[tuple[float, VcpuTimes]]] = {}

    def sample(self, guests: Iterable[Secondary]) -> None:
        """Read the times of guests, and forget all other guests."""
        keys = set()
        for guest in guests:
            key = cgroup_handles.key_of(guest)
            keys.add(key)
            times = self._read(guest, key)
            if times is None:
                self._samples.pop(key, None)
                continue
            samples = self._samples.setdefault(key, deque())
            now = self._clock()
            samples.append((now, times))
            while len(samples) > 2 and now - samples[1][0] >= self._window_s:
                samples.popleft()
        for key in self._samples.keys() - keys:
            self._samples.pop(key)
        for key in self._groups.keys() - keys:
            self._groups.pop(key).opened.close()

    def times(self, guest: Secondary, seconds: float
              ) -> tuple[float, VcpuTimes] | None:
        """Return the times of a guest in about the last seconds.

        :returns: the seconds that they cover, and the times; None if they are
            unknown
        """
        # Another thread appends.
        samples = list(self._samples.get(cgroup_handles.key_of(guest), ()))
        if not samples:
            return None
        now, last = samples[-1]
        then, first = next((
            one for one in reversed(samples) if now - one[0] >= seconds),
            samples[0])
        past = last.since(first)
        if now <= then or min(past) < 0:
            return None
        return now - then, past

    def demand_pct(self, guest: Secondary, seconds: float) -> float | None:
        """Return how much of a CPU each vCPU of a guest wants, in percent.

        A vCPU wants a CPU while it runs, and while it is ready to.
        """
        found = self.times(guest, seconds)
        if found is None:
            return None
        passed, past = found
        return min(100.0, (past.run + past.ready) / 1e7 / passed
                   / max(1, guest.vcpus))

    def _read(self, guest: Secondary, key: str) -> VcpuTimes | None:
        try:
            if key not in self._groups:
                self._groups[key] = self._open(guest)
            return self._sum_times(self._groups[key])
        except (OSError, ValueError, cgroups.CgroupError):
            if key in self._groups:
                self._groups.pop(key).opened.close()
            return None

    def _open(self, guest: Secondary) -> _VcpuGroups:
        """Open group and thread of each vCPU.

        :raises OSError: if a vCPU has no group, or no thread in it.
        :raises CgroupError: if one of them cannot be opened.
        """
        base = cgroup_handles.base_of(self._hierarchy, guest, 'cpu')
        tasks = ('tasks' if self._hierarchy.version_of('cpu') == 1
                 else 'cgroup.threads')
        found = []
        with contextlib.ExitStack() as opened:
            def open_group(path: str) -> cgroups.Group:
                return opened.enter_context(contextlib.closing(
                    cgroups.Group(path)))

            for number in range(max(1, guest.vcpus)):
                folder = f'{base}/vcpu{number}'
                threads = kernel_files.read_text(f'{folder}/{tasks}').split()
                if len(threads) != 1:
                    raise FileNotFoundError(f'{folder}/{tasks}')
                found.append((open_group(folder), open_group(
                    f'{self._hierarchy.proc}/{guest.pid}/task/{threads[0]}')))
            return _VcpuGroups(found, opened.pop_all())

    def _sum_times(self, groups: _VcpuGroups) -> VcpuTimes:
        run = ready = throttled = 0
        for group, thread in groups.vcpus:
            ran, waited = kernel_files.parse_counts(
                thread.read('schedstat').split(), 2, thread.path)[:2]
            run, ready = run + ran, ready + waited
            throttled += self._throttled_ns(group)
        return VcpuTimes(run, ready, throttled)

    def _throttled_ns(self, group: cgroups.Group) -> int:
        """Return for how long a quota has stopped the threads of a group."""
        name, unit = (('throttled_time', 1)
                      if self._hierarchy.version_of('cpu') == 1
                      else ('throttled_usec', 1000))
        return unit * kernel_files.parse_table(
            group.read('cpu.stat'), [name], group.path)[0]
