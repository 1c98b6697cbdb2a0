# SPDX-License-Identifier: Apache-2.0

"""Connections to the database of leases."""

from collections.abc import Iterator
import contextlib
import threading
import typing

from oslo_config import cfg
from oslo_db import api
from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import enginefacade
import sqlalchemy as sa
from sqlalchemy import orm

#: Base class of all errors of the database.
DatabaseError = db_exception.DBError

#: Seconds for which a writer of SQLite waits for another one.
_BUSY_TIMEOUT_S = 30
#: Seconds in which a server of a database has to accept a connection.
_CONNECT_TIMEOUT_S = 5


@enginefacade.transaction_context_provider
class _Context:
    """Context object in which enginefacade keeps a transaction."""


def _locked(exc: Exception) -> bool:
    return (isinstance(exc, db_exception.DBError)
            and 'database is locked' in str(exc))


#: Retries an idempotent operation after a deadlock or a lost connection.
retried = api.wrap_db_retry(
    retry_interval=0.1, max_retries=10, max_retry_interval=2,
    retry_on_deadlock=True, retry_on_disconnect=True,
    exception_checker=_locked, jitter=True)


def _url(text: str) -> str:
    """Add a timeout to a URL, and utf8mb4 for MariaDB, unless it has them.

    oslo.db's default character set is incomplete.  Without a timeout a
    machine that does not answer holds a request for minutes.
    """
    url = sa.make_url(text)
    for name, value, backends in (
            ('charset', 'utf8mb4', ('mysql',)),
            ('connect_timeout', str(_CONNECT_TIMEOUT_S),
             ('mysql', 'postgresql'))):
        if url.get_backend_name() in backends and name not in url.query:
            url = url.update_query_dict({name: value})
    return url.render_as_string(hide_password=False)


def _tune(engine: sa.Engine) -> None:
    """Hide values from errors and logs; set SQLite's locking.

    Values may be secrets (user data). With the settings, readers of SQLite do
    not wait for a writer, and writers wait for each other. oslo.db opens a
    connection to a file for each transaction. One connection stays open, so
    that SQLite does not checkpoint its log whenever another one is closed.
    """
    engine.hide_parameters = True
    if engine.dialect.name != 'sqlite' or not isinstance(
            engine.pool, sa.NullPool):
        return

    @sa.event.listens_for(engine, 'connect')
    def connect(connection: typing.Any, record: object) -> None:
        connection.execute(f'PRAGMA busy_timeout = {_BUSY_TIMEOUT_S * 1000}')

    kept = engine.raw_connection()
    kept.cursor().execute('PRAGMA journal_mode = WAL')
    sa.event.listen(engine, 'engine_disposed', lambda _: kept.close())


class Database:
    """The database in [secondary_lease_api] database_url.

    It is connected at the first use, so an object that was created before a
    fork can be used after it.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        options = conf.secondary_lease_api
        self._facade = enginefacade.transaction_context()
        # Explicit None keeps oslo.db from reading [database], which is
        # Watcher's in its processes. ``retried`` waits for an unavailable
        # database, so the first connection does not.
        self._facade.configure(
            connection=_url(options.database_url), slave_connection=None,
            asyncio_connection=None, asyncio_slave_connection=None,
            max_pool_size=options.database_pool_size,
            max_overflow=9 * options.database_pool_size,
            sqlite_fk=True, max_retries=1, retry_interval=1)
        self._facade.append_on_engine_create(_tune)
        self._writer_lock: contextlib.AbstractContextManager[object] = (
            threading.Lock() if options.database_url.startswith('sqlite')
            else contextlib.nullcontext())

    @contextlib.contextmanager
    def writer(self) -> Iterator[orm.Session]:
        """Begin a transaction that writes.

        Its first statement has to be a write: then SQLite waits for other
        writers, instead of an error at a later write. A lock admits one
        writer of the process at a time: SQLite's waiting is polling without
        an order, so one of many writers might wait very long.
        """
        with self._writer_lock, self._facade.writer.using(
                _Context()) as session:
            yield session

    def reader(self) -> contextlib.AbstractContextManager[orm.Session]:
        """Return a transaction that only reads."""
        return self._facade.reader.using(_Context())

    @property
    def engine(self) -> sa.Engine:
        """SQLAlchemy's engine, for migrations."""
        return self._facade.writer.get_engine()
