# SPDX-License-Identifier: Apache-2.0

"""``secondary-scheduler lease-db``: database of the lease service."""

import argparse
from collections.abc import Callable, Mapping
import sys
import time
import typing

from secondary_scheduler.cmd.arguments import Groups
from secondary_scheduler.reading.values import InputError, parse_whole

if typing.TYPE_CHECKING:
    from oslo_config import cfg

    from secondary_scheduler.leases.api.db.session import Database

DESCRIPTION = """\
Make and upgrade the database of the lease service, set the quotas of projects,
and delete old rows. The database is [secondary_lease_api] database_url, from
/etc/secondary_scheduler/secondary_scheduler.conf and secondary-lease-api.conf
there, or from each --config-file.
"""

SYNC = """\
Make the tables, or upgrade them to the version that this release of the
service needs. Run it before a new release starts; another run does no harm.

  secondary-scheduler lease-db sync
"""

DOWNGRADE = """\
Downgrade the tables to the version of an older release, before that is
started. Data of newer versions (for example quotes) are lost; make a copy
first. The release notes name the version of the tables of each release.

  secondary-scheduler lease-db downgrade 0001
"""

QUOTA = """\
Show the usage and the limits of a project: leases in a state that is not
final, and their nodes. With --leases or --nodes set its limits first. -1 is
unlimited; "default" restores quota_leases or quota_nodes of
[secondary_lease_api].

  secondary-scheduler lease-db quota 7c1f... --leases 20 --nodes default
"""

PURGE = """\
Delete leases that have been over for a number of days, with their node sets,
servers and events, and quotes that have expired as long ago. Leases that are
not over stay. Accounts of projects, which outlive their leases, are deleted
only with --account-days. --dry-run counts and deletes nothing.

  secondary-scheduler lease-db purge --days 90 --account-days 730 --dry-run
"""

#: Exit code for a faulty configuration or database.
BAD_INPUT = 2
_DAY_S = 86_400


