# SPDX-License-Identifier: Apache-2.0

"""Measurement of memory that secondaries write to, and of its copying speed.

A live migration copies memory while the guest goes on writing to it.  Its
duration depends on both rates (``estimation.precopy``).  QEMU measures the
dirty rate by a sample of pages that it reads twice.  libvirt keeps the copying
rate of the migration that brought a guest to this host.

Starting a measurement needs a writable connection to libvirt.  As the call may
hang, the meter runs on a thread of its own.
"""

from collections.abc import Callable, Iterable
import statistics
import time
import typing

from oslo_log import log as logging

from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.libvirt_connection import close_connection
from secondary_scheduler.estimation import precopy
from secondary_scheduler.model.cluster import DirtyMemory

LOG = logging.getLogger(__name__)

#: Seconds between QEMU's two readings of a page, one measurement for each.
_PERIODS_S = (1, 5)
#: Seconds after a measurement until libvirt has its result.
_MARGIN_S = 0.5

# libvirt's constants, so that tests need no libvirt.
_STATS_DIRTYRATE = 512
_STATS_NOWAIT = 1 << 29     # leave out domains with an operation going on
_MEASURED = 2
_JOB_COMPLETED_KEPT = 1 | 2
_JOB_MIGRATIONS = (4, 5)    # in and out
_MB = 1 << 20
_LARGEST = 1 << 64

Answer = typing.TypeVar('Answer')


class MemoryMeter:
    """Measures the memory of this host's running secondaries.

    :param connect: returns a writable libvirt connection.
    :param secondaries: returns the secondaries that nothing slows down now.
    :param lasts: seconds for which a measurement is valid.
    """

    def __init__(self, connect: Callable[[], typing.Any],
                 secondaries: Callable[[], Iterable[Secondary]], lasts: float,
                 wait: Callable[[float], object] = time.sleep,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._secondaries = secondaries
        self._lasts = lasts
        self._wait = wait
        self._clock = clock
        self._connection: typing.Any = None
        self._measured: dict[str, tuple[float, int, DirtyMemory]] = {}
        self._failure = ''
        #: Median rate of copying in migrations to here (MiB/s), None if
        #: unknown.
        self.copied: float | None = None

    def dirty(self, uuid: str) -> DirtyMemory | None:
        """Return the memory that a secondary writes to, None if unknown."""
        known = self._known(uuid)
        return known and known[1]

    def floor_s(self, uuid: str) -> float:
        """Return the seconds that a secondary must be at the floor to migrate.

        That is twice the time that copying its memory takes.  It is 0 if the
        migration converges without the floor, or if that is unknown.
        """
        known = self._known(uuid)
        if (known is None or self.copied is None
                or precopy.converges(*known, self.copied)):
            return 0.0
        return 2 * known[0] / self.copied

    def _known(self, uuid: str) -> tuple[int, DirtyMemory] | None:
        """Return a secondary's memory (MiB) and the part it writes to."""
        at, memory_mb, dirty = self._measured.get(uuid, (0.0, 0, None))
        if dirty is None or self._clock() - at > self._lasts:
            return None
        return memory_mb, dirty

    def measure(self) -> None:
        """Measure all secondaries once, which takes some seconds.

        A failure is logged, unless it is the same as the last one.
        """
        try:
            if self._connection is None:
                self._connection = self._connect()
            sizes = self._sizes(self._connection)
            short, long = (
                self._written(self._connection, sizes, seconds)
                for seconds in _PERIODS_S)
            # A guest that was throttled meanwhile has written too little.
            free = {guest.uuid for guest in self._secondaries()}
            now = self._clock()
            self._measured = {
                uuid: known for uuid, known in self._measured.items()
                if now - known[0] <= self._lasts} | {
                uuid: (now, sizes[uuid], DirtyMemory(short[uuid], long[uuid]))
                for uuid in short.keys() & long.keys() & free}
            self._failure = ''
        except Exception as exc:
            if self._failure != str(exc):
                LOG.warning('Cannot measure the memory that secondaries '
                            'write to: %s', exc)
            self._failure = str(exc)
            connection, self._connection = self._connection, None
            close_connection(connection)

    def _sizes(self, connection: typing.Any) -> dict[str, int]:
        """Return the memory of each secondary in MiB, by UUID.

        It updates ``copied`` from the migrations that libvirt remembers.
        """
        found = _ask_each(
            connection, [guest.uuid for guest in self._secondaries()],
            lambda domain: (domain.maxMemory() >> 10,
                            domain.jobStats(_JOB_COMPLETED_KEPT)))
        copied = [rate for _size, job in found.values()
                  for rate in _copied(job)]
        if copied:
            self.copied = statistics.median(copied)
        return {uuid: size for uuid, (size, _job) in found.items()
                if size > 0}

    def _written(self, connection: typing.Any, uuids: Iterable[str],
                 seconds: int) -> dict[str, float]:
        """Return the MiB that secondaries write to in ``seconds``, by UUID."""
        def begin(domain: typing.Any) -> typing.Any:
            domain.startDirtyRateCalc(seconds, 0)
            return domain

        begun = list(_ask_each(connection, uuids, begin).values())
        if not begun:
            return {}
        self._wait(seconds + _MARGIN_S)
        rates = {domain.UUIDString():
                 stats.get('dirtyrate.megabytes_per_second')
                 for domain, stats in connection.domainListGetStats(
                     begun, _STATS_DIRTYRATE, _STATS_NOWAIT)
                 if stats.get('dirtyrate.calc_status') == _MEASURED}
        return {uuid: float(seconds * rate) for uuid, rate in rates.items()
                if _is_size(rate)}


def _ask_each(connection: typing.Any, uuids: Iterable[str],
              ask: Callable[[typing.Any], Answer]) -> dict[str, Answer]:
    """Return the answer of each domain, by UUID.

    Domains that have ended are left out.  So are domains in a migration, for
    which the call fails after libvirt's 30 s.
    """
    answers = {}
    for uuid in uuids:
        try:
            answers[uuid] = ask(connection.lookupByUUIDString(uuid))
        except Exception as exc:
            if connection.isAlive() != 1:   # 0: dead, -1: unknown
                raise
            LOG.debug('Cannot query the memory of %s: %s', uuid, exc)
    return answers


def _copied(job: dict[str, typing.Any]) -> list[float]:
    """Return the copying rate of a completed migration (MiB/s), if known.

    A migration of mostly empty pages is left out: its rate says nothing about
    copying.
    """
    copied, total, rate = (job.get(name, 0) for name in (
        'memory_normal_bytes', 'memory_total', 'memory_bps'))
    if (job.get('operation') not in _JOB_MIGRATIONS
            or not all(map(_is_size, (copied, total, rate)))
            or 2 * copied < total):
        return []
    return [rate / _MB] if rate else []


def _is_size(value: object) -> typing.TypeGuard[float]:
    """Return whether libvirt can have counted this value."""
    return (isinstance(value, int | float) and type(value) in (int, float)
            and 0 <= value < _LARGEST)
