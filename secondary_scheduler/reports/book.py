"""The last report of each host, as long as it is worth believing."""

import collections
from collections.abc import Callable, Iterable
import dataclasses
import threading
import time

from secondary_scheduler.model.reports import HostReport

#: How far (s) an agent's clock may be ahead of ours.
FUTURE_TOLERANCE = 5.0
#: For how many seconds a host whose agent has fallen silent is taken to run
#: what it ran.
LINGER_S = 300.0


@dataclasses.dataclass(frozen=True)
class _Entry:
    report: HostReport
    received: float


class HostBook:
    """Keeps the newest report of each host and forgets it when it is stale.

    :param stale_after: returns the seconds for which a report counts, an
        option that may change while the service runs.
    :param clock: wall clock in seconds since the epoch.

    ``counters`` tells how many reports were accepted and why others were
    not: ``replayed``, ``stale`` or ``future`` (risks.md F21).  All methods
    may be called from any thread.
    """

    def __init__(self, stale_after: Callable[[], float],
                 clock: Callable[[], float] = time.time) -> None:
        self._stale_after = stale_after
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self.counters: collections.Counter[str] = collections.Counter()

    @property
    def stale_after(self) -> float:
        """Seconds for which a report counts."""
        return self._stale_after()

    def accept(self, report: HostReport) -> bool:
        """Take a report if it is newer than what is known of its host."""
        now = self._clock()
        with self._lock:
            verdict = self._judge(report, now)
            self.counters[verdict] += 1
            if verdict != 'accepted':
                return False
            if report.host not in self._entries:
                # A new name is the only thing that makes the book grow.
                self._purge(now)
            self._entries[report.host] = _Entry(report, now)
            return True

    def get(self, host: str) -> HostReport | None:
        """Return the last report of a host, None if there is no fresh one."""
        with self._lock:
            entry = self._entries.get(host)
            if entry is None or not self._fresh(entry, self._clock()):
                return None
            return entry.report

    def hosts(self) -> dict[str, HostReport]:
        """Return the fresh reports by host."""
        now = self._clock()
        with self._lock:
            return {host: entry.report
                    for host, entry in self._entries.items()
                    if self._fresh(entry, now)}

    def running(self, hosts: Iterable[str]) -> set[str]:
        """Return the secondaries (UUIDs) that run on some hosts together.

        One that migrates is on two of them.  An agent may die, but what runs
        beside it does not.
        """
        oldest = self._clock() - LINGER_S
        with self._lock:
            entries = [self._entries[host] for host in hosts
                       if host in self._entries]
        return {one.uuid for entry in entries if entry.received >= oldest
                for one in entry.report.instances}

    def _judge(self, report: HostReport, now: float) -> str:
        if report.time > now + FUTURE_TOLERANCE:
            return 'future'
        if report.time < now - self.stale_after:
            return 'stale'
        last = self._entries.get(report.host)
        if last is None or not self._fresh(last, now):
            return 'accepted'
        if report.incarnation == last.report.incarnation:
            newer = report.seq > last.report.seq
        else:
            # Sequence numbers of two lives of an agent cannot be compared.
            newer = report.time > last.report.time
        return 'accepted' if newer else 'replayed'

    def _fresh(self, entry: _Entry, now: float) -> bool:
        # Both clocks must agree that it is young: the sender's, so that a
        # delayed report is old, and ours, so that one from a clock that is
        # ahead does not live longer.
        oldest = now - self.stale_after
        return (oldest <= entry.report.time
                and oldest <= entry.received <= now + FUTURE_TOLERANCE)

    def _purge(self, now: float) -> None:
        # What is stale needs no memory: its replays are stale as well.
        self._entries = {host: entry for host, entry in self._entries.items()
                         if entry.received >= now - LINGER_S
                         or self._fresh(entry, now)}
