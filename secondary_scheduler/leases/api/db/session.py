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

#: Seconds for which a writer waits for another one, in SQLite.
_PATIENCE_S = 30


@enginefacade.transaction_context_provider
class _Context:
    """What enginefacade keeps a transaction in."""


def _locked(exc: Exception) -> bool:
    return (isinstance(exc, db_exception.DBError)
            and 'database is locked' in str(exc))


#: Does an operation again that met a deadlock or lost its connection; it must
#: bear being done twice.
retried = api.wrap_db_retry(
    retry_interval=0.1, max_retries=10, max_retry_interval=2,
    retry_on_deadlock=True, retry_on_disconnect=True,
    exception_checker=_locked, jitter=True)


def _url(text: str) -> str:
    """Return the URL with all of Unicode for MariaDB, oslo.db's is less."""
    url = sa.make_url(text)
    if url.get_backend_name() == 'mysql' and 'charset' not in url.query:
        url = url.update_query_dict({'charset': 'utf8mb4'})
    return url.render_as_string(hide_password=False)


def _tune(engine: sa.Engine) -> None:
    """Hide values from errors and logs; set SQLite's locking.

    Values may be secrets (user data).  Readers of SQLite are not to wait for
    a writer, and writers are to be patient.  oslo.db opens a connection to a
    file for each transaction.  One that stays open keeps SQLite from tidying
    its log up whenever one of them is closed.
    """
    engine.hide_parameters = True
    if engine.dialect.name != 'sqlite' or not isinstance(
            engine.pool, sa.NullPool):
        return

    @sa.event.listens_for(engine, 'connect')
    def connect(connection: typing.Any, record: object) -> None:
        connection.execute(f'PRAGMA busy_timeout = {_PATIENCE_S * 1000}')

    kept = engine.raw_connection()
    kept.cursor().execute('PRAGMA journal_mode = WAL')
    sa.event.listen(engine, 'engine_disposed', lambda _: kept.close())


class Database:
    """The database that [secondary_lease_api] names.

    Nothing is connected before the first use, so that an object made before
    a fork serves after it.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        options = conf.secondary_lease_api
        self._facade = enginefacade.transaction_context()
        # None is said where oslo.db would look into [database], which is
        # Watcher's in its processes.  A database that is away is for
        # ``retried`` to wait for, not for the first connection.
        self._facade.configure(
            connection=_url(options.database_url), slave_connection=None,
            asyncio_connection=None, asyncio_slave_connection=None,
            max_pool_size=options.database_pool_size,
            max_overflow=9 * options.database_pool_size,
            sqlite_fk=True, max_retries=1, retry_interval=1)
        self._facade.append_on_engine_create(_tune)
        self._turn: contextlib.AbstractContextManager[object] = (
            threading.Lock() if options.database_url.startswith('sqlite')
            else contextlib.nullcontext())

    @contextlib.contextmanager
    def writer(self) -> Iterator[orm.Session]:
        """Begin a transaction that changes something.

        Its first statement has to be a write: SQLite then waits for its
        turn, where it would else refuse.  Of this process it lets one writer
        in at a time: those that wait look again now and then, in no order,
        and one of many might wait for very long.
        """
        with self._turn, self._facade.writer.using(_Context()) as session:
            yield session

    def reader(self) -> contextlib.AbstractContextManager[orm.Session]:
        """Return a transaction that changes nothing."""
        return self._facade.reader.using(_Context())

    @property
    def engine(self) -> sa.Engine:
        """SQLAlchemy's engine, for migrations."""
        return self._facade.writer.get_engine()
