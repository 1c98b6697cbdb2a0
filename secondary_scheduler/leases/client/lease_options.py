# SPDX-License-Identifier: Apache-2.0

"""Options of the commands for the terms of a lease."""

import argparse
import typing

from osc_lib import exceptions
from osc_lib.cli import parseractions

from secondary_scheduler.leases.client import server_options, times


def add_term_options(parser: typing.Any) -> None:
    """Add the options for the terms of a lease."""
    parser.add_argument(
        '--start', metavar='<time>', type=times.parse_time_or_none,
        default=argparse.SUPPRESS,
        help='Earliest start, and exact start if there is no deadline: '
             '2027-01-31T08:00 (default time zone UTC), or +2h for in two '
             'hours; "none" for as soon as there is room')
    parser.add_argument(
        '--deadline', metavar='<time>', type=times.parse_time_or_none,
        default=argparse.SUPPRESS,
        help='Time by which the whole duration has to be delivered')
    preemption = parser.add_mutually_exclusive_group()
    preemption.add_argument(
        '--preemptible', action='store_true', default=None,
        help='Other leases may preempt (suspend) it (default)')
    preemption.add_argument('--not-preemptible', action='store_false',
                            dest='preemptible', help='No lease may preempt it')
    parser.add_argument('--max-rate', metavar='<money>', type=float,
                        help='Highest price of a node and a second')


def parse_terms(arguments: typing.Any) -> dict[str, typing.Any]:
    """Return the given terms; a time of "none" is None."""
    given = vars(arguments)
    return {name: given[name] for name in ('start', 'deadline')
            if name in given} | {
        name: given[name] for name in (
            'name', 'duration', 'preemptible', 'max_rate')
        if given.get(name) is not None}


def add_request_options(parser: typing.Any) -> None:
    """Add the options of a request for a lease, except the name."""
    parser.add_argument(
        '--nodes', required=True, dest='nodes',
        metavar='number=<n>,flavor=<flavor>[,image=<image>]'
                '[,network=<network>][,key_name=<key>]',
        action=parseractions.MultiKeyValueAction,
        required_keys=['number', 'flavor'],
        optional_keys=['image', 'network', 'key_name'],
        help='A set of equal nodes; may be repeated')
    server_options.add_options(parser)
    parser.add_argument('--duration', metavar='<time>', required=True,
                        type=times.parse_duration,
                        help='Running time: 90 (seconds), 2h, 1d12h')
    parser.add_argument('--immediate', action='store_true',
                        help='Now or not at all')
    add_term_options(parser)


def parse_request(arguments: typing.Any) -> dict[str, typing.Any]:
    """Return the arguments of a request for a lease.

    :raises CommandError: if options contradict each other.
    """
    try:
        nodes = [{**one, 'number': int(one['number'])}
                 for one in arguments.nodes]
    except ValueError as exc:
        raise exceptions.CommandError(
            '--nodes: number is a count, like number=4') from exc
    try:
        nodes = server_options.apply_options(arguments, nodes)
    except argparse.ArgumentTypeError as exc:
        raise exceptions.CommandError(str(exc)) from exc
    return {'nodes': nodes, 'immediate': arguments.immediate,
            **parse_terms(arguments)}


def add_timeout_option(parser: typing.Any) -> None:
    """Add the option of commands that wait."""
    parser.add_argument('--timeout', metavar='<time>',
                        type=times.parse_duration,
                        help='Time limit of waiting (default: none)')
