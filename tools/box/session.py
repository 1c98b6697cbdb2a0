# SPDX-License-Identifier: Apache-2.0

"""Programs that a person or a script runs inside the box, in the foreground.

They have the box's network, the credentials of one of its users, the box's
programs first on PATH, and the box's configuration files.  They are charged
to the group of clients: a question must not make a host busy.
"""

import os
import pathlib
import shutil
import subprocess

import cgroups
import hosts
import layout
import network
import shell
from shell import BoxError


def environment(user: str = 'admin', project: str | None = None,
                host: str | None = None) -> dict[str, str]:
    """Return the variables of a user's program, beside those of the caller.

    :param project: as the user by default: each has one of the same name.
    :param host: the compute host inside which the program is to run.
    """
    return {
        **layout.credentials(user, project or user),
        'PATH': f'{layout.BIN}:{os.environ["PATH"]}:/usr/sbin:/sbin',
        # oslo.config looks below it, as in a snap: programs find the box's
        # configuration without --config-file.
        'SNAP_COMMON': str(hosts.directory(host) if host else layout.STATE),
        'BOX_PLACE': f'{host or "box"} {user}'}


def run(command: list[str], *, user: str = 'admin',
        project: str | None = None, host: str | None = None,
        **more: str) -> int:
    """Run a program inside the box, or inside one of its compute hosts.

    :param more: further variables of its environment.
    :returns: its exit code.
    :raises BoxError: if there is no box, host or program of that name.
    """
    if not network.exists(layout.NETNS):
        raise BoxError('the box is down; "python3 tools/box up" starts it')
    variables = environment(user, project, host)
    if not shutil.which(command[0], path=variables['PATH']):
        raise BoxError(f'there is no program "{command[0]}"; those of '
                       f'OpenStack and of this project are in {layout.BIN}')
    place = _enter(host) if host else shell.inside_netns([])
    return subprocess.run(
        cgroups.inside('clients', [*place, *command]),
        env={**os.environ, **variables, **more}).returncode


def _enter(host: str) -> list[str]:
    names = layout.host_names(layout.load_settings())
    if host not in names:
        raise BoxError(f'there is no host "{host}", but {", ".join(names)}')
    if not hosts.outer_pid(host):
        raise BoxError(f'{host} is down; "python3 tools/box up" starts it')
    # Who enters a mount namespace is at its root.
    return [*hosts.enter(host), 'env', f'--chdir={pathlib.Path.cwd()}']
