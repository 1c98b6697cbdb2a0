# SPDX-License-Identifier: Apache-2.0

"""Leader election among decision engines, and the lock for claiming plans.

Both are tooz locks.  Watcher's own election (ServiceMonitoringBase) is not
used: its heartbeats of 60 s are judged after 90 s.  After a crash there would
be no leader for a minute, and two engines may both believe to be the leader.
"""

from collections.abc import Iterator
import contextlib
import os
import socket
import threading
from typing import Any
import uuid

from oslo_log import log
from tooz import coordination

from secondary_scheduler.watcher import per_process
from secondary_scheduler.watcher.settings import CONF

LOG = log.getLogger(__name__)

LEADER = b'secondary-leader'
PLANS = b'secondary-plans'


class Coordination:
    """Client of the coordination service.

    Only ``claiming`` raises exceptions.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._mutex = threading.Lock()
        self._coordinator: Any = None
        self._leading: Any = None

    def _started(self) -> Any:
        if self._coordinator is None:
            member = f'{socket.gethostname()}-{os.getpid()}-{uuid.uuid4()}'
            coordinator = coordination.get_coordinator(
                self._url, member.encode())
            coordinator.start(start_heart=True)
            self._coordinator = coordinator
        return self._coordinator

    def _forget(self) -> None:
        """Drop a failed connection; the next use opens another one."""
        coordinator, self._coordinator = self._coordinator, None
        self._leading = None
        if coordinator is not None:
            with contextlib.suppress(Exception):
                coordinator.stop()

    def am_i_leader(self) -> bool:
        """Return whether this process leads; acquire a free leadership.

        Without the coordination service there is no leader.
        """
        with self._mutex:
            try:
                if self._leading is None:
                    lock = self._started().get_lock(LEADER)
                    if lock.acquire(blocking=False):
                        self._leading = lock
                        LOG.info('This decision engine leads for '
                                 'secondaries.')
                elif not self._still_owner(self._leading):
                    LOG.warning('Leadership for secondaries was lost.')
                    self._leading = None
            except Exception as exc:   # drivers raise more than ToozError
                LOG.warning('Coordination failed, not leading: %s', exc)
                self._forget()
            return self._leading is not None

    @staticmethod
    def _still_owner(lock: Any) -> bool:
        if not lock.acquired:
            return False
        try:
            return bool(lock.is_still_owner())
        except NotImplementedError:
            return True     # not implemented by this tooz driver

    @contextlib.contextmanager
    def claiming(self, timeout: int = 10) -> Iterator[None]:
        """Hold the lock under which plans are claimed.

        :raises RuntimeError: if it is not acquired within ``timeout`` s.
        """
        try:
            with self._mutex:
                lock = self._started().get_lock(PLANS)
            taken = lock.acquire(blocking=True, timeout=timeout)
        except Exception as exc:
            with self._mutex:
                self._forget()
            raise RuntimeError(f'No lock for claiming plans: {exc}') from exc
        if not taken:
            raise RuntimeError('The lock for claiming plans is taken')
        try:
            yield
        finally:
            lock.release()

    def stop(self) -> None:
        """Release leadership and disconnect."""
        with self._mutex:
            if self._leading is not None:
                with contextlib.suppress(Exception):
                    self._leading.release()
            self._forget()


#: The connection of this process to the coordination service.
shared = per_process.PerProcess(
    lambda: Coordination(CONF.secondary_watcher.coordination_url))