def add_parser(groups: Groups) -> None:
    """Add the command group to the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument('--config-file', action='append', default=[],
                        metavar='FILE', dest='files')
    commands = groups.add_parser(
        'lease-db', help='the database of the lease service',
        description=DESCRIPTION, formatter_class=raw).add_subparsers(
            required=True, metavar='sync|downgrade|version|quota|purge')
    commands.add_parser(
        'sync', help='make or upgrade the tables', description=SYNC,
        formatter_class=raw, parents=[common]).set_defaults(
            action='lease_db_sync')
    downgrade = commands.add_parser(
        'downgrade', help='downgrade the tables to an older version',
        description=DOWNGRADE, formatter_class=raw, parents=[common])
    downgrade.add_argument('version', metavar='VERSION')
    downgrade.set_defaults(action='lease_db_downgrade')
    commands.add_parser(
        'version', help='show the version of the tables',
        parents=[common]).set_defaults(action='lease_db_version')
    quota = commands.add_parser(
        'quota', help='show or change the quota of a project',
        description=QUOTA, formatter_class=raw, parents=[common])
    quota.add_argument('project', metavar='PROJECT_ID')
    for name in ('leases', 'nodes'):
        quota.add_argument(f'--{name}', type=_limit, metavar='N|default',
                           help=f'limit of {name}, final states not counted')
    quota.set_defaults(action='lease_db_quota')
    purge = commands.add_parser(
        'purge', help='delete old leases, quotes and accounts',
        description=PURGE, formatter_class=raw, parents=[common])
    purge.add_argument('--days', type=_days, required=True, metavar='N',
                       help='days since the last change of a lease that is '
                            'over')
    purge.add_argument('--account-days', type=_days, metavar='N',
                       help='days for which accounts are kept (default: all)')
    purge.add_argument('--dry-run', action='store_true',
                       help='count the rows, and delete none')
    purge.set_defaults(action='lease_db_purge')


def _limit(text: str) -> int | str:
    if text == 'default':
        return text
    return parse_whole(text, -1, 2**31 - 1)


def _days(text: str) -> int:
    return parse_whole(text, 1, 36_500)


_days.__name__ = 'whole number of days from 1'
_limit.__name__ = 'whole number from -1, or default'


def run(action: str, options: Mapping[str, typing.Any]) -> int:
    """Run one of the commands; return its exit code.

    SQLAlchemy is imported here, since other commands do not need it.
    """
    try:
        from oslo_config import cfg

        from secondary_scheduler.conf import lease_api
        from secondary_scheduler.leases.api.db import session, urls
        from secondary_scheduler.reading.options import load_options
    except ImportError as exc:
        print(f'secondary-scheduler: the lease service needs {exc.name}: pip '
              'install "secondary_scheduler[lease-api]"', file=sys.stderr)
        return BAD_INPUT
    given = dict(options)
    files = given.pop('files')
    conf = cfg.ConfigOpts()
    lease_api.register_opts(conf)
    try:
        load_options(conf, [], project='secondary_scheduler',
                     prog='secondary-lease-api',
                     default_config_files=files or None)
        urls.check_url(conf)
        database = session.Database(conf)
        urls.connect_once(database)
        with urls.database_errors():
            return COMMANDS[action](database, conf, **given)
    except InputError as exc:
        print(f'secondary-scheduler: {exc}', file=sys.stderr)
        return BAD_INPUT


def _lease_db_sync(database: 'Database', conf: 'cfg.ConfigOpts') -> int:
    from secondary_scheduler.leases.api.db import migration
    before = migration.version(database.engine)
    migration.sync(database.engine)
    after = migration.version(database.engine)
    print(f'The tables have version {after}.' if before == after else
          f'The tables have version {after} now, before '
          f'{before or "there were none"}.')
    return 0


def _lease_db_downgrade(database: 'Database', conf: 'cfg.ConfigOpts',
                        version: str) -> int:
    from alembic.util import CommandError

    from secondary_scheduler.leases.api.db import migration
    before = migration.version(database.engine)
    try:
        migration.downgrade(database.engine, version)
    except CommandError as exc:
        print(f'secondary-scheduler: {exc}\nThe tables have version {before};'
              ' give an older one.', file=sys.stderr)
        return BAD_INPUT
    print(f'The tables have version {version} now, before {before}.')
    return 0


def _lease_db_version(database: 'Database', conf: 'cfg.ConfigOpts') -> int:
    from secondary_scheduler.leases.api.db import migration
    version = migration.version(database.engine)
    if version is None:
        print('There are no tables: run "secondary-scheduler lease-db sync".')
        return 1
    print(version)
    return 0


def _lease_db_quota(database: 'Database', conf: 'cfg.ConfigOpts',
                    project: str, leases: int | str | None,
                    nodes: int | str | None) -> int:
    from secondary_scheduler.leases.api.db import quotas
    changes = {name: None if value == 'default' else value
               for name, value in (('leases', leases), ('nodes', nodes))
               if value is not None}
    if changes:
        quotas.set_limits(database, project, **changes)
    found = quotas.read_usage(database, project,
                              quotas.QuotaLimits.from_options(conf))
    for name, limit, used in (
            ('leases', found.limits.leases, found.leases),
            ('nodes', found.limits.nodes, found.nodes)):
        print(f'{name}: {used} of '
              f'{"unlimited" if limit == quotas.UNLIMITED else limit}')
    return 0


def _lease_db_purge(database: 'Database', conf: 'cfg.ConfigOpts',
                    days: int, account_days: int | None, dry_run: bool) -> int:
    from secondary_scheduler.leases.api.db import purging
    now = int(time.time())
    found = purging.purge_rows(
        database, now - days * _DAY_S,
        None if account_days is None else now - account_days * _DAY_S, dry_run)
    for name, number in found.items():
        print(f'{name}: {number} {"to delete" if dry_run else "deleted"}')
    return 0


#: The function of each action; called with a database, the configuration and
#: the options of the command.
COMMANDS: Mapping[str, Callable[..., int]] = {
    'lease_db_sync': _lease_db_sync,
    'lease_db_downgrade': _lease_db_downgrade,
    'lease_db_version': _lease_db_version,
    'lease_db_quota': _lease_db_quota,
    'lease_db_purge': _lease_db_purge,
}
