# SPDX-License-Identifier: Apache-2.0

"""``secondary-scheduler leader``: the leader among decision engines."""

import argparse
from collections.abc import Callable, Mapping
import sys
import time
import typing
import warnings

from oslo_config import cfg

from secondary_scheduler.cmd.arguments import Groups

if typing.TYPE_CHECKING:
    from secondary_scheduler.watcher import database_locks, terms

DESCRIPTION = """\
The leader is the one decision engine that turns violations into audits and
runs leases. This command reads Watcher's database, with the configuration of
Watcher: run it where a decision engine runs.
"""

SHOW = """\
Show the machine and process of the leader, its term, and the operations that
wait to begin. It watches the leadership for up to 5 seconds, since a leader
that is alive renews it every second. The exit code is 1 if no engine leads.

  secondary-scheduler leader show
"""

#: Exit codes without a leader, and for a faulty configuration or database.
NO_LEADER, BAD_INPUT = 1, 2
#: Seconds for which the leadership is watched, and between two reads.
WATCHED_S, _PERIOD_S = 5.0, 0.5


def add_parser(groups: Groups) -> None:
    """Add the command group to the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    commands = groups.add_parser(
        'leader', help='the leader among decision engines',
        description=DESCRIPTION, formatter_class=raw).add_subparsers(
            required=True, metavar='show')
    show = commands.add_parser(
        'show', help='show the leader and what waits for it',
        description=SHOW, formatter_class=raw)
    show.add_argument(
        '--config-file', action='append', default=[], metavar='FILE',
        dest='files', help='configuration of Watcher; may be repeated '
                           '(default: /etc/watcher/watcher.conf)')
    show.set_defaults(action='leader_show')


def run(action: str, options: Mapping[str, typing.Any]) -> int:
    """Run the command; return its exit code.

    Watcher is imported here, since other commands do not need it.
    """
    try:
        # Libraries of Watcher warn that they are deprecated.
        with warnings.catch_warnings(record=True):
            from watcher import objects

            from secondary_scheduler.watcher import database_locks, terms
            from secondary_scheduler.watcher.settings import CONF
    except ImportError as exc:
        print(f'secondary-scheduler: {exc.name} is missing: run this command '
              'where a decision engine of Watcher runs', file=sys.stderr)
        return BAD_INPUT
    try:
        CONF([], project='watcher', prog='secondary-scheduler',
             default_config_files=options['files'] or None)
    except cfg.Error as exc:
        print(f'secondary-scheduler: {exc}', file=sys.stderr)
        return BAD_INPUT
    try:
        objects.register_all()
        table = database_locks.LockTable(lambda: CONF.database.connection)
        alive, row = watch(lambda: table.read(database_locks.LEADER))
        waiting = terms.find_waiting()
    except Exception as exc:    # oslo.config and drivers raise anything
        print('secondary-scheduler: Watcher\'s database cannot be read: '
              + str(exc).partition('\n')[0], file=sys.stderr)
        return BAD_INPUT
    print('\n'.join(describe(alive, row, waiting)))
    return 0 if alive else NO_LEADER


def watch(read: 'Callable[[], database_locks.LockRow]',
          sleep: Callable[[float], None] = time.sleep
          ) -> 'tuple[bool, database_locks.LockRow]':
    """Watch a lock until it is renewed, for ``WATCHED_S`` seconds at most.

    :returns: whether it was renewed, and its last state.
    """
    first = found = read()
    for _ in range(round(WATCHED_S / _PERIOD_S)):
        sleep(_PERIOD_S)
        found = read()
        if found.owner and found.counter != first.counter:
            return True, found
    return False, found


def describe(alive: bool, row: 'database_locks.LockRow',
             waiting: 'terms.WaitingOperations') -> list[str]:
    """Return the lines that tell about a leader and what waits for it."""
    host, _, rest = row.owner.partition(':')
    name = f'{host}, process {rest.partition(":")[0]}'
    if alive:
        leader = name
    elif row.owner:
        leader = f'none; the last was {name}, which does not renew it'
    else:
        leader = 'none'
    relief = f'{waiting.relief} for relief of hosts'
    if waiting.oldest_relief is not None:
        relief += f', the oldest for {waiting.oldest_relief:.0f} s'
    return [f'leader: {leader}', f'term: {row.term}',
            f'waiting operations: {relief}; {waiting.other} others']


#: Names of the commands' actions.
COMMANDS = frozenset({'leader_show'})
