# SPDX-License-Identifier: Apache-2.0

"""``secondary-scheduler host``: enable, drain and list compute hosts."""

import argparse
from collections.abc import Callable, Mapping
import json
import typing

from keystoneauth1 import adapter

from secondary_scheduler.cmd import orphans, providers
from secondary_scheduler.cmd.arguments import Groups, whole_number
from secondary_scheduler.cmd.console import CommandError
from secondary_scheduler.model import vocabulary
from secondary_scheduler.reading import answers, values

WATCHER = 'infra-optim'
#: From 1.2 on an audit may be forced: it then runs beside other plans.
WATCHER_VERSION = 'infra-optim 1.2'
#: The largest number that Nova and Placement can hold.
_MOST = 2**31 - 1

ENABLE = """\
Enable a host for secondaries: make the resource classes CUSTOM_SECONDARY_*
and, under the compute node's resource provider, a child provider that holds
them. Another run changes only the totals that are given. It also opens a host
that was disabled or drained, but not one that Watcher has switched off.

The totals are the most that all secondaries together may ever hold. The
default is the capacity of the host: VCPU without allocation ratio, memory and
disk minus the reserved part, one slot for each vCPU. A total of 0 leaves the
class out. At first the whole inventory is reserved: no secondary is admitted
until the host's agent (secondary-agent) opens as much as the policies allow.

A suspended instance keeps its claims. Where leases may preempt other leases on
the same host (option "leases" of Watcher's audit) Placement needs room for
both: with --claims 2 the suspended ones may claim as much as the running ones.
Without leases leave it at 1.
"""

DISABLE = """\
Close a host for new secondaries. Secondaries on the host stay, and the agent
still enforces the policies. With --delete the resource provider is removed as
well, if it is unused.
"""

DRAIN = """\
Close a host for new secondaries, and have Watcher migrate or suspend the
running ones (a ONESHOT audit of the goal "secondary"). Suspended secondaries
keep their resources on the host until it is enabled again or they are shelved
or deleted. Primaries are not touched.
"""

AUDIT = """\
List orphaned allocations of secondaries: those of migrations that have ended
and of instances that no longer exist. Nova leaves them behind if it is
interrupted within a live migration, for instance by a restart of nova-compute
or of the only nova-scheduler; "nova-manage placement audit" does not find
them. With --delete they are released; without it the exit code is 1 if there
are any.
"""


class HostCommands:
    """The commands of the group ``host``; each returns its exit code.

    :param cloud: a connection of openstacksdk.
    :param say: prints a line.
    """

    def __init__(self, cloud: typing.Any,
                 say: Callable[[str], object] = print) -> None:
        self._cloud = cloud
        self._say = say
        self._providers = providers.Providers(cloud.placement)

    def host_enable(self, host: str, vcpus: int | None,
                    memory_mb: int | None, disk_gb: int | None,
                    slots: int | None, claims: float | None = None) -> int:
        """Make or change a host's secondary provider."""
        name = self._node_name(host)
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
            self._say('The whole inventory is reserved until the host\'s '
                      'agent opens it: start secondary-agent there, unless '
                      'it runs, and see "secondary-scheduler host list".')
        return 0

    def host_disable(self, host: str, delete: bool) -> int:
        """Close a host; remove its provider if asked and unused."""
        name = self._node_name(host)
        child = self._providers.close(name)
        used = any(child.used.values())
        if delete and used:
            raise CommandError(
                f'{host} is closed, but its provider stays: secondaries '
                f'still hold {_amounts(child.used)}. Clear it with '
                f'"secondary-scheduler host drain {host}", shelve or delete '
                'suspended secondaries, and try again.')
        if delete:
            self._providers.delete(child)
            self._say(f'{host} takes no secondaries; its provider is '
                      'removed.')
            return 0
        self._say(f'{host} takes no new secondaries. '
                  + (f'Secondaries on it hold {_amounts(child.used)}; '
                     f'"secondary-scheduler host drain {host}" clears it. '
                     if used else '')
                  + f'"secondary-scheduler host enable {host}" opens it '
                  'again.')
        return 0

    def host_drain(self, host: str) -> int:
        """Close a host and have Watcher clear it."""
        name = self._node_name(host)
        child = self._providers.close(name)
        self._say(f'{host} takes no new secondaries.')
        if not any(child.used.values()):
            self._say('No secondary is on it: nothing to drain.')
            return 0
        audit = self._create_audit({'request': 'drain',
                                    'hosts': [self._host_name(host)]})
        self._say(
            f'Watcher clears it with audit {audit}. Follow it with\n'
            f'  openstack optimize audit show {audit}\n'
            f'  openstack optimize actionplan list --audit {audit}\n'
            f'"secondary-scheduler host enable {host}" opens the host again.')
        return 0

    def host_list(self, as_json: bool = False) -> int:
        """Print the enabled hosts, as a table or as JSON."""
        if as_json:
            self._say(json.dumps(self._host_records(), indent=2))
            return 0
        rows: list[tuple[str, ...]] = [
            ('HOST', 'STATE', 'VCPU', 'MEMORY_MB', 'DISK_GB', 'SLOT')]
        for child in self._providers.children():
            allowed = child.allowed
            closing = [word for word, true in (
                ('closed', child.closed),
                ('switched off', child.switched_off)) if true]
            state = (', '.join(closing) if closing else
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
                  'leave no room, or the agent has not opened it. If the '
                  'agent has stopped, nova-scheduler rejects even an "open" '
                  'host.')
        return 0

    def _host_records(self) -> list[dict[str, typing.Any]]:
        """Return the enabled hosts; amounts have the names of options."""
        services = {one.name: (one.service_details or {}).get('host')
                    for one in self._cloud.compute.hypervisors(details=True)}

        def amounts(of: Mapping[str, int]) -> dict[str, int]:
            return {option: of.get(name, 0) for option, name in _OPTIONS}

        return [{
            'host': services.get(child.host) or child.host,
            'provider': child.host, 'closed': child.closed,
            'switched_off': child.switched_off,
            'claims': max((float(one['allocation_ratio']) for one
                           in child.inventories.values()), default=1.0),
            'used': amounts(child.used), 'allowed': amounts(child.allowed),
            'total': amounts(child.total),
        } for child in self._providers.children()]

    def host_audit(self, delete: bool) -> int:
        """List orphaned allocations; release them if asked."""
        found = list(orphans.find_orphans(self._providers,
                                          self._cloud.compute))
        for one in found:
            if one.resident:
                fate = (f'left alone, since {one.resident} is there and has '
                        'no other allocation')
            elif delete:
                self._providers.release(one.consumer)
                fate = 'released'
            else:
                fate = 'to be released with --delete'
            self._say(f'{one.host}: {one.consumer} is {one.description}; '
                      f'{fate}.')
        if not found:
            self._say('Each allocation is of an instance, or of an operation '
                      'in progress.')
        return int(not delete and any(not one.resident for one in found))

    def _hypervisor(self, host: str) -> typing.Any:
        for one in self._cloud.compute.hypervisors(details=True):
            if host in (one.name, (one.service_details or {}).get('host')):
                return one
        return None

    def _node_name(self, host: str) -> str:
        """Return the name of the host's root provider."""
        found = self._hypervisor(host)
        if found is None:
            raise CommandError(f'Nova has no compute host {host}; '
                               '"openstack hypervisor list" shows them.')
        return str(found.name)

    def _host_name(self, host: str) -> str:
        """Return the name that agent and Watcher use for the host."""
        found = self._hypervisor(host)
        return str((found.service_details or {}).get('host') or host)

    def _watcher_v1(self) -> tuple[adapter.Adapter, str]:
        """Return an adapter for Watcher, and the URL of its version 1.

        The SDK's own client begins at the version if it finds one, and else
        at the service; a catalog may name either.
        """
        config = self._cloud.config
        watcher = adapter.Adapter(
            self._cloud.session, service_type=WATCHER,
            interface=config.get_interface(WATCHER),
            region_name=config.get_region_name(WATCHER))
        root = watcher.get_endpoint(skip_discovery=True) or ''
        return watcher, f"{root.rstrip('/').removesuffix('/v1')}/v1"

    def _create_audit(self, parameters: Mapping[str, object]) -> str:
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


