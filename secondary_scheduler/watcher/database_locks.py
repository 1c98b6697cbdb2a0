# SPDX-License-Identifier: Apache-2.0

"""Locks of decision engines, as rows of a table in Watcher's database.

Locks of the database itself are not used.  ``GET_LOCK`` is not replicated by
Galera, and a lost connection gives it to another engine without a word to the
former owner.

A row has a term, which each new owner raises, and a counter, which each
renewal raises.  The clocks of two engines are not compared:

* The owner holds the lock for ``HELD_S`` seconds from the begin of its last
  renewal, by its own monotonic clock.
* Another engine takes the lock over when it has seen neither term nor counter
  change for ``SILENT_S`` seconds of its own monotonic clock.

Each change is one statement, which compares the row with what was read.  So
of two engines that take a lock over at the same time, one fails.
"""

from collections.abc import Callable
import dataclasses
import os
import socket
import threading
import time
from typing import Any
import uuid

from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import enginefacade
import sqlalchemy as sa

#: Seconds between two renewals.
RENEWAL_S = 1.0
#: Seconds for which a renewal holds a lock.
HELD_S = 4.0
#: Seconds without a renewal after which another engine takes a lock over.
SILENT_S = 8.0
#: Seconds for which one statement waits for the database.
_TIMEOUT_S = 3

#: Names of locks: of the leader, and for claiming plans.
LEADER, PLANS = 'leader', 'plans'
_FREE = ''
#: Name of the table; Watcher does not know it.
TABLE = 'secondary_locks'
_ROWS = sa.Table(
    TABLE, sa.MetaData(),
    sa.Column('name', sa.String(64), primary_key=True),
    sa.Column('owner', sa.String(255), nullable=False),
    sa.Column('term', sa.BigInteger, nullable=False),
    sa.Column('counter', sa.BigInteger, nullable=False),
    mysql_engine='InnoDB', mysql_charset='utf8mb4')


@enginefacade.transaction_context_provider
class _LockContext:
    """Context object in which enginefacade keeps a transaction."""


@dataclasses.dataclass(frozen=True)
class LockRow:
    """State of a lock.

    ``owner`` is '' if the lock is free.  Each owner has a larger ``term`` than
    those before, and ``counter`` counts the changes.
    """

    name: str
    owner: str
    term: int
    counter: int


def with_timeouts(text: str) -> str:
    """Return a URL of which the driver waits ``_TIMEOUT_S`` at most.

    Otherwise a silent database stops a thread for ever.
    """
    url = sa.make_url(text)
    backend = url.get_backend_name()
    added = {
        'mysql': dict.fromkeys(
            ('connect_timeout', 'read_timeout', 'write_timeout'),
            str(_TIMEOUT_S)),
        'postgresql': {
            'connect_timeout': str(_TIMEOUT_S),
            'tcp_user_timeout': str(_TIMEOUT_S * 1000),
            'options': f'-c statement_timeout={_TIMEOUT_S * 1000}'},
        'sqlite': {'timeout': str(_TIMEOUT_S)},
    }.get(backend, {})
    if url.database in (None, '', ':memory:'):
        added = {}
    return url.update_query_dict(added).render_as_string(hide_password=False)


