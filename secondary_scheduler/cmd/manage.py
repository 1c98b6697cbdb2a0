"""``secondary-scheduler``: hosts, flavors, plans, experiments, leases."""

import argparse
from collections.abc import Callable, Mapping, Sequence
import sys
import typing

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions
import openstack
from openstack import exceptions as sdk_exceptions

from secondary_scheduler.cmd import (
    clouds,
    console,
    lease_db,
    orphans,
    plan,
    providers,
    simulate,
)
from secondary_scheduler.model import vocabulary
from secondary_scheduler.reading import answers, values

#: Commands in which no cloud has a part.
OFFLINE: tuple[typing.Any, ...] = (plan, simulate, lease_db)
WATCHER = 'infra-optim'
#: From 1.2 on an audit may be forced: it then runs beside other plans.
WATCHER_VERSION = 'infra-optim 1.2'

DESCRIPTION = """\
Prepare compute hosts and flavors for secondary instances, which use the
capacity that primaries leave idle and give way in time when they need it.

The cloud and the (admin) account are taken from the OS_* variables or from
clouds.yaml, as by the "openstack" command.
"""

ENABLE = """\
Let a host take secondaries: make the resource classes CUSTOM_SECONDARY_* and,
under the compute node's resource provider, a child that holds them. Running
it again changes only the totals that are given; it also opens a host that was
disabled or drained, but not one that Watcher has switched off.

The totals are the most that secondaries may ever hold together; by default
what the host has (VCPU without allocation ratio, memory and disk less what is
reserved, one slot for each vCPU). A total of 0 leaves the class out. All of
it starts out reserved: nothing is admitted until the host's agent
(secondary-agent) opens as much as the policies allow.

An instance that is suspended keeps its claims. Where leases are to give way to
others on the same host (option "leases" of Watcher's audit) there has to be
room for both: with --claims 2 the suspended ones may claim as much as those
that run. Without leases leave it at 1.
"""

DISABLE = """\
Close a host for new secondaries. Those on it stay, and their agent goes on
holding them to the policies. With --delete the resource provider is removed
as well, if nothing uses it any more.
"""

DRAIN = """\
Close a host for new secondaries, and have Watcher move or suspend those that
run on it (a ONESHOT audit of the goal "secondary"). Suspended ones keep their
place on the host until it is enabled again or they are shelved or deleted.
Primaries are not touched.
"""

AUDIT = """\
List the places on hosts that are held for nobody: for migrations that have
ended and for instances that are gone. Nova leaves them behind where it is cut
off within a live migration, by a restart of nova-compute or of the only
nova-scheduler, say; "nova-manage placement audit" does not see them. With
--delete they are released; without it the exit code is 1 if there are some.
"""

FLAVOR = """\
Make a well-formed secondary flavor. It is marked with lifecycle:preemptable
and claims the secondary resources instead of a primary's; one MB of memory
stays on the compute node itself, without which Nova finds no host.
"""

CHECK = """\
List the flavors that are neither a primary's nor a well-formed secondary's.
Nova validates extra specs only from microversion 2.86 on, so such flavors can
be made by mistake. The exit code is 1 if there is one.
"""


_HINT = ('Does "openstack token issue" work, and has the account the role '
         'admin?')


class CommandError(Exception):
    """What goes wrong in a way an operator can do something about."""


