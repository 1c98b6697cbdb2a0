"""What the kernel says of the hosts, without a word of our agents.

Each second: how busy each host is, what the vCPUs of secondaries took of it,
and what limits these have.  From that follows a check of the policy that is
independent of the agents' own.
"""

from collections.abc import Callable, Collection, Iterator
import contextlib
import dataclasses
import pathlib
import re
import threading
import time

import cgroups
import layout
import secondaries
from tests.box import machine

#: Percent of a host; two observers that sample at different instants may
#: differ by some percent in one second.
THRESHOLD = layout.THRESHOLD + 5

_SCOPE = re.compile(r'qemu-\d+-(.+)\.libvirt-qemu')
#: The floor: 1 ms in 100 ms for each vCPU, in percent of a host; and what
#: the ends of an interval of a second may add to it.
_FLOOR = 1.0 / layout.HOST_CPUS
_SLOP = 1.5


@dataclasses.dataclass(frozen=True)
class Row:
    """One host in one second, in percent of the host.

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
    """Return the vCPUs' limits of each domain on a host."""
    found: dict[str, dict[str, cgroups.Limit]] = {}
    for domain, vcpu in _vcpus(host, 'cpu'):
        with contextlib.suppress(OSError):  # the group has just gone
            found.setdefault(domain, {})[vcpu.name] = cgroups.limit_of(vcpu)
    return found


class Observer(threading.Thread):
    """Samples until stopped; ``rows`` maps a host to its seconds.

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
        """Sample each second."""
        last = {host: self._counters(host) for host in self.hosts}
        due = time.monotonic()
        while True:
            due = max(due + 1.0, time.monotonic())
            if self._ended.wait(max(0.0, due - time.monotonic())):
                return
            for host in self.hosts:
                try:
                    now = self._counters(host)
                except OSError:
                    continue    # a guest went while it was looked at
                self.rows[host].append(self._row(last[host], now))
                last[host] = now
            self.units.update()

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
        return _Counters(time.monotonic(), cgroups.usage_ns(
            cgroups.path('cpuacct', f'hosts/{host}')), vcpu_ns, unlimited)

    @staticmethod
    def _row(old: _Counters, new: _Counters) -> Row:
        scale = 100 / ((new.t - old.t) * 1e9 * layout.HOST_CPUS)
        both = old.vcpu_ns.keys() & new.vcpu_ns.keys()
        return Row(
            time.time(), machine.held_up(time.time() - (new.t - old.t)),
            (new.host_ns - old.host_ns) * scale,
            sum(new.vcpu_ns[k] - old.vcpu_ns[k] for k in both) * scale,
            _FLOOR * len(both) + _SLOP, old.unlimited & new.unlimited)

    def since(self, host: str, since: float) -> list[Row]:
        """Return a host's seconds from an instant on."""
        return [row for row in list(self.rows[host]) if row.t >= since]

    def longest_failure(self, since: float,
                        hosts: Collection[str] | None = None
                        ) -> tuple[float, str, list[Row]]:
        """Return the longest run of failed seconds, on any host, and it.

        Of a second only that part counts in which the machine ran.
        """
        longest: tuple[float, str, list[Row]] = (0.0, '', [])
        for host in hosts or self.hosts:
            rows: list[Row] = []
            for row in self.since(host, since):
                rows = [*rows, row] if row.failed else []
                run = sum(max(0.0, 1 - one.held_up) for one in rows)
                if run > longest[0]:
                    longest = run, host, rows
        return longest

    def unlimited(self, since: float,
                  hosts: Collection[str] | None = None) -> set[str]:
        """Return the secondaries that ran without a limit for a second."""
        return set().union(*(row.unlimited for host in hosts or self.hosts
                             for row in self.since(host, since)))

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join()


def mean(rows: list[Row], value: Callable[[Row], float]) -> float:
    """Return the mean of something over some seconds."""
    return sum(map(value, rows)) / len(rows) if rows else 0.0
