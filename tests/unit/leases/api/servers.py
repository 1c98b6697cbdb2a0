# SPDX-License-Identifier: Apache-2.0

"""Database servers for tests: configured ones, or private ones.

A private server has its files and its socket in a temporary directory, listens
on no port, and ends with this process.
"""

import atexit
from collections.abc import Callable, Sequence
import dataclasses
import functools
import getpass
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import typing

import sqlalchemy as sa

_PATIENCE_S = 60


@dataclasses.dataclass(frozen=True)
class Kind:
    """One of the databases that the service supports.

    ``variable`` is the environment variable with the URL of a database, whose
    tables are dropped. ``user`` runs a server if this process runs as root.
    """

    variable: str
    driver: str
    user: str
    programs: Sequence[str]
    prepare: Callable[[pathlib.Path], list[str]]
    serve: Callable[[pathlib.Path], list[str]]
    url: str
    end: signal.Signals

    def find(self, program: str) -> str | None:
        """Return the path of a program of the newest installed server."""
        debian = sorted(map(str, pathlib.Path('/usr/lib/postgresql').glob(
            '*/bin')), key=lambda path: float(path.split('/')[-2]))
        return shutil.which(program, path=os.pathsep.join(
            [*reversed(debian), os.environ['PATH'], '/usr/sbin']))

    def missing(self) -> str:
        """Return the reason why no server is available, or ''."""
        if os.environ.get(self.variable):
            return ''
        if importlib.util.find_spec(self.driver) is None:
            return f'{self.driver} is not installed'
        absent = [one for one in self.programs if not self.find(one)]
        return f'{self.variable} names no empty database, and there is no ' + (
            ', no '.join(absent)) if absent else ''


KINDS = {
    'MariaDB': Kind(
        'LEASE_TEST_MARIADB_URL', 'pymysql', 'mysql',
        ('mariadb-install-db', 'mariadbd'),
        lambda home: [
            '--no-defaults', f'--datadir={home}/data', '--skip-test-db',
            '--auth-root-authentication-method=normal'],
        lambda home: [
            '--no-defaults', f'--datadir={home}/data', '--skip-networking',
            f'--socket={home}/socket', f'--pid-file={home}/pid',
            '--innodb-flush-log-at-trx-commit=0'],
        'mysql+pymysql://root@localhost/{name}?unix_socket={home}/socket',
        signal.SIGTERM),
    'PostgreSQL': Kind(
        'LEASE_TEST_POSTGRESQL_URL', 'psycopg2', 'postgres',
        ('initdb', 'postgres'),
        lambda home: [
            '-D', f'{home}/data', '-U', 'postgres', '-A', 'trust',
            '--no-sync', '--encoding=UTF8', '--locale=C'],
        lambda home: [
            '-D', f'{home}/data', '-k', str(home), '-c', 'fsync=off',
            '-c', 'listen_addresses='],
        'postgresql+psycopg2://postgres@/{name}?host={home}',
        signal.SIGINT)}


@functools.cache
def url(database: str) -> str:
    """Return the URL of a database, whose tables may be dropped."""
    kind = KINDS[database]
    return os.environ.get(kind.variable) or _started(kind)


def _started(kind: Kind) -> str:
    """Start a server; return the URL of an empty database."""
    prepare, serve = (str(kind.find(one)) for one in kind.programs)
    made = tempfile.TemporaryDirectory(prefix='lease-test-')
    atexit.register(made.cleanup)
    home = pathlib.Path(made.name)
    user = kind.user if os.geteuid() == 0 else getpass.getuser()
    shutil.chown(home, user)
    as_user: dict[str, typing.Any] = {'cwd': '/', 'stdin': subprocess.DEVNULL,
                                      'stderr': subprocess.STDOUT}
    if os.geteuid() == 0:
        as_user |= {'user': user, 'group': user, 'extra_groups': []}
    with (home / 'log').open('w') as log:
        subprocess.run([prepare, *kind.prepare(home)], check=True, stdout=log,
                       **as_user)
        server = subprocess.Popen([serve, *kind.serve(home)], stdout=log,
                                  **as_user)
    atexit.register(server.wait, _PATIENCE_S)
    atexit.register(server.send_signal, kind.end)
    _create(kind, server, home)
    return kind.url.format(name='lease', home=home)


def _create(kind: Kind, server: typing.Any, home: pathlib.Path) -> None:
    """Create a database on a server as soon as it answers."""
    engine = sa.create_engine(kind.url.format(
        name='postgres' if kind.driver == 'psycopg2' else '', home=home),
        isolation_level='AUTOCOMMIT')
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with engine.connect() as connection:
                connection.execute(sa.text('CREATE DATABASE lease'))
            break
        except sa.exc.OperationalError:
            if server.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.1)
    engine.dispose()
