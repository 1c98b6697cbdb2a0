# SPDX-License-Identifier: Apache-2.0

"""Harm of controlled secondaries to a primary, in alternating windows.

A PostgreSQL server is the primary of one bare host of one CPU; guests there
saturate what they may use of its CPU, of a disk and of a link.  Windows of
20 s take turns: ``alone`` (guests held still), ``controlled`` (beside them,
with the agent), and now and then ``uncontrolled`` (beside them, without).  Of
each window the first part is transactions at a rate that needs half of the
host, whose latency counts from when each was due; the rest is as many
transactions as the server can do.

First come pairs of ``alone`` and ``alone``: what two equal windows differ by.
Ratios are of neighbouring windows, their mean with its 90 % interval (of
logarithms, Student's t).  Where an interval reaches over its bound the number
of pairs is told that would make it narrow enough.

    python3 tools/box bare benchmarks/primary_harm.py [--pairs 30] [--json F]
"""

import argparse
from collections.abc import Sequence
import json
import math
import pathlib
import subprocess
import tempfile
import time

import numpy as np
import rig as rigs

from benchmarks import forms
import cgroups
import devices
import hosts
import layout
import report
from secondary_scheduler.simulation.statistics import t_quantile
from shell import say
import workload

#: Seconds of a window: at a rate, and as fast as it goes at least.
OPEN_S, CLOSED_S = 12, 4
#: Of which these do not count, after a change of condition.
SETTLE_S = 2
POLICIES = [f'{bound} for 15s on host:{rigs.HOST}' for bound in (
    'cpu <= 90%', 'disk_in <= 60%', 'net_out <= 60%')]
#: What guests do, and with what.
WORKS = {'cpu': '', 'disk': devices.DISK_XML,
         f'net:{devices.SINK}': devices.LINK_XML}
BOUNDS = {'throughput': (0.99, math.inf), 'p99': (0.0, 1.10)}