#: Options of "host enable", and the resource classes that they set.
_OPTIONS = (('vcpus', vocabulary.VCPU), ('memory_mb', vocabulary.MEMORY_MB),
            ('disk_gb', vocabulary.DISK_GB), ('slots', vocabulary.SLOT))


def _amounts(amounts: Mapping[str, int]) -> str:
    return ', '.join(
        f'{amounts.get(name, 0)} {unit}' for name, unit in
        ((vocabulary.VCPU, 'vCPUs'), (vocabulary.MEMORY_MB, 'MB of memory'),
         (vocabulary.DISK_GB, 'GB of disk'), (vocabulary.SLOT, 'slots')))


def _factor(text: str) -> float:
    return values.parse_number(text, 1, 100)


_factor.__name__ = 'number from 1 to 100'


def add_parser(groups: Groups) -> None:
    """Add the command group to the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    hosts = groups.add_parser(
        'host', help='hosts that take secondaries').add_subparsers(
            required=True, metavar='enable|disable|drain|list|audit')
    enable = hosts.add_parser('enable', help='enable a host for secondaries',
                              description=ENABLE, formatter_class=raw)
    enable.add_argument('host', metavar='HOST')
    for option, resource in (('--vcpus', 'vCPUs'), ('--memory-mb', 'memory'),
                             ('--disk-gb', 'disk'), ('--slots', 'instances')):
        enable.add_argument(option, type=whole_number(0, _MOST), metavar='N',
                            help=f'most {resource} of all secondaries')
    enable.add_argument('--claims', type=_factor, metavar='FACTOR',
                        help='how many times the totals may be claimed, '
                             'suspended instances included (default: as '
                             'before, at first 1)')
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
    listing = hosts.add_parser('list', help='show the capacity of the hosts')
    listing.add_argument('--json', action='store_true', dest='as_json',
                         help='for programs; amounts have the names of the '
                              'options of "host enable"')
    listing.set_defaults(action='host_list')
    audit = hosts.add_parser('audit', help='find orphaned allocations',
                             description=AUDIT, formatter_class=raw)
    audit.add_argument('--delete', action='store_true',
                       help='also release them')
    audit.set_defaults(action='host_audit')


#: The command of each action; called with a HostCommands and the options.
COMMANDS: Mapping[str, Callable[..., int]] = {
    'host_enable': HostCommands.host_enable,
    'host_disable': HostCommands.host_disable,
    'host_drain': HostCommands.host_drain,
    'host_list': HostCommands.host_list,
    'host_audit': HostCommands.host_audit,
}


def run(cloud: typing.Any, action: str,
        options: Mapping[str, typing.Any]) -> int:
    """Run one of the commands on a cloud; return its exit code."""
    return COMMANDS[action](HostCommands(cloud), **options)
