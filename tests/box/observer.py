# SPDX-License-Identifier: Apache-2.0

"""Measurements of the hosts by the kernel, without our agents.

For each host: its use in the last second, the part of the vCPUs of
secondaries, and their limits.  From these follows a check of the policy that
is independent of the agents' own.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
import contextlib
import dataclasses
import itertools
import operator
import pathlib
import re
import threading
import time

import cgroups
import layout
import secondaries
from tests.box import machine

#: Looks in a second.  One second in which the policy holds ends a run of
#: failed checks, and the start of the agent's seconds is not known here.
LOOKS = 4
#: Percent of a host; two observers that sample at different instants may
#: differ by some percent in one second.
THRESHOLD = layout.THRESHOLD + 5

_SCOPE = re.compile(r'qemu-\d+-(.+)\.libvirt-qemu')
#: The floor: 1 ms in 100 ms for each vCPU, in percent of a CPU; and what the
#: ends of an interval of a second may add to it, in percent of a host.
_FLOOR_CPU = 1.0
_SLOP = 1.5
_LENGTH = operator.itemgetter(0)


@dataclasses.dataclass(frozen=True)
class Row:
    """One host in the second before a look, in percent of the host.

    ``secondary`` is what the secondaries' vCPUs took, ``floor`` what they
    may take at the floor, ``unlimited`` the domains of secondaries that had
    no limit at the end of this second and had none a second before.
    ``held_up`` is for how much of the second the machine was.
    """

    t: float
    held_up: float
    total: float
    secondary: float
    floor: float
    unlimited: frozenset[str]

    @property
    def failed(self) -> bool:
        """Whether the policy failed while a secondary contributed."""
        return self.total > THRESHOLD and self.secondary > self.floor


@dataclasses.dataclass
class _Counters:
    t: float
    cpus: float
    host_ns: int
    vcpu_ns: dict[str, int]
    unlimited: frozenset[str]


def _vcpus(host: str, controller: str) -> Iterator[tuple[str, pathlib.Path]]:
    """Yield each vCPU's domain and control group."""
    for group in cgroups.path(controller, f'hosts/{host}/machine').glob(
            'qemu-*'):
        if match := _SCOPE.fullmatch(group.name):
            for vcpu in sorted(group.glob('vcpu*')):
                yield match[1], vcpu


def vcpu_limits(host: str) -> dict[str, dict[str, cgroups.Limit]]:
    """Return the vCPUs' limits of each domain on a host.

    A libvirtd that has been restarted leaves the groups of guests behind that
    were there before it, without any process.
    """
    found: dict[str, dict[str, cgroups.Limit]] = {}
    for domain, vcpu in _vcpus(host, 'cpu'):
        with contextlib.suppress(OSError):  # the group has just gone
            if cgroups.threads(vcpu):
                found.setdefault(domain, {})[vcpu.name] = (
                    cgroups.limit_of(vcpu))
    return found


class Observer(threading.Thread):
    """Looks until stopped; ``rows`` maps a host to the seconds before each.

    ``primaries`` are the names of domains that are no secondaries: all
    others count as such.  It also counts the secondaries' units of work.
    """

    def __init__(self, hosts: list[str]) -> None:
        super().__init__(daemon=True, name='observer')
        self.hosts = hosts
        self.primaries: set[str] = set()
        self.rows: dict[str, list[Row]] = {host: [] for host in hosts}
        self.units = secondaries.Units([])
        self._ended = threading.Event()

    def follow(self, uuid: str) -> None:
        """Count the units of a further server."""
        self.units.count = {**self.units.count, uuid: 0}

    def run(self) -> None:
        """Look at all hosts until the end."""
        seen: dict[str, deque[_Counters]] = {
            host: deque(maxlen=LOOKS + 1) for host in self.hosts}
        due = time.monotonic()
        for look in itertools.count():
            for host in self.hosts:
                try:
                    seen[host].append(self._counters(host))
                except OSError:
                    continue    # a guest went while it was looked at
                if len(seen[host]) > LOOKS:
                    self.rows[host].append(
                        self._row(seen[host][0], seen[host][-1]))
            if look % LOOKS == 0:
                self.units.update()
            due = max(due + 1 / LOOKS, time.monotonic())
            if self._ended.wait(max(0.0, due - time.monotonic())):
                return

    def _counters(self, host: str) -> _Counters:
        vcpu_ns = {}
        for domain, vcpu in _vcpus(host, 'cpuacct'):
            if domain not in self.primaries:
                with contextlib.suppress(OSError):
                    vcpu_ns[str(vcpu)] = cgroups.usage_ns(vcpu)
        unlimited = frozenset(
            name for name, limits in vcpu_limits(host).items()
            if name not in self.primaries
            and any(quota is None for quota, _ in limits.values()))
        return _Counters(
            time.monotonic(), cgroups.host_cpus(host), cgroups.usage_ns(
                cgroups.path('cpuacct', f'hosts/{host}')), vcpu_ns, unlimited)

    @staticmethod
    def _row(old: _Counters, new: _Counters) -> Row:
        scale = 100 / ((new.t - old.t) * 1e9 * new.cpus)
        both = old.vcpu_ns.keys() & new.vcpu_ns.keys()
        return Row(
            time.time(), machine.held_up(time.time() - (new.t - old.t)),
            (new.host_ns - old.host_ns) * scale,
            sum(new.vcpu_ns[k] - old.vcpu_ns[k] for k in both) * scale,
            _FLOOR_CPU / new.cpus * len(both) + _SLOP,
            old.unlimited & new.unlimited)

    def since(self, host: str, since: float) -> list[Row]:
        """Return a host's seconds from an instant on."""
        return [row for row in list(self.rows[host]) if row.t >= since]

    def longest_failure(self, since: float,
                        hosts: Collection[str] | None = None
                        ) -> tuple[float, list[Row], str]:
        """Return the longest run of failed seconds, on any host, and it.

        Of the ways to cut time into seconds the one with the shortest such
        run counts.  Of a second only that part counts in which the machine
        ran.
        """
        found = []
        for host in hosts or self.hosts:
            rows = self.since(host, since)
            run, failed = min((_longest_run(rows[first::LOOKS])
                               for first in range(LOOKS)), key=_LENGTH)
            found.append((run, failed, host))
        return max(found, key=_LENGTH)

    def unlimited(self, since: float,
                  hosts: Collection[str] | None = None) -> set[str]:
        """Return the secondaries that ran without a limit for a second."""
        return set().union(*(row.unlimited for host in hosts or self.hosts
                             for row in self.since(host, since)))

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join()


def _longest_run(rows: list[Row]) -> tuple[float, list[Row]]:
    """Return the longest run of failed rows, in seconds, and these."""
    runs = [list(run) for failed, run in itertools.groupby(
        rows, lambda row: row.failed) if failed]
    return max(((sum(max(0.0, 1 - row.held_up) for row in run), run)
                for run in runs), key=_LENGTH, default=(0.0, []))


def mean(rows: list[Row], value: Callable[[Row], float]) -> float:
    """Return the mean of something over some seconds."""
    return sum(map(value, rows)) / len(rows) if rows else 0.0