class Primary:
    """The server, and its clients on the machine's other CPUs."""

    def __init__(self, directory: str, seconds: int) -> None:
        hosts.start_primary(rigs.HOST)
        time.sleep(3)
        self._open = seconds
        self._closed = max(CLOSED_S, seconds * 2 // 3)
        self._address = layout.host_address(rigs.HOST)
        self._directory = pathlib.Path(directory)
        (self._directory / 'transaction.sql').write_text(workload.TRANSACTION)
        subprocess.run([workload.pgbench(), '-h', self._address, '-U',
                        'postgres', '-i', '-s', '1', '-q', 'postgres'],
                       check=True, capture_output=True)
        self._rate = max(1, round(self._pgbench(self._closed)[0] / 2))

    def _pgbench(self, seconds: int, rate: int = 0
                 ) -> tuple[float, list[tuple[float, float]]]:
        """Return transactions a second, and (end, latency in ms) of each."""
        for old in self._directory.glob('log*'):
            old.unlink()
        began = time.time()
        subprocess.run(
            [workload.pgbench(), '-h', self._address, '-U', 'postgres', '-n',
             '-f', str(self._directory / 'transaction.sql'), '-M', 'prepared',
             '-c', '8', '-j', '1', '-T', str(seconds), '-l', '--log-prefix',
             str(self._directory / 'log'), '--random-seed=1',
             *([f'-R{rate}'] if rate else []), 'postgres'],
            check=True, capture_output=True)
        rows = [line.split() for path in self._directory.glob('log*')
                for line in path.read_text().splitlines()]
        done = [(int(row[4]) + int(row[5]) / 1e6 - began, int(row[2]) / 1000)
                for row in rows if row[2].isdigit()]
        counted = [one for one in done if one[0] >= SETTLE_S]
        return len(counted) / (seconds - SETTLE_S), counted

    def window(self) -> dict[str, float]:
        """Return what one window shows."""
        _, done = self._pgbench(self._open, self._rate)
        latencies = [latency for _, latency in done]
        return {'throughput': self._pgbench(self._closed)[0],
                **{f'p{q}': report.percentile(latencies, q / 100)
                   for q in (50, 99)}}


def ratio(ones: Sequence[float], others: Sequence[float]
          ) -> dict[str, float]:
    """Return the mean ratio of pairs and its 90 % interval."""
    logs = np.log(np.array(ones) / np.array(others))
    half = (t_quantile(0.95, len(logs) - 1) * logs.std(ddof=1)
            / math.sqrt(len(logs)))
    return {'ratio': math.exp(logs.mean()),
            'low': math.exp(logs.mean() - half),
            'high': math.exp(logs.mean() + half),
            'sd': float(logs.std(ddof=1)), 'pairs': len(logs)}


def pairs_needed(figure: dict[str, float], name: str) -> int | None:
    """Return how many pairs show that a bound holds, None if none do."""
    low, high = BOUNDS[name]
    room = min(math.log(high / figure['ratio']) if high < math.inf
               else math.inf,
               math.log(figure['ratio'] / low) if low else math.inf)
    if room <= 0:
        return None
    return math.ceil((1.645 * figure['sd'] / room) ** 2) + 2


def verdict(figure: dict[str, float], name: str) -> str:
    """Say whether a figure keeps its bound."""
    low, high = BOUNDS[name]
    if figure['low'] >= low and figure['high'] <= high:
        return 'holds'
    needed = pairs_needed(figure, name)
    return (f'not shown: {needed} pairs would show it' if needed
            else 'does not hold')


def measure(options: argparse.Namespace) -> dict:
    """Let the windows take turns."""
    rows: dict[str, list[dict[str, float]]] = {
        name: [] for name in ('same', 'alone', 'controlled', 'before',
                              'uncontrolled')}
    # Who swallows what guests send is not to run on the host's CPU.
    with (tempfile.TemporaryDirectory() as directory, rigs.quiet() as rig,
          devices.disk() as disk, devices.link(rigs.HOST)):
        guests = [one for work, xml in WORKS.items() for one in rig.boot(
            options.guests if work == 'cpu' else 1, work,
            devices=xml.format(disk=disk))]
        with cgroups.held(rigs.MACHINE):
            primary = Primary(directory, options.seconds)
            for _ in range(2 * options.same):
                rows['same'].append(primary.window())
        say('two equal windows: ' + describe(
            rows['same'][::2], rows['same'][1::2]))
        for number in range(options.pairs):
            with rig.agent(*POLICIES, own=[*devices.options(disk),
                                           *options.set]) as agent:
                agent.wait_control(len(guests))
                with cgroups.held(rigs.MACHINE):
                    rows['alone'].append(primary.window())
                time.sleep(SETTLE_S)
                rows['controlled'].append(primary.window())
            if number % options.without == 0:
                rows['before'].append(rows['alone'][-1])
                rows['uncontrolled'].append(primary.window())
            if number % 5 == 4:
                say(f'{number + 1} pairs, controlled: ' + describe(
                    rows['controlled'], rows['alone']))
    return rows


def describe(ones: list[dict], others: list[dict]) -> str:
    """Return the ratios of all figures in words."""
    if len(ones) < 2:
        return 'too few pairs'
    parts = []
    for name in ones[0]:
        one = ratio([row[name] for row in ones], [row[name] for row in others])
        parts.append(f'{name} {one["ratio"]:.3f} x [{one["low"]:.3f}, '
                     f'{one["high"]:.3f}]')
    return ', '.join(parts)


def main() -> None:
    """Measure, judge, print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--pairs', type=int, default=30)
    parser.add_argument('--same', type=int, default=6,
                        help='pairs of equal windows (default %(default)s)')
    parser.add_argument('--without', type=int, default=5, metavar='N',
                        help='one uncontrolled window in N pairs')
    parser.add_argument('--seconds', type=int, default=OPEN_S, metavar='N',
                        help='of a window at a rate; as fast as it goes two '
                             'thirds of that (default %(default)s)')
    parser.add_argument('--guests', type=int, default=2, metavar='N',
                        help='guests that compute, beside one that writes to '
                             'a disk and one that sends (default %(default)s)'
                        )
    parser.add_argument('--set', nargs='*', default=[], metavar='OPTION=VALUE',
                        help='options of [secondary_agent]')
    parser.add_argument('--json', metavar='FILE', help='write all windows')
    forms.add_quick(parser, pairs=2, same=2, without=1, guests=1,
                    seconds=4)
    options = parser.parse_args()
    rows = measure(options)
    found = {}
    for name, (ones, others) in {
            'same': (rows['same'][::2], rows['same'][1::2]),
            'controlled': (rows['controlled'], rows['alone']),
            'uncontrolled': (rows['uncontrolled'], rows['before'])}.items():
        found[name] = {figure: ratio([row[figure] for row in ones],
                                     [row[figure] for row in others])
                       for figure in ones[0]}
        say(f'{name}: {describe(ones, others)}')
    for figure in BOUNDS:
        say(f'{figure}: {verdict(found["controlled"][figure], figure)}')
    print(json.dumps(found))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows))


if __name__ == '__main__':
    main()
