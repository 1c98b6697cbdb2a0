# SPDX-License-Identifier: Apache-2.0

"""``secondary-scheduler flavor``: make and check flavors of secondaries."""

import argparse
from collections.abc import Callable, Iterable, Mapping
import typing

from secondary_scheduler.cmd.arguments import Groups, whole_number
from secondary_scheduler.cmd.console import CommandError
from secondary_scheduler.model import vocabulary

#: The largest number that Nova can hold.
_MOST = 2**31 - 1

CREATE = """\
Make a well-formed secondary flavor. It is marked with lifecycle:preemptable
and claims the secondary resources instead of a primary's. One MB of memory
stays on the compute node itself, without which Nova finds no host.
"""

CHECK = """\
List the flavors that are neither a primary's nor a well-formed secondary's.
Nova validates extra specs only from microversion 2.86 on, so such flavors can
be made by mistake. The exit code is 1 if there is one.
"""


class FlavorCommands:
    """The commands of the group ``flavor``; each returns its exit code.

    :param cloud: a connection of openstacksdk.
    :param say: prints a line.
    """

    def __init__(self, cloud: typing.Any,
                 say: Callable[[str], object] = print) -> None:
        self._compute = cloud.compute
        self._say = say

    def flavor_create(self, name: str, vcpus: int, ram: int, disk: int,
                      priority: int, preempt_policy: str) -> int:
        """Make a secondary flavor, completely or not at all."""
        mark = vocabulary.SecondaryMark(
            vocabulary.PreemptPolicy(preempt_policy), priority)
        wanted = {key: value for key, value in
                  vocabulary.secondary_extra_specs(
                      vcpus, ram, disk, mark).items()
                  if not (key.startswith('resources:CUSTOM')
                          and value == '0')}
        compute = self._compute
        old = compute.find_flavor(name, get_extra_specs=True)
        if old is not None:
            if (old.vcpus, old.ram, old.disk) == (vcpus, ram, disk) and (
                    old.extra_specs == wanted):
                self._say(f'Flavor {name} is there already.')
                return 0
            raise CommandError(
                f'There is another flavor {name}. Flavors cannot be changed: '
                'choose another name, or delete it first.')
        flavor = compute.create_flavor(name=name, vcpus=vcpus, ram=ram,
                                       disk=disk)
        try:
            compute.create_flavor_extra_specs(flavor, wanted)
        except Exception:
            # Without its extra specs it would be a primary's flavor.
            compute.delete_flavor(flavor)
            raise
        self._say(f'Flavor {name} is made. Boot a secondary with "openstack '
                  f'server create --flavor {name} ...".')
        return 0

    def flavor_check(self, name: str | None) -> int:
        """List the ill-formed flavors."""
        compute = self._compute
        if name is None:
            flavors = compute.flavors(details=True, is_public=None,
                                      get_extra_specs=True)
        else:
            flavor = compute.find_flavor(name, get_extra_specs=True)
            if flavor is None:
                raise CommandError(f'There is no flavor {name}; "openstack '
                                   'flavor list --all" shows them.')
            flavors = [flavor]
        faults = flavor_faults(flavors)
        for flavor_name, problems in faults.items():
            for problem in problems:
                self._say(f'{flavor_name}: {problem}')
        if faults:
            self._say('Instances of these flavors are refused. Make new '
                      'flavors with "secondary-scheduler flavor create".')
            return 1
        self._say('All secondary flavors are well formed.' if name is None
                  else f'Flavor {name} is well formed.')
        return 0


def flavor_faults(flavors: Iterable[typing.Any]) -> dict[str, list[str]]:
    """Return the faults of ill-formed flavors, by name.

    The disk counts as Nova claims it, with ephemeral disk and swap.
    """
    faults = {}
    for one in flavors:
        disk = vocabulary.claimed_disk_gb(one.disk, one.ephemeral, one.swap)
        problems = vocabulary.flavor_problems(
            one.extra_specs or {}, one.vcpus, one.ram, disk)
        if problems:
            faults[str(one.name)] = problems
    return faults


def add_parser(groups: Groups) -> None:
    """Add the command group to the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    flavors = groups.add_parser(
        'flavor', help='flavors of secondaries').add_subparsers(
            required=True, metavar='create|check')
    create = flavors.add_parser('create', help='make a flavor',
                                description=CREATE, formatter_class=raw)
    create.add_argument('name', metavar='NAME')
    create.add_argument('--vcpus', type=whole_number(1, _MOST), required=True,
                        metavar='N')
    create.add_argument('--ram', type=whole_number(1, _MOST), required=True,
                        metavar='MB')
    create.add_argument('--disk', type=whole_number(0, _MOST), default=0,
                        metavar='GB',
                        help='0 for instances that boot from a volume or '
                             'whose image gives the size (default)')
    create.add_argument(
        '--priority', default=vocabulary.DEFAULT_PRIORITY,
        metavar=f'{vocabulary.LOWEST_PRIORITY}-'
                f'{vocabulary.HIGHEST_PRIORITY}',
        type=whole_number(vocabulary.LOWEST_PRIORITY,
                          vocabulary.HIGHEST_PRIORITY),
        help='the lowest is preempted first (default %(default)s)')
    create.add_argument(
        '--preempt-policy', default='suspend',
        choices=[str(one) for one in vocabulary.PreemptPolicy],
        help='how an instance that cannot be migrated is preempted (default '
             '%(default)s)')
    create.set_defaults(action='flavor_create')
    check = flavors.add_parser('check', help='find ill-formed flavors',
                               description=CHECK, formatter_class=raw)
    check.add_argument('name', metavar='NAME', nargs='?')
    check.set_defaults(action='flavor_check')


#: The command of each action; called with FlavorCommands and the options.
COMMANDS: Mapping[str, Callable[..., int]] = {
    'flavor_create': FlavorCommands.flavor_create,
    'flavor_check': FlavorCommands.flavor_check,
}


def run(cloud: typing.Any, action: str,
        options: Mapping[str, typing.Any]) -> int:
    """Run one of the commands on a cloud; return its exit code."""
    return COMMANDS[action](FlavorCommands(cloud), **options)
