# SPDX-License-Identifier: Apache-2.0

"""Latest report of each host, and latest holds, while they are fresh."""

import collections
from collections.abc import Callable, Iterable
import dataclasses
import math
import threading
import time
import typing

from secondary_scheduler.model.holds import Hold, Holds
from secondary_scheduler.model.reports import HostReport

#: Largest lead (s) of a sender's clock over ours.
FUTURE_TOLERANCE = 5.0
#: Seconds for which the instances of a silent agent count as running.
LINGER_S = 300.0


Report = typing.TypeVar('Report', HostReport, Holds)


@dataclasses.dataclass(frozen=True)
class _Entry(typing.Generic[Report]):
    report: Report
    received: float

    def fresh(self, now: float, stale_after: float) -> bool:
        # Fresh by both clocks: by the sender's, so that a delayed report is
        # stale, and by ours, so that a clock that is ahead does not prolong a
        # report.
        oldest = now - stale_after
        return (oldest <= self.report.time
                and oldest <= self.received <= now + FUTURE_TOLERANCE)


def _judge(report: Report, last: _Entry[Report] | None, now: float,
           stale_after: float) -> str:
    """Return "accepted", or the reason of a rejection."""
    if report.time > now + FUTURE_TOLERANCE:
        return 'future'
    if report.time < now - stale_after:
        return 'stale'
    if last is None or not last.fresh(now, stale_after):
        return 'accepted'
    if report.incarnation == last.report.incarnation:
        newer = report.seq > last.report.seq
    else:
        # Sequence numbers start again with each start of a sender.
        newer = report.time > last.report.time
    return 'accepted' if newer else 'replayed'


class HostBook:
    """Keeps the newest report of each host, until it is stale.

    :param stale_after: returns the seconds for which a report counts, an
        option that may change while the service runs.
    :param clock: wall clock in seconds since the epoch.

    ``counters`` has the numbers of ``accepted`` reports, and of rejected ones:
    ``replayed``, ``stale`` and ``future``.  All methods may be called from any
    thread.
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
        """Store a report if it is newer than the last one of its host.

        :returns: whether it was accepted.
        """
        now = self._clock()
        with self._lock:
            verdict = _judge(report, self._entries.get(report.host), now,
                             self.stale_after)
            self.counters[verdict] += 1
            if verdict != 'accepted':
                return False
            if report.host not in self._entries:
                # The book grows only with new names.
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

    def last_received(self, host: str) -> float | None:
        """Return the time of a host's last report, however old it is.

        :returns: seconds since the epoch by our clock; None if there is none.
        """
        with self._lock:
            entry = self._entries.get(host)
            return None if entry is None else entry.received

    def hosts(self) -> dict[str, HostReport]:
        """Return the fresh reports by host."""
        now = self._clock()
        with self._lock:
            return {host: entry.report
                    for host, entry in self._entries.items()
                    if entry.fresh(now, self.stale_after)}

    def knows(self, hosts: Iterable[str]) -> bool:
        """Return whether all agents on some hosts have had time to report.

        That is the case once each host has reported, or ``stale_after``
        seconds after the first report to this process.
        """
        with self._lock:
            return (self._clock() > self._began + self.stale_after
                    or all(host in self._entries for host in hosts))

    def running(self, hosts: Iterable[str]) -> set[str]:
        """Return the secondaries (UUIDs) that run on some hosts together.

        A migrating instance is reported by two hosts and counts once.  The
        instances of a silent agent count for ``LINGER_S`` seconds, since they
        do not stop with their agent.
        """
        oldest = self._clock() - LINGER_S
        with self._lock:
            entries = [self._entries[host] for host in hosts
                       if host in self._entries]
        return {one.uuid for entry in entries if entry.received >= oldest
                for one in entry.report.instances}

    def _purge(self, now: float) -> None:
        # A stale report is not kept: its replays are stale as well.
        self._entries = {host: entry for host, entry in self._entries.items()
                         if entry.received >= now - LINGER_S
                         or entry.fresh(now, self.stale_after)}


class HoldBook:
    """Keeps the newest holds of leases, until they are stale.

    Parameters as of ``HostBook``; all methods may be called from any thread.
    """

    def __init__(self, stale_after: Callable[[], float],
                 clock: Callable[[], float] = time.time) -> None:
        self._stale_after = stale_after
        self._clock = clock
        self._lock = threading.Lock()
        self._entry: _Entry[Holds] | None = None

    def accept(self, holds: Holds) -> bool:
        """Store holds if they are newer than the last ones.

        :returns: whether they were accepted.
        """
        now = self._clock()
        with self._lock:
            if _judge(holds, self._entry, now,
                      self._stale_after()) != 'accepted':
                return False
            self._entry = _Entry(holds, now)
            return True

    def get(self, host: str) -> Hold | None:
        """Return the hold of a host, None if there is no fresh one."""
        entry = self._entry
        if entry is None or not entry.fresh(self._clock(),
                                            self._stale_after()):
            return None
        return entry.report.hosts.get(host)
