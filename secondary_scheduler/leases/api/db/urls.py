# SPDX-License-Identifier: Apache-2.0

"""Checks of the database's URL, and messages for its errors."""

from collections.abc import Iterator
import contextlib
import pathlib

from oslo_config import cfg
from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy import exc as sa_exc

from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.reading.values import InputError

OPTION = '[secondary_lease_api] database_url'
_EXPECTED = ('sqlite:///FILE, mysql+pymysql://USER:PASSWORD@HOST:PORT/NAME or '
             'postgresql+psycopg2://USER:PASSWORD@HOST:PORT/NAME')
#: Packages to install by missing module, where the names differ.
_PACKAGES = {'MySQLdb': 'mysqlclient (or begin the URL with mysql+pymysql: '
                        'pip install PyMySQL)', 'pymysql': 'PyMySQL'}


def check_url(conf: cfg.ConfigOpts) -> None:
    """Check the configured URL, without a connection.

    Errors do not quote the URL, which is a secret.

    :raises InputError: if it cannot be the URL of a database.
    """
    try:
        url = sa.make_url(conf.secondary_lease_api.database_url)
        dialect = url.get_dialect()
    except cfg.Error:
        raise InputError(
            f'{OPTION}: a "$" stands for the value of another option, which '
            f'is not known: write "$$" for the character: expected {_EXPECTED}'
            ) from None
    except (sa_exc.ArgumentError, ValueError) as exc:
        problem = (str(exc) if isinstance(exc, sa_exc.NoSuchModuleError)
                   else 'it is not a URL of a database')
        raise InputError(f'{OPTION}: {problem}: expected {_EXPECTED}'
                         ) from None
    try:
        dialect.import_dbapi()
    except ImportError as exc:
        raise InputError(
            f'{OPTION}: the driver {exc.name} of {url.drivername} is not '
            f'installed: pip install {_PACKAGES.get(exc.name or "", exc.name)}'
            ) from None
    if url.get_backend_name() == 'sqlite' and url.database:
        folder = pathlib.Path(url.database).parent
        if url.database != ':memory:' and not folder.is_dir():
            raise InputError(f'{OPTION}: expected a file in an existing '
                             f'folder, and there is no {folder}')


@contextlib.contextmanager
def database_errors() -> Iterator[None]:
    """Convert errors of the database to ``InputError``.

    :raises InputError: if the database cannot be used.
    """
    try:
        yield
    except (db_exception.DBError, sa_exc.SQLAlchemyError) as exc:
        raise _unusable(exc) from exc


def connect_once(database: Database) -> None:
    """Open a connection and close it.

    :raises InputError: if that is not possible.
    """
    try:
        database.engine.connect().close()
    except Exception as exc:   # drivers raise anything for wrong options
        raise _unusable(exc) from exc


def _unusable(exc: Exception) -> InputError:
    said = ' '.join(line.strip() for line in str(exc).splitlines()
                    if not line.startswith('(Background'))
    return InputError(f'{OPTION}: {said}\nIs the URL right, do you have '
                      'access, and does the database answer?')
