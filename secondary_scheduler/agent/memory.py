"""How much memory secondaries write to, and how fast it is copied.

A live migration copies memory while the guest goes on writing to it, so how
long it takes depends on both (``estimation.precopy``).  QEMU finds the first
by a sample of pages that it looks at twice; libvirt keeps the second of the
migration with which a guest came here.

Starting a measurement is the one thing that needs a connection on which
libvirt takes orders.  It may hang there, so all this has a thread of its own.
"""

from collections.abc import Callable, Iterable
import statistics
import time
import typing

from oslo_log import log as logging

from secondary_scheduler.agent.domains import Secondary, close
from secondary_scheduler.estimation import precopy
from secondary_scheduler.model.cluster import DirtyMemory

LOG = logging.getLogger(__name__)

#: Seconds between QEMU's two looks, and then until libvirt knows the result.
_PERIODS_S = (1, 5)
_MARGIN_S = 0.5

# libvirt's constants, so that tests need no libvirt.
_STATS_DIRTYRATE = 512
_STATS_NOWAIT = 1 << 29     # an operation is going on: go without
_MEASURED = 2
_JOB_COMPLETED_KEPT = 1 | 2
_JOB_MIGRATIONS = (4, 5)    # in and out
_MB = 1 << 20
_LARGEST = 1 << 64

Answer = typing.TypeVar('Answer')


class MemoryMeter:
    """Measures the memory of this host's running secondaries.

    ``connect`` returns a libvirt connection that takes orders;
    ``secondaries`` those that do what they want at the moment.  What was
    measured counts for ``lasts`` seconds.
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
        #: How fast migrations copied lately (MiB/s), None if none was seen.
        self.copied: float | None = None

    def dirty(self, uuid: str) -> DirtyMemory | None:
        """Return how much memory a secondary writes to, None if unknown."""
        known = self._known(uuid)
        return known and known[1]

    def floor_s(self, uuid: str) -> float:
        """Return for how long a migration needs a secondary at the floor.

        That is twice what copying its memory takes, in seconds; 0 if the
        migration ends anyway, or if that is not known.
        """
        known = self._known(uuid)
        if (known is None or self.copied is None
                or precopy.converges(*known, self.copied)):
            return 0.0
        return 2 * known[0] / self.copied

    def _known(self, uuid: str) -> tuple[int, DirtyMemory] | None:
        """Return the memory of a secondary and what it writes to of it."""
        at, memory_mb, dirty = self._measured.get(uuid, (0.0, 0, None))
        if dirty is None or self._clock() - at > self._lasts:
            return None
        return memory_mb, dirty

    def measure(self) -> None:
        """Measure once, which takes some seconds.

        A failure is logged when it is a new one.
        """
        try:
            if self._connection is None:
                self._connection = self._connect()
            sizes = self._sizes(self._connection)
            short, long = (
                self._written(self._connection, sizes, seconds)
                for seconds in _PERIODS_S)
            # Who was held up meanwhile has not shown what it writes.
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
                LOG.warning('It cannot be measured how much memory '
                            'secondaries write to: %s', exc)
            self._failure = str(exc)
            connection, self._connection = self._connection, None
            close(connection)

    def _sizes(self, connection: typing.Any) -> dict[str, int]:
        """Return the memory of each secondary in MiB, by UUID.

        What libvirt keeps of the migrations by which they came is noted.
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
        """Return the MiB that secondaries write to in a time, by UUID."""
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
    """Return what the domains answer; who ends meanwhile says nothing.

    Nor does, within libvirt's 30 s, one that is being migrated.
    """
    answers = {}
    for uuid in uuids:
        try:
            answers[uuid] = ask(connection.lookupByUUIDString(uuid))
        except Exception as exc:
            if connection.isAlive() != 1:   # 0: it is not, -1: who knows
                raise
            LOG.debug('Memory of %s: %s', uuid, exc)
    return answers


def _copied(job: dict[str, typing.Any]) -> list[float]:
    """Return how fast a job that has ended copied memory, if it tells.

    The rate of one that found mostly empty pages is not that of copying.
    """
    copied, total, rate = (job.get(name, 0) for name in (
        'memory_normal_bytes', 'memory_total', 'memory_bps'))
    if (job.get('operation') not in _JOB_MIGRATIONS
            or not all(map(_is_size, (copied, total, rate)))
            or 2 * copied < total):
        return []
    return [rate / _MB] if rate else []


def _is_size(value: object) -> typing.TypeGuard[float]:
    """Tell a number that libvirt can have counted from what is none."""
    return type(value) in (int, float) and 0 <= value < _LARGEST
