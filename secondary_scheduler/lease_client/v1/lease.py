"""``openstack secondary lease ...``."""

import abc
import argparse
import collections
from collections.abc import Iterable, Mapping, Sequence
import shutil
import time
import typing

from osc_lib import exceptions
from osc_lib.cli import parseractions
from osc_lib.command import command

from secondary_scheduler.lease_client import client, gantt, times
from secondary_scheduler.leases.states import FINAL, State

_COLUMNS = ('id', 'name', 'kind', 'state', 'paused', 'nodes', 'duration',
            'start', 'deadline')
_OPEN = [str(one) for one in State if one not in FINAL]
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
                  if value is not None) for one in lease['nodes']),
        'servers': '\n'.join(lease['servers'])}
    return zip(*sorted(flat.items()), strict=True)


class _Leases:
    """What the commands share."""

    app: typing.Any

    @property
    def leases(self) -> client.Client:
        """The lease service."""
        found: client.Client = self.app.client_manager.secondary_lease
        return found

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


def _add_terms(parser: typing.Any) -> None:
    parser.add_argument(
        '--start', metavar='<time>', type=times.moment_or_none,
        default=argparse.SUPPRESS,
        help='No earlier than this, and exactly then if there is no '
             'deadline: 2027-01-31T08:00 (UTC unless it says a zone), or '
             '+2h for in two hours; "none" for as soon as there is room')
    parser.add_argument(
        '--deadline', metavar='<time>', type=times.moment_or_none,
        default=argparse.SUPPRESS,
        help='All of the duration is to be delivered by then')
    preemption = parser.add_mutually_exclusive_group()
    preemption.add_argument(
        '--preemptible', action='store_true', default=None,
        help='It may be suspended for others meanwhile (default)')
    preemption.add_argument('--not-preemptible', action='store_false',
                            dest='preemptible', help='It may not')
    parser.add_argument('--max-rate', metavar='<money>', type=float,
                        help='The most that you pay for a node and a second')


def _terms(arguments: typing.Any) -> dict[str, typing.Any]:
    """Return the terms that were given; a time of "none" is None."""
    given = vars(arguments)
    return {name: given[name] for name in ('start', 'deadline')
            if name in given} | {
        name: given[name] for name in (
            'name', 'duration', 'preemptible', 'max_rate')
        if given.get(name) is not None}


def _add_request(parser: typing.Any) -> None:
    parser.add_argument(
        '--nodes', required=True, dest='nodes',
        metavar='number=<n>,flavor=<flavor>[,image=<image>]'
                '[,network=<network>][,key_name=<key>]',
        action=parseractions.MultiKeyValueAction,
        required_keys=['number', 'flavor'],
        optional_keys=['image', 'network', 'key_name'],
        help='Nodes that are alike; repeat it for other ones')
    parser.add_argument('--duration', metavar='<time>', required=True,
                        type=times.duration,
                        help='How long they run: 90 (seconds), 2h, 1d12h')
    parser.add_argument('--immediate', action='store_true',
                        help='Now or not at all')
    _add_terms(parser)


def _request(arguments: typing.Any) -> dict[str, typing.Any]:
    """Return what a lease is to be."""
    try:
        nodes = [{**one, 'number': int(one['number'])}
                 for one in arguments.nodes]
    except ValueError as exc:
        raise exceptions.CommandError(
            '--nodes: number is how many, like number=4') from exc
    return {'nodes': nodes, 'immediate': arguments.immediate,
            **_terms(arguments)}


class CreateLease(_Leases, command.ShowOne):
    """Ask for a lease of secondary capacity.

    Four nodes for two hours, whenever there is room:

      openstack secondary lease create nightly --duration 2h \\
          --nodes number=4,flavor=secondary.small,image=debian

    Exactly at eight, and not interrupted:  --start 2027-01-31T08:00
    Done by noon, whenever that is best:    --deadline 2027-01-31T12:00
    Now or not at all:                      --immediate

    The answer comes at once, with the state "new"; "openstack secondary lease
    show nightly" tells what comes of it.
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='<name>', help='For people')
        _add_request(parser)
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Ask."""
        return _shown(self.leases.create(**_request(arguments)))


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
        _add_request(parser)
        parser.add_argument('--timeout', metavar='<time>', default=60,
                            type=times.duration,
                            help='How long to wait for the answer '
                                 '(default: 60 s)')
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Ask, and wait for the answer."""
        found = self.leases.quote(**_request(arguments),
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
        _add_terms(parser)
        return parser

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Change."""
        changes = _terms(arguments)
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
    """List what has happened to a lease.

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
