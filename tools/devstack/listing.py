# SPDX-License-Identifier: Apache-2.0

"""Listings of what a DevStack has: files, units, users, objects of the cloud.

Two of them show what stack.sh, unstack.sh or clean.sh has left.  Objects of
the cloud are read from its database and its broker, since its APIs are down
after unstack.sh.
"""

from collections.abc import Iterable
import pathlib
import re

import containers
import layout

SECRET = 'secret'  # nosec B105
#: Where packages, DevStack and plug-ins put what is not their source.
_FILES = r'''
find /etc /usr/local /var/lib /var/www /var/spool /run /opt/stack \
    \( -path /opt/stack/.cache -o -path '/opt/stack/*/.git' \
       -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /run/udev \
       -o -path /run/systemd -o -path /opt/stack/logs \
       -o -path /opt/stack/data/venv -o -path /opt/stack/secondary_scheduler \
    \) -prune -o \( -type f -o -type l \) -printf 'file %p\n' 2> /dev/null
grep --devices=skip -rIlE 'secondary[-_](agent|lease|scheduler)' \
    /etc /usr/local /var/lib /var/www /var/spool 2> /dev/null |
    sed 's/^/text /'
'''
#: A list of the commands of "openstack", ours among them, that stack.sh
#: writes and no script of DevStack removes.
_COMPLETION = 'text /etc/bash_completion.d/osc.bash_completion'
_UNITS = r'''
systemctl list-unit-files --no-legend --no-pager |
    awk '{ print "unit", $1 }'
systemctl list-units --all --no-legend --no-pager --plain --type service |
    awk '$3 == "active" { print "active", $1 }'
getent passwd | awk -F: '{ print "account of the system", $1 }'
iptables-save 2> /dev/null | grep '^-A' | sed 's/^/rule /' || true
'''
#: Kind, database, query: one name in a row.
_QUERIES = (
    ('user', 'keystone', 'select name from local_user'),
    ('role', 'keystone', 'select name from role'),
    ('service', 'keystone', "select concat(type, ' ', extra) from service"),
    ('endpoint', 'keystone', 'select url from endpoint'),
    ('provider', 'placement', 'select name from resource_providers'),
    ('aggregate', 'nova_api', 'select name from aggregates'),
    ('flavor', 'nova_api', 'select name from flavors'),
    ('audit', 'watcher', "select concat(name, ' ', state) from audits "
     "where deleted = 0"),
    ('database', 'mysql', 'show databases'))


def take(node: str) -> set[str]:
    """Return the listing of a node: lines "KIND NAME"."""
    lines = containers.run_in(
        node, ['bash', '-c', _FILES + _UNITS]).stdout.splitlines()
    return set(lines) | _cloud(node)


def _cloud(node: str) -> set[str]:
    """Return the objects of the cloud that the databases of a node have."""
    found = set()
    for kind, database, query in _QUERIES:
        done = containers.run_in(node, [
            'mysql', '-uroot', f'-p{SECRET}', '-h127.0.0.1', '-N',
            '-e', query, database], check=False)
        if not done.returncode:
            found |= {f'{kind} {line}' for line in done.stdout.splitlines()}
    done = containers.run_in(
        node, ['rabbitmqctl', '-q', 'list_queues', 'name'], check=False)
    if not done.returncode:
        found |= {f'queue {line}' for line in done.stdout.splitlines()}
    return found


def _kept(node: str) -> pathlib.Path:
    return containers.directory(node) / 'listing'


def keep_before(node: str) -> None:
    """Keep the listing of a node that no stack.sh has changed yet."""
    if not _kept(node).exists():
        _kept(node).write_text('\n'.join(sorted(take(node))))


def before(node: str) -> set[str]:
    """Return the listing of a node before its first stack.sh."""
    return set(_kept(node).read_text().splitlines())


def write(node: str, script: str, lines: Iterable[str]) -> pathlib.Path:
    """Write what a script has left, without the files of Debian's packages.

    :returns: the file below the directory of logs.
    """
    packages = set(containers.run_in(
        node, ['sh', '-c', 'cat /var/lib/dpkg/info/*.list']
        ).stdout.splitlines())
    path = layout.LOG / f'left-{script.removesuffix(".sh")}-{node}.txt'
    path.write_text(''.join(
        f'{line}\n' for line in sorted(lines)
        if line.removeprefix('file ') not in packages))
    return path


def ours(lines: Iterable[str]) -> list[str]:
    """Return the lines that name something of this plug-in."""
    return sorted(line for line in lines
                  if line.startswith('text ') and line != _COMPLETION
                  or re.search('secondary', line, re.IGNORECASE))
