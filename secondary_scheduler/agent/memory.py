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

from secondary_scheduler.agent.domains import Secondary
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


class MemoryMeter:
    """Measures the memory of this host's running secondaries.

    ``connect`` returns a libvirt connection that takes orders;
    ``secondaries`` those that may be asked now.
    """

    def __init__(self, connect: Callable[[], typing.Any],
                 secondaries: Callable[[], Iterable[Secondary]],
                 wait: Callable[[float], object] = time.sleep) -> None:
        self._connect = connect
        self._secondaries = secondaries
        self._wait = wait
        self._connection: typing.Any = None
        self._dirty: dict[str, DirtyMemory] = {}
        self._failure = ''
        #: How fast migrations copied lately (MiB/s), None if none was seen.
        self.copied: float | None = None

    def dirty(self, uuid: str) -> DirtyMemory | None:
        """Return how much memory a secondary writes to, None if unknown."""
        return self._dirty.get(uuid)

    def measure(self) -> None:
        """Measure once, which takes some seconds.

        A failure is logged when it is a new one; nothing is known then.
        """
        try:
            if self._connection is None:
                self._connection = self._connect()
                self._connection.setKeepAlive(5, 3)
            short, long = (self._written(self._connection, seconds)
                           for seconds in _PERIODS_S)
            self._dirty = {uuid: DirtyMemory(short[uuid], long[uuid])
                           for uuid in short.keys() & long.keys()}
            self._failure = ''
        except Exception as exc:
            self._dirty = {}
            if self._failure != str(exc):
                LOG.warning('It cannot be measured how much memory '
                            'secondaries write to: %s', exc)
            self._failure = str(exc)
            self._drop_connection()

    def _written(self, connection: typing.Any, seconds: int
                 ) -> dict[str, float]:
        """Return the MiB that guests write to in so many seconds, by UUID."""
        begun, copied, failure = [], [], None
        for guest in self._secondaries():
            try:
                domain = connection.lookupByUUIDString(guest.uuid)
                copied += _copied(domain.jobStats(_JOB_COMPLETED_KEPT))
                domain.startDirtyRateCalc(seconds, 0)
            except Exception as exc:    # it ends, or is operated on
                LOG.debug('Memory of %s: %s', guest.uuid, exc)
                failure = exc
            else:
                begun.append(domain)
        if copied:
            self.copied = statistics.median(copied)
        if not begun:
            if failure:
                raise failure
            return {}
        self._wait(seconds + _MARGIN_S)
        return {domain.UUIDString():
                float(seconds * stats['dirtyrate.megabytes_per_second'])
                for domain, stats in connection.domainListGetStats(
                    begun, _STATS_DIRTYRATE, _STATS_NOWAIT)
                if stats.get('dirtyrate.calc_status') == _MEASURED}

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                connection.close()
        except Exception as exc:
            LOG.debug('Closing the connection to libvirt: %s', exc)


def _copied(job: dict[str, typing.Any]) -> list[float]:
    """Return how fast a job that has ended copied memory, if it did."""
    rate = job.get('memory_bps', 0) / _MB
    return [rate] if rate and job.get('operation') in _JOB_MIGRATIONS else []
