"""``openstack secondary lease ...``."""

import abc
import argparse
import collections
from collections.abc import Iterable, Mapping, Sequence
import shutil
import time
import typing

from osc_lib import exceptions
from osc_lib.command import command

from secondary_scheduler.leases.client import (
    client,
    gantt,
    lease_options,
    times,
    waiting,
)
from secondary_scheduler.model.lease_states import FINAL, LeaseState

_COLUMNS = ('id', 'name', 'kind', 'state', 'paused', 'nodes', 'duration',
            'start', 'deadline')
_OPEN = [str(one) for one in LeaseState if one not in FINAL]
#: How many leases a timeline names that it does not show.
_MOST = 20
_STATES = ('new', 'pending', 'queued', 'scheduled', 'active', 'done')


def _nodes(nodes: Iterable[Mapping[str, typing.Any]]) -> str:
    return ', '.join(f'{one["number"]} {one["flavor"]}' for one in nodes)


def _row(lease: client.Json) -> tuple[typing.Any, ...]:
    return tuple(_nodes(lease[name]) if name == 'nodes' else lease[name]
                 for name in _COLUMNS)


def _shown(lease: client.Json) -> typing.Any:
    flat = {**lease, 'nodes': '\n'.join(
        ', '.join(f'{key}={value}' for key, value in one.items()
                  if value not in (None, False)) for one in lease['nodes']),
            'servers': '\n'.join(lease['servers']),
            'unverified': '\n'.join(f'{one["field"]}: {one["reason"]}'
                                    for one in lease['unverified'])}
    return zip(*sorted(flat.items()), strict=True)


