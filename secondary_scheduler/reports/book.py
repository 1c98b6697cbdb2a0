"""The last report of each host, as long as it is worth believing."""

import collections
from collections.abc import Callable, Iterable
import dataclasses
import math
import threading
import time
import typing

from secondary_scheduler.model.holds import Hold, Holds
from secondary_scheduler.model.reports import HostReport

#: How far (s) an agent's clock may be ahead of ours.
FUTURE_TOLERANCE = 5.0
#: For how many seconds a host whose agent has fallen silent is taken to run
#: what it ran.
LINGER_S = 300.0


Report = typing.TypeVar('Report', HostReport, Holds)


@dataclasses.dataclass(frozen=True)
class _Entry(typing.Generic[Report]):
    report: Report
    received: float

    def fresh(self, now: float, stale_after: float) -> bool:
        # Both clocks must agree that it is young: the sender's, so that a
        # delayed report is old, and ours, so that one from a clock that is
        # ahead does not live longer.
        oldest = now - stale_after
        return (oldest <= self.report.time
                and oldest <= self.received <= now + FUTURE_TOLERANCE)


def _judge(report: Report, last: _Entry[Report] | None, now: float,
           stale_after: float) -> str:
    """Return "accepted", or why a report is not."""
    if report.time > now + FUTURE_TOLERANCE:
        return 'future'
    if report.time < now - stale_after:
        return 'stale'
    if last is None or not last.fresh(now, stale_after):
        return 'accepted'
    if report.incarnation == last.report.incarnation:
        newer = report.seq > last.report.seq
    else:
        # Sequence numbers of two lives of a sender cannot be compared.
        newer = report.time > last.report.time
    return 'accepted' if newer else 'replayed'


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
        self._entries: dict[str, _Entry[HostReport]] = {}
        # When the first report came.
        self._began = math.inf
        self.counters: collections.Counter[str] = collections.Counter()

    @property
    def stale_after(self) -> float:
        """Seconds for which a report counts."""
        return self._stale_after()

    def accept(self, report: HostReport) -> bool:
        """Take a report if it is newer than what is known of its host."""
        now = self._clock()
        with self._lock:
            verdict = _judge(report, self._entries.get(report.host), now,
                             self.stale_after)
            self.counters[verdict] += 1
            if verdict != 'accepted':
                return False
            if report.host not in self._entries:
                # A new name is the only thing that makes the book grow.
                self._purge(now)
            self._entries[report.host] = _Entry(report, now)
            self._began = min(self._began, now)
            return True

    def get(self, host: str) -> HostReport | None:
        """Return the last report of a host, None if there is no fresh one."""
        with self._lock:
            entry = self._entries.get(host)
            if entry is None or not entry.fresh(self._clock(),
                                                self.stale_after):
                return None
            return entry.report

    def hosts(self) -> dict[str, HostReport]:
        """Return the fresh reports by host."""
        now = self._clock()
        with self._lock:
            return {host: entry.report
                    for host, entry in self._entries.items()
                    if entry.fresh(now, self.stale_after)}

    def knows(self, hosts: Iterable[str]) -> bool:
        """Tell whether each of some hosts that has an agent has reported.

        A process that has just begun to listen has not heard all of them.
        """
        with self._lock:
            return (self._clock() > self._began + self.stale_after
                    or all(host in self._entries for host in hosts))

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

    def _purge(self, now: float) -> None:
        # What is stale needs no memory: its replays are stale as well.
        self._entries = {host: entry for host, entry in self._entries.items()
                         if entry.received >= now - LINGER_S
                         or entry.fresh(now, self.stale_after)}


class HoldBook:
    """Keeps what is held for leases, and forgets it when it is stale.

    Parameters as of ``HostBook``; all methods may be called from any thread.
    """

    def __init__(self, stale_after: Callable[[], float],
                 clock: Callable[[], float] = time.time) -> None:
        self._stale_after = stale_after
        self._clock = clock
        self._lock = threading.Lock()
        self._entry: _Entry[Holds] | None = None

    def accept(self, holds: Holds) -> bool:
        """Take what is held if that is newer than what is known."""
        now = self._clock()
        with self._lock:
            if _judge(holds, self._entry, now,
                      self._stale_after()) != 'accepted':
                return False
            self._entry = _Entry(holds, now)
            return True

    def get(self, host: str) -> Hold | None:
        """Return what is held of a host; None if nothing is known to be."""
        entry = self._entry
        if entry is None or not entry.fresh(self._clock(),
                                            self._stale_after()):
            return None
        return entry.report.hosts.get(host)