class Manager:
    """The commands; ``say`` prints a line."""

    def __init__(self, cloud: typing.Any,
                 say: Callable[[str], object] = print) -> None:
        self._cloud = cloud
        self._say = say
        self._providers = providers.Providers(cloud.placement)

    # hosts

    def host_enable(self, host: str, vcpus: int | None,
                    memory_mb: int | None, disk_gb: int | None,
                    slots: int | None, claims: float | None = None) -> int:
        """Make or change a host's secondary provider."""
        name = self._node(host)
        given = {vocabulary.VCPU: vcpus, vocabulary.MEMORY_MB: memory_mb,
                 vocabulary.DISK_GB: disk_gb, vocabulary.SLOT: slots}
        before = self._providers.child(name)
        totals = (dict(before.total) if before and before.total
                  else self._providers.default_totals(name))
        totals.update((k, v) for k, v in given.items() if v is not None)
        if not totals.get(vocabulary.SLOT) or not totals.get(vocabulary.VCPU):
            raise CommandError(f'{host} would have no vCPU or slot for '
                               'secondaries: give --vcpus and --slots.')
        child = self._providers.enable(name, totals, claims)
        self._say(f'{host} can take secondaries up to '
                  + _amounts(child.total) + '.')
        if child.switched_off:
            self._say('Watcher keeps it closed, since the audit that switches '
                      'its scope on was cancelled or has ended. An audit of '
                      f'type CONTINUOUS of the goal "{vocabulary.GOAL}" on '
                      'the scope opens it.')
        elif not any(child.allowed.values()):
            self._say('All of it is reserved until the host\'s agent opens '
                      'it: start secondary-agent there, if it does not run, '
                      'and see "secondary-scheduler host list".')
        return 0

    def host_disable(self, host: str, delete: bool) -> int:
        """Close a host; remove its provider if asked and unused."""
        name = self._node(host)
        child = self._providers.close(name)
        used = any(child.used.values())
        if delete and used:
            raise CommandError(
                f'{host} is closed, but its provider stays: secondaries '
                f'still hold {_amounts(child.used)}. Clear it with '
                f'"secondary-scheduler host drain {host}", shelve or delete '
                'those that are suspended, and try again.')
        if delete:
            self._providers.delete(child)
            self._say(f'{host} takes no secondaries; its provider is '
                      'removed.')
            return 0
        self._say(f'{host} takes no new secondaries. '
                  + (f'Those on it hold {_amounts(child.used)}; '
                     f'"secondary-scheduler host drain {host}" clears it. '
                     if used else '')
                  + f'"secondary-scheduler host enable {host}" opens it '
                  'again.')
        return 0

    def host_drain(self, host: str) -> int:
        """Close a host and have Watcher clear it."""
        name = self._node(host)
        child = self._providers.close(name)
        self._say(f'{host} takes no new secondaries.')
        if not any(child.used.values()):
            self._say('None is on it: nothing to drain.')
            return 0
        audit = self._audit({'request': 'drain',
                             'hosts': [self._service(host)]})
        self._say(
            f'Watcher clears it with audit {audit}. Follow it with\n'
            f'  openstack optimize audit show {audit}\n'
            f'  openstack optimize actionplan list --audit {audit}\n'
            f'"secondary-scheduler host enable {host}" opens the host again.')
        return 0

    def host_list(self) -> int:
        """Print a table of the hosts that are enabled."""
        rows: list[tuple[str, ...]] = [
            ('HOST', 'STATE', 'VCPU', 'MEMORY_MB', 'DISK_GB', 'SLOT')]
        for child in self._providers.children():
            allowed = child.allowed
            why = [word for word, true in (
                ('closed', child.closed),
                ('switched off', child.switched_off)) if true]
            state = (', '.join(why) if why else
                     'open' if any(allowed.values()) else 'shut by agent')
            rows.append((child.host, state, *(
                f'{child.used.get(name, 0)}/{allowed.get(name, 0)}'
                f'/{child.total.get(name, 0)}'
                for name in vocabulary.RESOURCE_CLASSES)))
        if len(rows) == 1:
            self._say('No host takes secondaries. Begin with '
                      '"secondary-scheduler host enable HOST".')
            return 0
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            self._say('  '.join(cell.ljust(width) for cell, width
                                in zip(row, widths, strict=True)).rstrip())
        self._say('used/allowed now/total. "closed": disabled or drained by '
                  'an operator; "switched off": by Watcher, since its audit '
                  'on the scope was cancelled; "shut by agent": the policies '
                  'leave no room, or the agent has not opened it. Where the '
                  'agent has stopped, nova-scheduler refuses even an "open" '
                  'host.')
        return 0

    def host_audit(self, delete: bool) -> int:
        """List what is held for nobody; release it if asked."""
        found = list(orphans.find(self._providers, self._cloud.compute))
        for one in found:
            if one.resident:
                fate = (f'left alone, since {one.resident} is there and has '
                        'no other allocation')
            elif delete:
                self._providers.release(one.consumer)
                fate = 'released'
            else:
                fate = 'to be released with --delete'
            self._say(f'{one.host}: {one.consumer} is {one.what}; {fate}.')
        if not found:
            self._say('Whatever holds a place is an instance or on its way.')
        return int(not delete and any(not one.resident for one in found))

    # flavors

    def flavor_create(self, name: str, vcpus: int, ram: int, disk: int,
                      priority: int, preempt_policy: str) -> int:
        """Make a secondary flavor, as a whole or not at all."""
        mark = vocabulary.SecondaryMark(
            vocabulary.PreemptPolicy(preempt_policy), priority)
        wanted = {key: value for key, value in
                  vocabulary.secondary_extra_specs(
                      vcpus, ram, disk, mark).items()
                  if not (key.startswith('resources:CUSTOM')
                          and value == '0')}
        compute = self._cloud.compute
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
            # What is left would be a primary's flavor.
            compute.delete_flavor(flavor)
            raise
        self._say(f'Flavor {name} is made. Boot a secondary with "openstack '
                  f'server create --flavor {name} ...".')
        return 0

    def flavor_check(self, name: str | None) -> int:
        """List the ill-formed flavors."""
        compute = self._cloud.compute
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

    # helpers

    def _hypervisor(self, host: str) -> typing.Any:
        for one in self._cloud.compute.hypervisors(details=True):
            if host in (one.name, (one.service_details or {}).get('host')):
                return one
        return None

    def _node(self, host: str) -> str:
        """Return the name of the host's root provider."""
        found = self._hypervisor(host)
        if found is None:
            raise CommandError(f'Nova knows no compute host {host}; '
                               '"openstack hypervisor list" shows them.')
        return str(found.name)

    def _service(self, host: str) -> str:
        """Return the name by which agent and Watcher know the host."""
        found = self._hypervisor(host)
        return str((found.service_details or {}).get('host') or host)

    def _watcher_v1(self) -> tuple[adapter.Adapter, str]:
        """Return an adapter for Watcher, and the URL of its version 1.

        The SDK's own client begins at the version where it finds one, and at
        the service else; a catalog may name either.
        """
        config = self._cloud.config
        watcher = adapter.Adapter(
            self._cloud.session, service_type=WATCHER,
            interface=config.get_interface(WATCHER),
            region_name=config.get_region_name(WATCHER))
        root = watcher.get_endpoint(skip_discovery=True) or ''
        return watcher, f"{root.rstrip('/').removesuffix('/v1')}/v1"

    def _audit(self, parameters: Mapping[str, object]) -> str:
        watcher, url = self._watcher_v1()
        answer = watcher.post(
            f'{url}/audits', raise_exc=False,
            headers={'OpenStack-API-Version': WATCHER_VERSION},
            json={'audit_type': 'ONESHOT', 'goal': vocabulary.GOAL,
                  'strategy': vocabulary.STRATEGY, 'auto_trigger': True,
                  'force': True, 'parameters': parameters})
        if answer.status_code >= 400:
            raise CommandError(
                'The host is closed, but Watcher made no audit (HTTP '
                f'{answer.status_code}: {answer.text[:300]}). Is the goal '
                f'"{vocabulary.GOAL}" in "openstack optimize goal list"? If '
                'not, install this package for watcher-decision-engine as '
                'well and restart it.')
        made = answers.read_answer(answer, 'Watcher', {'uuid': str})
        return str(made['uuid'])