class LockTable:
    """The table of locks; it is created at the first use.

    All methods raise ``oslo_db.exception.DBError`` if the database fails.
    """

    def __init__(self, url: Callable[[], str]) -> None:
        """Prepare; ``url`` is called at the first use of the database."""
        self._url = url
        self._mutex = threading.Lock()
        self._connected: Any = None

    def _facade(self) -> Any:
        with self._mutex:
            if self._connected is None:
                made = enginefacade.transaction_context()
                # Explicit None keeps oslo.db from reading [database].
                made.configure(
                    connection=with_timeouts(self._url()),
                    slave_connection=None, asyncio_connection=None,
                    asyncio_slave_connection=None, max_pool_size=2,
                    max_overflow=2, max_retries=1,
                    retry_interval=1)
                with made.writer.using(_LockContext()) as session:
                    _ROWS.create(session.connection(), checkfirst=True)
                self._connected = made
            return self._connected

    def read(self, name: str) -> LockRow:
        """Return the state of a lock; a new one is free."""
        facade, columns = self._facade(), _ROWS.c
        with facade.reader.using(_LockContext()) as session:
            found = session.execute(sa.select(
                columns.name, columns.owner, columns.term, columns.counter
            ).where(columns.name == name)).first()
        if found is not None:
            return LockRow(*found)
        with facade.writer.using(_LockContext()) as session:
            session.execute(sa.insert(_ROWS).values(
                name=name, owner=_FREE, term=0, counter=0))
        return LockRow(name, _FREE, 0, 0)

    def take(self, seen: LockRow, owner: str) -> LockRow | None:
        """Take a lock that is still as it was seen, in a new term.

        Terms begin with the seconds since 1970.  So they do not repeat after
        the database was restored or made anew.

        :returns: the state afterwards; None if the lock has changed.
        """
        taken = LockRow(seen.name, owner,
                        max(seen.term + 1, int(time.time())),
                        seen.counter + 1)
        columns = _ROWS.c
        done = self._change(
            (columns.name == seen.name) & (columns.term == seen.term)
            & (columns.counter == seen.counter),
            owner=owner, term=taken.term, counter=taken.counter)
        return taken if done else None

    def renew(self, held: LockRow) -> bool:
        """Renew a lock; return whether its owner is the same as before."""
        return self._change(_is_held(held), counter=_ROWS.c.counter + 1)

    def release(self, held: LockRow) -> None:
        """Free a lock, if its owner is the same as before."""
        self._change(_is_held(held), owner=_FREE,
                     counter=_ROWS.c.counter + 1)

    def _change(self, where: sa.ColumnElement[bool], **values: object) -> bool:
        with self._facade().writer.using(_LockContext()) as session:
            return bool(session.execute(
                sa.update(_ROWS).where(where).values(**values)).rowcount)


def _is_held(row: LockRow) -> sa.ColumnElement[bool]:
    columns = _ROWS.c
    return ((columns.name == row.name) & (columns.owner == row.owner)
            & (columns.term == row.term))


def owner_name() -> str:
    """Return a new name of this process as an owner: host:process:random."""
    return f'{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}'


class DatabaseLock:
    """A lock as one engine sees it.

    :ivar held: whether the lock is held at this moment.
    :ivar term: term in which it was taken last, 0 before.
    """

    def __init__(self, table: LockTable, name: str, owner: str,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._name = name
        self._owner = owner
        self._clock = clock
        self._mutex = threading.Lock()
        self._row: LockRow | None = None
        self._held_until = float('-inf')
        self._seen: LockRow | None = None
        self._seen_at = 0.0
        self.term = 0

    @property
    def held(self) -> bool:
        """Whether the lock is held at this moment."""
        return self._clock() < self._held_until

    def renew(self) -> bool:
        """Renew the lock if it is held; return whether it is.

        :raises oslo_db.exception.DBError: if the database fails.  Then the
            lock is not held until a later call succeeds.
        """
        return self._hold(take=False)

    def acquire(self) -> bool:
        """Renew the lock, or take it if it is free; return whether it is held.

        :raises oslo_db.exception.DBError: as ``renew`` does.
        """
        return self._hold(take=True)

    def _hold(self, take: bool) -> bool:
        with self._mutex:
            began, until = self._clock(), float('-inf')
            try:
                if self._row is not None and not self._table.renew(self._row):
                    self._row = None
                if self._row is None and take:
                    self._row = self._take()
                if self._row is not None:
                    self.term, until = self._row.term, began + HELD_S
            finally:
                self._held_until = until
            return self.held

    def _take(self) -> LockRow | None:
        try:
            seen = self._table.read(self._name)
        except db_exception.DBDuplicateEntry:
            return None     # another engine has created the row meanwhile
        if seen.owner == self._owner:
            return seen     # taken, but the answer was lost
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        if (seen.owner != _FREE
                and self._clock() < self._seen_at + SILENT_S):
            return None
        return self._table.take(seen, self._owner)

    def release(self) -> None:
        """Free the lock, if it is held.

        :raises oslo_db.exception.DBError: if the database fails.  Others take
            the lock over after ``SILENT_S`` then.
        """
        with self._mutex:
            row, self._row = self._row, None
            self._held_until = float('-inf')
            if row is not None:
                self._table.release(row)
