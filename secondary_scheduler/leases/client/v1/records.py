# SPDX-License-Identifier: Apache-2.0

"""``openstack secondary capacity``, ``operation`` and ``accounting``."""

from collections.abc import Mapping
import typing

from osc_lib.command import command

from secondary_scheduler.leases.client import times
from secondary_scheduler.leases.client.v1 import base

#: Columns of the inventory, by resource class.
_CLASSES = {'CUSTOM_SECONDARY_VCPU': 'vcpu',
            'CUSTOM_SECONDARY_MEMORY_MB': 'memory_mb',
            'CUSTOM_SECONDARY_DISK_GB': 'disk_gb',
            'CUSTOM_SECONDARY_SLOT': 'slot'}
_UNKNOWN = '?'


class ListCapacity(base.LeaseCommand, command.Lister):
    """List hosts that take secondaries, with their use (admin).

      openstack secondary capacity list
      openstack secondary capacity list --host node1

    "cpu" is the use in percent of the host by primaries and by secondaries,
    and the lowest limit of a policy. The resources are used/allowed now/total.
    "?" is an unknown value.
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='<host>', help='Only this host')
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Return the columns and rows of the list."""
        columns = ('host', 'admission', 'cpu', *_CLASSES.values(), 'policies',
                   'at_floor', 'last_report', 'reason')
        return columns, [_host_row(one) for one in self.leases.capacity(
            host=arguments.host)]


class ListOperation(base.LeaseCommand, command.Lister):
    """List operations on secondaries, the newest plan first (admin).

      openstack secondary operation list
      openstack secondary operation list --host node1 --since 2027-01-31T08:00
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='<host>',
                            help='Only plans with an operation from or to it')
        parser.add_argument('--server', metavar='<server>',
                            help='Only plans with an operation on this server '
                                 '(its id)')
        parser.add_argument('--request', metavar='<request>',
                            help='Only plans of this request: preempt, '
                                 'return, drain, select or leases')
        parser.add_argument('--since', metavar='<time>',
                            type=times.parse_time,
                            help='Only plans made since then')
        parser.add_argument('--limit', metavar='<number>', type=int,
                            default=20, help='Number of plans (default: 20)')
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Return the columns and rows of the list."""
        columns = ('created_at', 'request', 'plan_state', 'kind', 'server',
                   'source', 'target', 'state', 'began_at', 'ended_at',
                   'predicted', 'reason')
        page = self.leases.operations_page(
            host=arguments.host, server=arguments.server,
            request=arguments.request, since=arguments.since,
            limit=arguments.limit)
        return columns, [
            (plan['created_at'], plan['request'], plan['state'], one['kind'],
             one['server_name'] or one['server_id'], one['source'],
             one['target'], one['state'], one['began_at'], one['ended_at'],
             one['predicted'], one['reason'])
            for plan in page.items for one in plan['operations']]


class ShowAccounting(base.LeaseCommand, command.Lister):
    """Show served time and charge of leases by project.

    Of the present month, for the own project:

      openstack secondary accounting show

    Of January, for all projects (admin):

      openstack secondary accounting show --begin 2027-01-01 \\
          --end 2027-02-01 --all-projects

    "served" is in seconds, "node_seconds" the same times the nodes. Days are
    in UTC, and --end is the day after the last one.
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--begin', metavar='<day>', type=times.parse_day,
                            help='First day (default: of the present month)')
        parser.add_argument('--end', metavar='<day>', type=times.parse_day,
                            help='Day after the last one (default: tomorrow)')
        parser.add_argument('--all-projects', action='store_true',
                            help='Accounts of all projects (admin)')
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Return the columns and rows of the list."""
        columns = ('project_id', 'leases', 'served', 'node_seconds', 'charge')
        found = self.leases.accounting(
            arguments.begin, arguments.end, arguments.all_projects or None)
        if found['since'] is not None and found['since'] > found['begin']:
            self.print_message('Accounts begin on '
                               f'{found["since"]}: earlier time is missing.')
        return columns, [tuple(one[name] for name in columns)
                         for one in found['projects']]


def _host_row(host: Mapping[str, typing.Any]) -> tuple[typing.Any, ...]:
    cpu = next((one for one in host['use'] if one['resource'] == 'cpu'), None)
    amounts = {one['resource_class']: '/'.join(
        str(one[name]) for name in ('used', 'allowed', 'total'))
        for one in host['inventory']}
    states = [f'{one["policy"]}: {one["state"]}' for one in host['policies']]
    return (host['host'], host['admission'],
            _UNKNOWN if cpu is None else '/'.join(
                _format_number(cpu[name])
                for name in ('primary', 'secondary', 'limit')),
            *(amounts.get(name, '-') for name in _CLASSES),
            '\n'.join(states) or _UNKNOWN,
            _format_number(host['at_floor']),
            host['reported_at'] or 'never', host['reason'])


def _format_number(value: float | None) -> str:
    return _UNKNOWN if value is None else f'{value:g}'
