# SPDX-License-Identifier: Apache-2.0

"""``secondary-scheduler``: hosts, flavors, plans, experiments, leases."""

import argparse
from collections.abc import Callable, Sequence
import sys
import types
import typing

from keystoneauth1 import exceptions as ks_exceptions
import openstack
from openstack import exceptions as sdk_exceptions

from secondary_scheduler import deprecated
from secondary_scheduler.cmd import (
    clouds,
    console,
    flavors,
    hosts,
    leader,
    lease_db,
    orphans,
    plan,
    providers,
    simulate,
)
from secondary_scheduler.reading import values

#: Command groups that use a cloud, and those that use none.
ONLINE: tuple[types.ModuleType, ...] = (hosts, flavors)
OFFLINE: tuple[types.ModuleType, ...] = (plan, simulate, lease_db, leader)

DESCRIPTION = """\
Prepare compute hosts and flavors for secondary instances, which use the
capacity that primaries leave idle and are preempted when primaries need it.

The cloud and the (admin) account are taken from the OS_* variables or from
clouds.yaml, as by the "openstack" command.
"""

_HINT = ('Does "openstack token issue" work, and has the account the role '
         'admin?')

if not typing.TYPE_CHECKING:
    __getattr__ = deprecated.find_renamed(__name__, {
        'CommandError': 'secondary_scheduler.cmd.console.CommandError',
        'Manager': 'secondary_scheduler.cmd.hosts.HostCommands',
        'flavor_faults': 'secondary_scheduler.cmd.flavors.flavor_faults'})


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog='secondary-scheduler', description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--os-cloud', metavar='NAME',
                        help='cloud in clouds.yaml (default: OS_CLOUD, or '
                             'the other OS_* variables)')
    groups = parser.add_subparsers(
        required=True, metavar='host|flavor|plan|simulate|lease-db|leader')
    for module in (*ONLINE, *OFFLINE):
        module.add_parser(groups)
    return parser


@console.command
def main(arguments: Sequence[str] | None = None,
         connect: Callable[..., typing.Any] = openstack.connect) -> int:
    """Run a command; return its exit code."""
    options = vars(build_parser().parse_args(arguments))
    action, cloud = options.pop('action'), options.pop('os_cloud')
    for module in OFFLINE:
        if action in module.COMMANDS:
            return int(module.run(action, options))
    module = next(one for one in ONLINE if action in one.COMMANDS)
    try:
        connection = connect(cloud=cloud, app_name='secondary-scheduler')
        # An adapter is made by the first access, which may fail.
        connection.placement  # noqa: B018
    except Exception as exc:   # clouds.yaml may hold anything
        return _report_cloud_error(cloud, exc)
    try:
        return int(module.run(connection, action, options))
    except (console.CommandError, orphans.CellDown, providers.PlacementError,
            values.InputError) as exc:
        print(f'secondary-scheduler: {exc}', file=sys.stderr)
        return 1
    except BrokenPipeError:
        raise
    except (sdk_exceptions.SDKException, ks_exceptions.ClientException,
            OSError) as exc:
        return _report_cloud_error(cloud, exc)


def _report_cloud_error(cloud: str | None, exc: Exception) -> int:
    print(f'secondary-scheduler: {clouds.explain_error(cloud, exc)}\n{_HINT}',
          file=sys.stderr)
    return 1


if __name__ == '__main__':
    sys.exit(main())
