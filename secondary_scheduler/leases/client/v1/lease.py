# SPDX-License-Identifier: Apache-2.0

"""``openstack secondary lease ...``, except for the timeline."""

from collections.abc import Iterable, Mapping
import typing

from osc_lib import exceptions
from osc_lib.command import command

from secondary_scheduler.leases.client import client, lease_options, times
from secondary_scheduler.leases.client.v1 import base

_STATES = ('new', 'pending', 'queued', 'scheduled', 'active', 'done')


#: Columns of a list of leases.
COLUMNS = ('id', 'name', 'kind', 'state', 'paused', 'nodes', 'duration',
           'start', 'deadline')


def lease_row(lease: client.Json) -> tuple[typing.Any, ...]:
    """Return the row of a lease in a list."""
    return tuple(_format_nodes(lease[name]) if name == 'nodes'
                 else lease[name] for name in COLUMNS)


def _format_nodes(nodes: Iterable[Mapping[str, typing.Any]]) -> str:
    return ', '.join(f'{one["number"]} {one["flavor"]}' for one in nodes)


class CreateLease(base.LeaseCommand, command.ShowOne):
    """Request a lease of secondary capacity.

    Four nodes for two hours, as soon as there is room:

      openstack secondary lease create nightly --duration 2h \\
          --nodes number=4,flavor=secondary.small,image=debian

    Exactly at eight:   --start 2027-01-31T08:00
    Done by noon:       --deadline 2027-01-31T12:00
    Now or not at all:  --immediate

    With a program for the servers, on two networks, with a volume:

      openstack secondary lease create batch --duration 1h --wait \\
          --nodes number=1,flavor=secondary.small,image=debian \\
          --user-data job.sh --network private --network storage \\
          --block-device source_type=volume,uuid=ID,destination_type=volume

    The command returns at once, with the state "new"; "openstack secondary
    lease show nightly" shows later states. With --wait it returns when all
    servers run, and prints events to stderr; if the lease is rejected or
    fails, the exit status is 1.
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='<name>',
                            help='Name; need not be unique')
        lease_options.add_request_options(parser)
        parser.add_argument('--wait', action='store_true',
                            help='Wait until all servers run')
        lease_options.add_timeout_option(parser)
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Request the lease, and wait for it if asked."""
        made = self.leases.create(**lease_options.parse_request(arguments))
        if arguments.wait:
            made = self.wait(made['id'], arguments.timeout)
        return base.lease_fields(made)


class WaitForLease(base.SingleLeaseCommand, command.ShowOne):
    """Wait until all servers of a lease run.

      openstack secondary lease wait nightly

    Events are printed to stderr. If the lease is rejected, fails or is
    cancelled, the exit status is 1 and the reason is printed.
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        lease_options.add_timeout_option(parser)
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Wait; return the lease."""
        lease = self.leases.find(arguments.lease)['id']
        return base.lease_fields(self.wait(lease, arguments.timeout))


class QuoteLease(base.LeaseCommand, command.ShowOne):
    """Request a quote: price and start of a possible lease.

    The options are those of "create". The quote is without obligation, and
    no lease is made:

      openstack secondary lease quote --duration 2h \\
          --nodes number=4,flavor=secondary.small

    If the lease would not be accepted, "reason" says why, and "start" is the
    next possible start (None: never). "rate" is the price of a node and a
    second, "price" the total.
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        lease_options.add_request_options(parser)
        parser.add_argument('--timeout', metavar='<time>', default=60,
                            type=times.parse_duration,
                            help='Time limit for the answer (default: '
                                 '60 s)')
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Request a quote, and wait for the answer."""
        found = self.leases.quote(**lease_options.parse_request(arguments),
                                  patience=arguments.timeout)
        return zip(*sorted({'kind': found['kind'], **found['offer']}.items()),
                   strict=True)


class ListLease(base.LeaseCommand, command.Lister):
    """List leases, the oldest first.

    Only queued and active ones:

      openstack secondary lease list --state queued --state active
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--state', metavar='<state>', action='append',
            help=f'Only leases in this state: {", ".join(_STATES)} ...; may '
                 'be repeated')
        parser.add_argument('--name', metavar='<name>',
                            help='Only leases of this name')
        parser.add_argument('--all-projects', action='store_true',
                            help='Leases of all projects (admin)')
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Return the columns and rows of the list."""
        found = self.leases.leases(
            state=arguments.state, name=arguments.name,
            all_projects=arguments.all_projects or None)
        return COLUMNS, [lease_row(one) for one in found]


class ShowLease(base.SingleLeaseCommand, command.ShowOne):
    """Show a lease.

      openstack secondary lease show nightly
    """

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Return the fields of the lease."""
        return base.lease_fields(self.leases.find(arguments.lease))


class SetLease(base.SingleLeaseCommand, command.ShowOne):
    """Change the name of a lease, or its terms while it is new.

      openstack secondary lease set --deadline +6h nightly
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--name', metavar='<name>')
        parser.add_argument('--duration', metavar='<time>',
                            type=times.parse_duration)
        lease_options.add_term_options(parser)
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Change the lease; return its fields."""
        changes = lease_options.parse_terms(arguments)
        if not changes:
            raise exceptions.CommandError(
                'Nothing to change: give --name, --duration, --start, '
                '--deadline, --preemptible or --max-rate.')
        lease = self.leases.find(arguments.lease)
        return base.lease_fields(self.leases.update(
            lease['id'], **changes, revision=lease['revision']))


class PauseLease(base.MultipleLeasesCommand, command.Command):
    """Pause leases: they are not scheduled, and suspended if they run.

      openstack secondary lease pause nightly
    """

    def apply_to(self, lease: str) -> None:
        """Pause a lease."""
        self.leases.act(lease, 'pause')


class UnpauseLease(base.MultipleLeasesCommand, command.Command):
    """Unpause leases, so that they are scheduled again.

      openstack secondary lease unpause nightly
    """

    def apply_to(self, lease: str) -> None:
        """Unpause a lease."""
        self.leases.act(lease, 'unpause')


class CancelLease(base.MultipleLeasesCommand, command.Command):
    """Cancel leases: they end, and their servers are deleted.

      openstack secondary lease cancel nightly
    """

    def apply_to(self, lease: str) -> None:
        """Cancel a lease."""
        self.leases.act(lease, 'cancel')


class DeleteLease(base.MultipleLeasesCommand, command.Command):
    """Delete leases that are over or new.

    Cancel other leases, and delete them when they are over:

      openstack secondary lease cancel nightly
      openstack secondary lease delete nightly
    """

    def apply_to(self, lease: str) -> None:
        """Delete a lease."""
        self.leases.delete(lease)


class ListLeaseEvents(base.SingleLeaseCommand, command.Lister):
    """List the events of a lease in the order of time.

      openstack secondary lease events nightly
    """

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Return the columns and rows of the list."""
        columns = ('time', 'kind', 'state', 'text')
        lease = self.leases.find(arguments.lease)
        return columns, [tuple(one[name] for name in columns)
                         for one in self.leases.events(lease['id'])]
