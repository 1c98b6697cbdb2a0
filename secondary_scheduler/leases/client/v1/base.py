# SPDX-License-Identifier: Apache-2.0

"""Base classes of the commands, and their output of leases."""

import abc
import argparse
import typing

from osc_lib import exceptions

from secondary_scheduler.leases.client import client, waiting


def lease_fields(lease: client.Json) -> typing.Any:
    """Return names and values of all fields of a lease, as text."""
    flat = {**lease, 'nodes': '\n'.join(
        ', '.join(f'{key}={value}' for key, value in one.items()
                  if value not in (None, False)) for one in lease['nodes']),
            'servers': '\n'.join(lease['servers']),
            'unverified': '\n'.join(f'{one["field"]}: {one["reason"]}'
                                    for one in lease['unverified'])}
    return zip(*sorted(flat.items()), strict=True)


class LeaseCommand:
    """Base class of all commands."""

    app: typing.Any

    @property
    def leases(self) -> client.Client:
        """Client of the lease service."""
        found: client.Client = self.app.client_manager.secondary_lease
        return found

    def run(self, parsed_args: typing.Any) -> int:
        """Run the command, and warn if no engine processes leases."""
        status: int = super().run(parsed_args)      # type: ignore[misc]
        if self.leases.warning:
            self.print_message(f'Warning: {self.leases.warning}')
        return status

    def print_message(self, line: str) -> None:
        """Print a line to stderr, beside the result."""
        print(line, file=self.app.stderr, flush=True)

    def wait(self, lease: str, timeout: float | None) -> client.Json:
        """Wait until all servers of a lease run; return the lease.

        :param timeout: seconds; None is unlimited.
        :raises CommandError: if the lease ends otherwise, or at the timeout.
        """
        try:
            return waiting.wait_for_lease(self.leases, lease, timeout,
                                          self.print_message)
        except waiting.WaitError as exc:
            raise exceptions.CommandError(str(exc)) from exc

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return a parser whose help keeps the line breaks of examples."""
        parser = super().get_parser(prog_name)      # type: ignore[misc]
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        return parser


class SingleLeaseCommand(LeaseCommand):
    """Base class of commands on one lease."""

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('lease', metavar='<lease>',
                            help='Id of a lease, or its name if it is unique')
        return parser


class MultipleLeasesCommand(LeaseCommand):
    """Base class of commands that apply an operation to several leases."""

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('leases', metavar='<lease>', nargs='+',
                            help='Ids of leases, or names that are unique')
        return parser

    def take_action(self, arguments: typing.Any) -> None:
        """Apply the operation to each lease; report failures."""
        failed = 0
        for one in arguments.leases:
            try:
                self.apply_to(self.leases.find(one)['id'])
            except client.LeaseError as exc:
                failed += 1
                print(f'{one}: {exc}', file=self.app.stderr)
        if failed:
            raise exceptions.CommandError(
                f'{failed} of {len(arguments.leases)} leases: not done.')

    @abc.abstractmethod
    def apply_to(self, lease: str) -> None:
        """Apply the operation to one lease."""