class _Leases:
    """What the commands share."""

    app: typing.Any

    @property
    def leases(self) -> client.Client:
        """The lease service."""
        found: client.Client = self.app.client_manager.secondary_lease
        return found

    def run(self, parsed_args: typing.Any) -> int:
        """Run it, and tell if no engine looks at leases."""
        status: int = super().run(parsed_args)      # type: ignore[misc]
        if self.leases.warning:
            self.tell(f'Warning: {self.leases.warning}')
        return status

    def tell(self, line: str) -> None:
        """Print a line beside the result."""
        print(line, file=self.app.stderr, flush=True)

    def wait(self, lease: str, timeout: float | None) -> client.Json:
        """Return a lease as soon as all of its servers run.

        :raises CommandError: if they will not, or not in time.
        """
        try:
            return waiting.wait(self.leases, lease, timeout, self.tell)
        except waiting.Failed as exc:
            raise exceptions.CommandError(str(exc)) from exc

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return a parser whose help shows examples as they are typed."""
        parser = super().get_parser(prog_name)      # type: ignore[misc]
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        return parser


class _OfOne(_Leases):
    """A command about one lease."""

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('lease', metavar='<lease>',
                            help='Its id, or its name if only one has it')
        return parser


class _OfSome(_Leases):
    """A command that does the same to several leases."""

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('leases', metavar='<lease>', nargs='+',
                            help='Ids, or names that only one has')
        return parser

    def take_action(self, arguments: typing.Any) -> None:
        """Do it to each; say which went wrong."""
        failed = 0
        for one in arguments.leases:
            try:
                self.act(self.leases.find(one)['id'])
            except client.LeaseError as exc:
                failed += 1
                print(f'{one}: {exc}', file=self.app.stderr)
        if failed:
            raise exceptions.CommandError(
                f'{failed} of {len(arguments.leases)} leases: not done.')

    @abc.abstractmethod
    def act(self, lease: str) -> None:
        """Do it to one."""


class CreateLease(_Leases, command.ShowOne):
    """Ask for a lease of secondary capacity.

    Four nodes for two hours, whenever there is room:

      openstack secondary lease create nightly --duration 2h \\
          --nodes number=4,flavor=secondary.small,image=debian

    Exactly at eight, and not interrupted:  --start 2027-01-31T08:00
    Done by noon, whenever that is best:    --deadline 2027-01-31T12:00
    Now or not at all:                      --immediate

    With a program for the servers, on two networks, with a volume:

      openstack secondary lease create batch --duration 1h --wait \\
          --nodes number=1,flavor=secondary.small,image=debian \\
          --user-data job.sh --network private --network storage \\
          --block-device source_type=volume,uuid=ID,destination_type=volume

    The answer comes at once, with the state "new"; "openstack secondary lease
    show nightly" tells what comes of it. With --wait it comes when all
    servers run; what happens meanwhile is told on stderr, and a lease that
    is refused or fails ends the command with status 1.
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='<name>', help='For people')
        lease_options.add_request(parser)
        parser.add_argument('--wait', action='store_true',
                            help='Wait until all of its servers run')
        lease_options.add_timeout(parser)
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Ask, and wait if that is wanted."""
        made = self.leases.create(**lease_options.request(arguments))
        if arguments.wait:
            made = self.wait(made['id'], arguments.timeout)
        return _shown(made)


class WaitForLease(_OfOne, command.ShowOne):
    """Wait until all servers of a lease run.

      openstack secondary lease wait nightly

    What happens meanwhile is told on stderr. If the lease is refused, fails
    or is cancelled the command ends with status 1, and the reason.
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        lease_options.add_timeout(parser)
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Wait."""
        return _shown(self.wait(self.leases.find(arguments.lease)['id'],
                                arguments.timeout))


class QuoteLease(_Leases, command.ShowOne):
    """Ask what a lease would cost and when it would begin.

    The options are those of "create"; nothing is promised, and no lease is
    made:

      openstack secondary lease quote --duration 2h \\
          --nodes number=4,flavor=secondary.small

    If it would not be accepted "reason" says why, and "start" is when it
    could begin instead (None: never). "rate" is for a node and a second,
    "price" for all.
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        lease_options.add_request(parser)
        parser.add_argument('--timeout', metavar='<time>', default=60,
                            type=times.duration,
                            help='How long to wait for the answer '
                                 '(default: 60 s)')
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Ask, and wait for the answer."""
        found = self.leases.quote(**lease_options.request(arguments),
                                  patience=arguments.timeout)
        return zip(*sorted({'kind': found['kind'], **found['offer']}.items()),
                   strict=True)


class ListLease(_Leases, command.Lister):
    """List leases, the oldest first.

    Those that are not over yet:

      openstack secondary lease list --state queued --state active
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--state', metavar='<state>', action='append',
            help=f'Only those in it: {", ".join(_STATES)} ...; may be '
                 'repeated')
        parser.add_argument('--name', metavar='<name>',
                            help='Only those that are called so')
        parser.add_argument('--all-projects', action='store_true',
                            help='Those of all projects (admin)')
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """List."""
        return _COLUMNS, [_row(one) for one in self.leases.leases(
            state=arguments.state, name=arguments.name,
            all_projects=arguments.all_projects or None)]