def flavor_faults(flavors: typing.Iterable[typing.Any]
                  ) -> dict[str, list[str]]:
    """Return what is ill-formed, by flavor; disk as Nova claims it."""
    faults = {}
    for one in flavors:
        disk = vocabulary.claimed_disk_gb(one.disk, one.ephemeral, one.swap)
        problems = vocabulary.flavor_problems(
            one.extra_specs or {}, one.vcpus, one.ram, disk)
        if problems:
            faults[str(one.name)] = problems
    return faults


def _amounts(amounts: Mapping[str, int]) -> str:
    return ', '.join(
        f'{amounts.get(name, 0)} {unit}' for name, unit in
        ((vocabulary.VCPU, 'vCPUs'), (vocabulary.MEMORY_MB, 'MB of memory'),
         (vocabulary.DISK_GB, 'GB of disk'), (vocabulary.SLOT, 'slots')))


def _number(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    """Return a reader of numbers that Nova and Placement can hold."""
    def convert(text: str) -> int:
        return values.parse_whole(text, least, most)
    convert.__name__ = f'whole number from {least} to {most}'
    return convert


def _factor(text: str) -> float:
    return values.parse_number(text, 1, 100)


_factor.__name__ = 'number from 1 to 100'


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog='secondary-scheduler', description=DESCRIPTION,
        formatter_class=raw)
    parser.add_argument('--os-cloud', metavar='NAME',
                        help='cloud in clouds.yaml (default: OS_CLOUD, or '
                             'the other OS_* variables)')
    groups = parser.add_subparsers(required=True, metavar='host|flavor|plan')

    hosts = groups.add_parser(
        'host', help='hosts that take secondaries').add_subparsers(
            required=True, metavar='enable|disable|drain|list|audit')
    enable = hosts.add_parser('enable', help='let a host take secondaries',
                              description=ENABLE, formatter_class=raw)
    enable.add_argument('host', metavar='HOST')
    for option, what in (('--vcpus', 'vCPUs'), ('--memory-mb', 'memory'),
                         ('--disk-gb', 'disk'), ('--slots', 'instances')):
        enable.add_argument(option, type=_number(0), metavar='N',
                            help=f'most {what} of all secondaries')
    enable.add_argument('--claims', type=_factor, metavar='FACTOR',
                        help='how many times the totals may be claimed, '
                             'those that are suspended included (default: '
                             'as before, at first 1)')
    enable.set_defaults(action='host_enable')
    disable = hosts.add_parser('disable', help='close a host',
                               description=DISABLE, formatter_class=raw)
    disable.add_argument('host', metavar='HOST')
    disable.add_argument('--delete', action='store_true',
                         help='also remove its provider, if unused')
    disable.set_defaults(action='host_disable')
    drain = hosts.add_parser('drain', help='close a host and clear it',
                             description=DRAIN, formatter_class=raw)
    drain.add_argument('host', metavar='HOST')
    drain.set_defaults(action='host_drain')
    hosts.add_parser('list', help='show what hosts take now').set_defaults(
        action='host_list')
    audit = hosts.add_parser('audit', help='find places held for nobody',
                             description=AUDIT, formatter_class=raw)
    audit.add_argument('--delete', action='store_true',
                       help='also release them')
    audit.set_defaults(action='host_audit')

    flavors = groups.add_parser(
        'flavor', help='flavors of secondaries').add_subparsers(
            required=True, metavar='create|check')
    create = flavors.add_parser('create', help='make a flavor',
                                description=FLAVOR, formatter_class=raw)
    create.add_argument('name', metavar='NAME')
    create.add_argument('--vcpus', type=_number(1), required=True,
                        metavar='N')
    create.add_argument('--ram', type=_number(1), required=True,
                        metavar='MB')
    create.add_argument('--disk', type=_number(0), default=0, metavar='GB',
                        help='0 for instances that boot from a volume or '
                             'whose image gives the size (default)')
    create.add_argument(
        '--priority', default=vocabulary.DEFAULT_PRIORITY,
        metavar=f'{vocabulary.LOWEST_PRIORITY}-'
                f'{vocabulary.HIGHEST_PRIORITY}',
        type=_number(vocabulary.LOWEST_PRIORITY,
                     vocabulary.HIGHEST_PRIORITY),
        help='the lowest gives way first (default %(default)s)')
    create.add_argument(
        '--preempt-policy', default='suspend',
        choices=[str(one) for one in vocabulary.PreemptPolicy],
        help='how an instance gives way if it cannot be moved (default '
             '%(default)s)')
    create.set_defaults(action='flavor_create')
    check = flavors.add_parser('check', help='find ill-formed flavors',
                               description=CHECK, formatter_class=raw)
    check.add_argument('name', metavar='NAME', nargs='?')
    check.set_defaults(action='flavor_check')
    for module in OFFLINE:
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
    try:
        manager = Manager(connect(cloud=cloud,
                                  app_name='secondary-scheduler'))
    except Exception as exc:   # clouds.yaml may hold anything
        print(f'secondary-scheduler: {clouds.explain(cloud, exc)}\n{_HINT}',
              file=sys.stderr)
        return 1
    try:
        return int(getattr(manager, action)(**options))
    except (CommandError, orphans.Incomplete, providers.PlacementError,
            values.InputError) as exc:
        print(f'secondary-scheduler: {exc}', file=sys.stderr)
    except BrokenPipeError:
        raise
    except (sdk_exceptions.SDKException, ks_exceptions.ClientException,
            OSError) as exc:
        print(f'secondary-scheduler: {clouds.explain(cloud, exc)}\n{_HINT}',
              file=sys.stderr)
    return 1


if __name__ == '__main__':
    sys.exit(main())
