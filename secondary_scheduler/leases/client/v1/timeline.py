# SPDX-License-Identifier: Apache-2.0

"""``openstack secondary lease timeline``."""

import collections
from collections.abc import Sequence
import shutil
import time
import typing

from osc_lib.command import command

from secondary_scheduler.leases.client import client, gantt, times
from secondary_scheduler.leases.client.v1 import base
from secondary_scheduler.model.lease_states import FINAL, LeaseState

_OPEN = [str(one) for one in LeaseState if one not in FINAL]
#: Largest number of leases that the line below the chart names.
_MOST = 20


class ShowTimeline(base.LeaseCommand, command.Command):
    """Draw the planned slots of leases as a chart.

      openstack secondary lease timeline
      openstack secondary lease timeline --begin +0s --end +1d nightly

    The line below the chart names leases that are not over and have no slot
    in it, with their states; "openstack secondary lease show" shows the
    details.
    """

    def get_parser(self, prog_name: str) -> typing.Any:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument('lease', metavar='<lease>', nargs='?',
                            help='Only this lease; its id or its name')
        parser.add_argument('--begin', metavar='<time>',
                            type=times.parse_time,
                            help='Begin of the chart')
        parser.add_argument('--end', metavar='<time>',
                            type=times.parse_time, help='End of the chart')
        parser.add_argument('--all-projects', action='store_true',
                            help='Leases of all projects (admin)')
        parser.add_argument('--width', metavar='<columns>', type=int,
                            help='Width (default: of the terminal)')
        return parser

    def take_action(self, arguments: typing.Any) -> None:
        """Draw the chart."""
        window = {'begin': arguments.begin, 'end': arguments.end}
        wide = {'all_projects': arguments.all_projects or None}
        if arguments.lease is None:
            slots = self.leases.timeline(**window, **wide)
            found = list(self.leases.leases(state=_OPEN, **wide))
        else:
            found = [self.leases.find(arguments.lease)]
            slots = self.leases.timeline(found[0]['id'], **window)
        width = (shutil.get_terminal_size().columns
                 if arguments.width is None else arguments.width)
        for line in (*gantt.draw_chart(slots, _labels(found), width, **{
                name: times.to_seconds(moment)
                for name, moment in window.items() if moment is not None},
                now=int(time.time())), *_not_shown(found, slots)):
            print(line, file=self.app.stdout)


def _labels(leases: Sequence[client.Json]) -> dict[str, str]:
    """Return a unique label of each lease, by id."""
    same = collections.Counter(one['name'] for one in leases)
    return {one['id']: one['id'] if not one['name'] else
            one['name'] if same[one['name']] == 1 else
            f'{one["name"]} {one["id"][:8]}' for one in leases}


def _not_shown(leases: Sequence[client.Json],
               slots: Sequence[client.Json]) -> list[str]:
    """Return a line with the leases that the chart does not show."""
    labels = _labels(leases)
    shown = {one['lease_id'] for one in slots}
    rest = [f'{labels[one["id"]]} ({one["state"]})' for one in leases
            if one['id'] not in shown]
    more = [f'and {len(rest) - _MOST} more'] if len(rest) > _MOST else []
    return [f'Not in it: {", ".join(rest[:_MOST] + more)}'] if rest else []
