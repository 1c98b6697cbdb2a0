"""Options of the commands for what a lease is to be."""

import argparse
import typing

from osc_lib import exceptions
from osc_lib.cli import parseractions

from secondary_scheduler.leases.client import server_options, times


def add_terms(parser: typing.Any) -> None:
    """Add the options for the terms of a lease."""
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


def terms(arguments: typing.Any) -> dict[str, typing.Any]:
    """Return the terms that were given; a time of "none" is None."""
    given = vars(arguments)
    return {name: given[name] for name in ('start', 'deadline')
            if name in given} | {
        name: given[name] for name in (
            'name', 'duration', 'preemptible', 'max_rate')
        if given.get(name) is not None}


def add_request(parser: typing.Any) -> None:
    """Add the options for a new lease, but its name."""
    parser.add_argument(
        '--nodes', required=True, dest='nodes',
        metavar='number=<n>,flavor=<flavor>[,image=<image>]'
                '[,network=<network>][,key_name=<key>]',
        action=parseractions.MultiKeyValueAction,
        required_keys=['number', 'flavor'],
        optional_keys=['image', 'network', 'key_name'],
        help='Nodes that are alike; repeat it for other ones')
    server_options.add(parser)
    parser.add_argument('--duration', metavar='<time>', required=True,
                        type=times.duration,
                        help='How long they run: 90 (seconds), 2h, 1d12h')
    parser.add_argument('--immediate', action='store_true',
                        help='Now or not at all')
    add_terms(parser)


def request(arguments: typing.Any) -> dict[str, typing.Any]:
    """Return what a lease is to be.

    :raises CommandError: if options contradict each other.
    """
    try:
        nodes = [{**one, 'number': int(one['number'])}
                 for one in arguments.nodes]
    except ValueError as exc:
        raise exceptions.CommandError(
            '--nodes: number is how many, like number=4') from exc
    try:
        nodes = server_options.apply(arguments, nodes)
    except argparse.ArgumentTypeError as exc:
        raise exceptions.CommandError(str(exc)) from exc
    return {'nodes': nodes, 'immediate': arguments.immediate,
            **terms(arguments)}


def add_timeout(parser: typing.Any) -> None:
    """Add the option of the commands that wait."""
    parser.add_argument('--timeout', metavar='<time>', type=times.duration,
                        help='How long to wait (default: until they run)')