class ShowLease(_OfOne, command.ShowOne):
    """Show a lease.

      openstack secondary lease show nightly
    """

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Show."""
        return _shown(self.leases.find(arguments.lease))


class SetLease(_OfOne, command.ShowOne):
    """Change the name of a lease, or its terms while it is new.

      openstack secondary lease set --deadline +6h nightly
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--name', metavar='<name>')
        parser.add_argument('--duration', metavar='<time>',
                            type=times.duration)
        lease_options.add_terms(parser)
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Change."""
        changes = lease_options.terms(arguments)
        if not changes:
            raise exceptions.CommandError(
                'Nothing to change: give --name, --duration, --start, '
                '--deadline, --preemptible or --max-rate.')
        lease = self.leases.find(arguments.lease)
        return _shown(self.leases.update(
            lease['id'], **changes, revision=lease['revision']))


class PauseLease(_OfSome, command.Command):
    """Keep leases from being scheduled; those that run are suspended.

      openstack secondary lease pause nightly
    """

    def act(self, lease: str) -> None:
        """Pause one."""
        self.leases.act(lease, 'pause')


class UnpauseLease(_OfSome, command.Command):
    """Let paused leases be scheduled again.

      openstack secondary lease unpause nightly
    """

    def act(self, lease: str) -> None:
        """Unpause one."""
        self.leases.act(lease, 'unpause')


class CancelLease(_OfSome, command.Command):
    """End leases, and their servers with them.

      openstack secondary lease cancel nightly
    """

    def act(self, lease: str) -> None:
        """Cancel one."""
        self.leases.act(lease, 'cancel')


class DeleteLease(_OfSome, command.Command):
    """Forget leases that are over, or still new.

    Cancel those that are neither, and delete them when they are over:

      openstack secondary lease cancel nightly
      openstack secondary lease delete nightly
    """

    def act(self, lease: str) -> None:
        """Delete one."""
        self.leases.delete(lease)


class ListLeaseEvents(_OfOne, command.Lister):
    """List what has happened to a lease, in the order of time.

      openstack secondary lease events nightly
    """

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """List."""
        columns = ('time', 'kind', 'state', 'text')
        lease = self.leases.find(arguments.lease)
        return columns, [tuple(one[name] for name in columns)
                         for one in self.leases.events(lease['id'])]


class ShowTimeline(_Leases, command.Command):
    """Draw when leases hold hosts, as it is planned.

      openstack secondary lease timeline
      openstack secondary lease timeline --begin +0s --end +1d nightly

    Below the chart are the leases that are not over and hold no hosts in it,
    with their states; "openstack secondary lease show" tells more of one.
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('lease', metavar='<lease>', nargs='?',
                            help='Only this one; its id or its name')
        parser.add_argument('--begin', metavar='<time>', type=times.moment,
                            help='Where the chart begins')
        parser.add_argument('--end', metavar='<time>', type=times.moment,
                            help='Where the chart ends')
        parser.add_argument('--all-projects', action='store_true',
                            help='Leases of all projects (admin)')
        parser.add_argument('--width', metavar='<columns>', type=int,
                            help='(default: of the screen)')
        return parser

    def take_action(self, arguments: typing.Any) -> None:
        """Draw."""
        window = {'begin': arguments.begin, 'end': arguments.end}
        wide = {'all_projects': arguments.all_projects or None}
        if arguments.lease is None:
            slots = self.leases.timeline(**window, **wide)
            found = list(self.leases.leases(state=_OPEN, **wide))
        else:
            found = [self.leases.find(arguments.lease)]
            slots = self.leases.timeline(found[0]['id'], **window)
        width = arguments.width or shutil.get_terminal_size().columns
        for line in (*gantt.draw(slots, _labels(found), width, **{
                name: times.seconds(moment)
                for name, moment in window.items() if moment is not None},
                now=int(time.time())), *_elsewhere(found, slots)):
            print(line, file=self.app.stdout)


def _labels(leases: Sequence[client.Json]) -> dict[str, str]:
    """Return what to call leases, by id; each differently."""
    same = collections.Counter(one['name'] for one in leases)
    return {one['id']: one['id'] if not one['name'] else
            one['name'] if same[one['name']] == 1 else
            f'{one["name"]} {one["id"][:8]}' for one in leases}


def _elsewhere(leases: Sequence[client.Json],
               slots: Sequence[client.Json]) -> list[str]:
    """Return a line of those leases that a chart does not show."""
    labels = _labels(leases)
    shown = {one['lease_id'] for one in slots}
    rest = [f'{labels[one["id"]]} ({one["state"]})' for one in leases
            if one['id'] not in shown]
    more = [f'and {len(rest) - _MOST} more'] if len(rest) > _MOST else []
    return [f'Not in it: {", ".join(rest[:_MOST] + more)}'] if rest else []
