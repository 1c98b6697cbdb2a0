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


class VcpuMeter:
    """Times of the vCPUs of secondaries over the last seconds.

    :param window_s: seconds for which samples are kept
    """

    def __init__(self, hierarchy: cgroups.Hierarchy, window_s: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._hierarchy = hierarchy
        self._window_s = window_s
        self._clock = clock
        #: Folders of the vCPUs' groups, and files of their threads.
        self._places: dict[str, list[tuple[str, str]]] = {}
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
        for known in (self._places, self._samples):
            for key in known.keys() - keys:
                known.pop(key)

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
            if key not in self._places:
                self._places[key] = self._find_places(guest)
            return self._sum_times(self._places[key])
        except (OSError, ValueError, cgroups.CgroupError):
            self._places.pop(key, None)
            return None

    def _find_places(self, guest: Secondary) -> list[tuple[str, str]]:
        """Return group and file of the thread of each vCPU.

        :raises OSError: if a vCPU has no group, or no thread in it.
        """
        base = cgroup_handles.base_of(self._hierarchy, guest, 'cpu')
        v1 = self._hierarchy.version_of('cpu') == 1
        places = []
        for number in range(max(1, guest.vcpus)):
            folder = f'{base}/vcpu{number}'
            path = f'{folder}/{"tasks" if v1 else "cgroup.threads"}'
            threads = kernel_files.read_text(path).split()
            if len(threads) != 1:
                raise FileNotFoundError(path)
            places.append((
                f'{folder}/cpu.stat',
                f'{self._hierarchy.proc}/{guest.pid}/task/{threads[0]}'
                '/schedstat'))
        return places

    def _sum_times(self, places: Iterable[tuple[str, str]]) -> VcpuTimes:
        run = ready = throttled = 0
        for group, thread in places:
            ran, waited = kernel_files.read_counts(thread, 2)[:2]
            run, ready = run + ran, ready + waited
            throttled += self._throttled_ns(group)
        return VcpuTimes(run, ready, throttled)

    def _throttled_ns(self, path: str) -> int:
        """Return for how long a quota has stopped the threads of a group."""
        if self._hierarchy.version_of('cpu') == 1:
            return kernel_files.read_table(path, 'throttled_time')[0]
        return 1000 * kernel_files.read_table(path, 'throttled_usec')[0]
