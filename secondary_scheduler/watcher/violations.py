# SPDX-License-Identifier: Apache-2.0

"""Collect window: merges violations of hosts into batches.

Pure bookkeeping: the caller passes the time (seconds of one clock), and
decides whether an audit may be created for a batch.
"""

from collections.abc import Collection
import dataclasses
import threading
import uuid

from secondary_scheduler.model import reports


@dataclasses.dataclass(frozen=True)
class Batch:
    """Violated hosts that one audit handles.

    ``reported`` is the time of the first report, by its agent's clock (s
    since the epoch).
    """

    id: str
    hosts: tuple[str, ...]
    reported: float


@dataclasses.dataclass
class _Pending:
    since: float
    reported: float


class Window:
    """Violations without an audit yet (Boettger 2012, section 4.4.5.1).

    * The first violation after a quiet time is due at once.
    * Later violations are due ``length`` seconds after the first of them.
    * A host that recovers before that is dropped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[str, _Pending] = {}
        self._floored: dict[str, dict[str, float]] = {}
        self._began: dict[str, float] = {}
        self._last_batch: float | None = None

    def note(self, report: reports.HostReport, now: float,
             together: bool = False) -> None:
        """Take in a report: violations, and instances at the floor.

        :param together: whether the host stands for a violated policy of an
            aggregate, which no single report shows.
        """
        with self._lock:
            before = self._floored.get(report.host, {})
            floored = {i.uuid: before.get(i.uuid, now)
                       for i in report.instances if i.floored}
            if floored:
                self._floored[report.host] = floored
            else:
                self._floored.pop(report.host, None)
            if (report.violated or together) and report.instances:
                self._began.setdefault(report.host, now)
                self._pending.setdefault(
                    report.host, _Pending(now, report.time))
            else:
                self._began.pop(report.host, None)
                if not floored:
                    self._pending.pop(report.host, None)

    def began(self, host: str) -> float:
        """Return the begin of a host's violation, minus infinity if none.

        A host that recovered in between has a new violation.
        """
        with self._lock:
            return self._began.get(host, float('-inf'))

    def relief(self, bound: float, now: float) -> dict[str, float]:
        """Return hosts with an instance at the floor for longer than a bound.

        :returns: times since when, by host.
        """
        with self._lock:
            return {host: min(floored.values())
                    for host, floored in self._floored.items()
                    if now - min(floored.values()) > bound}

    def note_relief(self, host: str, now: float, wall: float) -> None:
        """Treat a host as violated since its instances stay at the floor."""
        with self._lock:
            self._pending.setdefault(host, _Pending(now, wall))

    def forget(self, known: Collection[str]) -> None:
        """Drop hosts with silent agents: their state is unknown."""
        with self._lock:
            for host in set(self._pending) - set(known):
                del self._pending[host]
            for host in set(self._floored) - set(known):
                del self._floored[host]
            for host in set(self._began) - set(known):
                del self._began[host]

    @property
    def waiting(self) -> bool:
        """Whether there are violations without an audit."""
        return bool(self._pending)

    def longest_wait(self, now: float) -> float | None:
        """Return the seconds for which a violation has had no audit.

        :returns: those of the first one; None if there is no violation.
        """
        with self._lock:
            return max((now - one.since for one in self._pending.values()),
                       default=None)

    def due(self, length: float, now: float) -> tuple[str, ...]:
        """Return all violated hosts if the window has ended, else none."""
        with self._lock:
            if not self._pending:
                return ()
            opened = min(p.since for p in self._pending.values())
            quiet = (self._last_batch is None
                     or opened - self._last_batch > length)
            if not quiet and now - opened < length:
                return ()
            return tuple(sorted(self._pending))

    def take(self, hosts: Collection[str], now: float) -> Batch:
        """Return a batch of hosts, which are no longer pending."""
        with self._lock:
            reported = [self._pending.pop(host).reported
                        for host in hosts if host in self._pending]
            self._last_batch = now
        return Batch(str(uuid.uuid4()), tuple(sorted(hosts)),
                     min(reported, default=0.0))
