# SPDX-License-Identifier: Apache-2.0

"""Leader election among decision engines, and the lock for claiming plans.

Both are locks in Watcher's database (``database_locks``).  Watcher's own
election (ServiceMonitoringBase) is not used: its heartbeats of 60 s are judged
after 90 s.  After a crash there would be no leader for a minute, and two
engines may both believe to be the leader.

Each leadership has a term.  The actions that a leader orders carry it, and
begin only while it is the present one.  A leader that was stopped for a
while, or cut off, so has no effect after another one has taken over.
"""

from collections.abc import Callable, Iterator
import contextlib
import threading
import time

from oslo_log import log

from secondary_scheduler.watcher import per_process
from secondary_scheduler.watcher.database_locks import (
    LEADER,
    PLANS,
    RENEWAL_S,
    DatabaseLock,
    LockRow,
    LockTable,
    owner_name,
)
from secondary_scheduler.watcher.settings import CONF

LOG = log.getLogger(__name__)

#: Seconds to wait for the lock for claiming plans.
_CLAIM_S = 10.0
#: Seconds between two attempts to acquire the lock for claiming plans.
_RETRY_S = 0.1


class Coordination:
    """Locks of this process that all decision engines share."""

    def __init__(self, table: LockTable,
                 clock: Callable[[], float] = time.monotonic) -> None:
        owner = owner_name()
        self._table = table
        self._leader = DatabaseLock(table, LEADER, owner, clock)
        self._plans = DatabaseLock(table, PLANS, owner, clock)
        self._claim = threading.Lock()
        self._claimed = False
        self._led = False
        self._trouble = ''

    def start(self) -> None:
        """Start the thread that renews the locks."""
        threading.Thread(target=self._run, daemon=True,
                         name='secondary-leader').start()

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            self.renew()
            time.sleep(max(0.1, RENEWAL_S - (time.monotonic() - began)))

    def renew(self) -> None:
        """Renew the locks that are held; take a free leadership.

        Without the database there is no leader.
        """
        trouble = ''
        try:
            self._leader.acquire()
            if self._claimed:
                self._plans.renew()
        except Exception as exc:    # drivers raise more than DBError
            trouble = str(exc).partition('\n')[0]
            if trouble != self._trouble:
                LOG.warning('Leadership cannot be renewed: %s', trouble)
        self._trouble = trouble
        leads = self._leader.held
        if leads and not self._led:
            LOG.info('This decision engine leads for secondaries, in term '
                     '%d.', self._leader.term)
        elif self._led and not leads:
            LOG.warning('Leadership for secondaries was lost.')
        self._led = leads

    def am_i_leader(self) -> bool:
        """Return whether this process leads, by its last renewal."""
        return self._leader.held

    @property
    def term(self) -> int:
        """Term of the last leadership of this process, 0 if there was none."""
        return self._leader.term

    def read_leader(self) -> LockRow:
        """Return the leadership as the database has it.

        :raises oslo_db.exception.DBError: if the database fails.
        """
        return self._table.read(LEADER)

    def confirm_term(self, term: int) -> None:
        """Check that this process leads in a term at this moment.

        :raises RuntimeError: if it does not.
        :raises oslo_db.exception.DBError: if the database fails.
        """
        if not self._leader.renew() or self._leader.term != term:
            raise RuntimeError('Another decision engine leads')

    @contextlib.contextmanager
    def claiming(self, timeout: float | None = None
                 ) -> Iterator[Callable[[], None]]:
        """Hold the lock under which plans are claimed.

        :returns: a function that raises ``RuntimeError`` if the lock was
            lost.  It is called before what was claimed takes effect.
        :raises RuntimeError: if the lock is not acquired within ``timeout``
            seconds (default: ``_CLAIM_S``).
        """
        timeout = _CLAIM_S if timeout is None else timeout
        until = time.monotonic() + timeout
        if not self._claim.acquire(timeout=timeout):
            raise RuntimeError('The lock for claiming plans is taken')
        try:
            self._await_plans(until)
            yield self._check_plans
        finally:
            self._claimed = False
            try:
                self._plans.release()
            except Exception as exc:
                LOG.warning('The lock for claiming plans is not released: %s',
                            exc)
            self._claim.release()

    def _await_plans(self, until: float) -> None:
        """Acquire the lock; retry after errors of the database, too.

        Galera answers two engines that take it at once with a deadlock.
        """
        while True:
            try:
                if self._plans.acquire():
                    break
                why = 'The lock for claiming plans is taken'
            except Exception as exc:    # drivers raise more than DBError
                why = f'No lock for claiming plans: {exc}'
            if time.monotonic() >= until:
                raise RuntimeError(why)
            time.sleep(_RETRY_S)
        self._claimed = True

    def _check_plans(self) -> None:
        try:
            kept = self._plans.renew()
        except Exception as exc:
            raise RuntimeError(f'No lock for claiming plans: {exc}') from exc
        if not kept:
            raise RuntimeError('The lock for claiming plans was lost')

    def stop(self) -> None:
        """Release the leadership, so that another engine takes it at once."""
        with contextlib.suppress(Exception):
            self._leader.release()


#: The locks of this process.
shared = per_process.PerProcess(
    lambda: Coordination(LockTable(lambda: CONF.database.connection)))
