# SPDX-License-Identifier: Apache-2.0

"""Slow-down of guests that share a CPU, by counters and by the guests' work.

Two and three guests that work without a pause share the one CPU of a bare
host, each with and without a quota.  No agent runs.

    counters         (run + delay - throttled) / run of a guest's vCPU, by the
                     kernel's counters on the host
    units            units of work in a second of CPU time alone, divided by
                     the guest's own units in each second in which its quota
                     let it run
    with_throttled   (run + delay) / run: throttled time counts as a wait

``error`` is counters / units - 1.  Alone, the other guests are held still; a
round is between two such windows.  Two more figures say where an error comes
from:

    accounted        (run + delay) / elapsed time: the part of the time that
                     the counters know of
    cpu_per_unit     CPU time for a unit of work by that alone: above 1 where
                     guests cost each other caches as well as time

    python3 tools/box bare benchmarks/time_sharing.py [--rounds 5]
"""

import argparse
from collections.abc import Sequence
import contextlib
import itertools
import json
import os
import statistics
import time

import rig as rigs

from benchmarks import forms
import cgroups
from shell import say
import workload

COUNTS = (2, 3)
#: Percent of a CPU, None: no quota.
QUOTAS = (None, 40.0)
#: Seconds after a change that do not count.
SETTLE_S = 2


def limit(guests: Sequence[rigs.Guest], percent: float | None) -> None:
    """Limit the vCPUs of guests, in percent of a CPU; None: no limit."""
    period = workload.GUEST_PERIOD_US
    for one in guests:
        cgroups.limit(one.group() / 'vcpu0',
                      None if percent is None else int(percent / 100 * period),
                      period)


def window(active: Sequence[rigs.Guest], others: Sequence[rigs.Guest],
           seconds: float) -> list[dict[str, float]]:
    """Return seconds, times and units of guests while the others are still.
    """
    with cgroups.held(*(one.group_name for one in others)):
        time.sleep(SETTLE_S)
        before = [(time.monotonic(), one.times(), one.units())
                  for one in active]
        time.sleep(seconds)
        after = [(time.monotonic(), one.times(), one.units())
                 for one in active]
    return [{'s': end - begin, 'units': done - had,
             **{name: (now - then) / 1e9 for name, then, now in zip(
                 rigs.Times._fields, old, new, strict=True)}}
            for (begin, old, had), (end, new, done)
            in zip(before, after, strict=True)]


def slow_downs(seen: dict[str, float], alone: float) -> dict[str, float]:
    """Return the slow-down of a guest in a window, in each way.

    :param seen: a row of ``window``.
    :param alone: units in a second of CPU time of a guest that is alone.
    """
    units = alone * (seen['s'] - seen['throttled']) / seen['units']
    counters = (seen['run'] + seen['delay'] - seen['throttled']) / seen['run']
    return {'units': units, 'counters': counters,
            'with_throttled': (seen['run'] + seen['delay']) / seen['run'],
            'error': counters / units - 1,
            'accounted': (seen['run'] + seen['delay']) / seen['s'],
            'cpu_per_unit': alone * seen['run'] / seen['units']}


def measure(rounds: int, seconds: float) -> list[dict]:
    """Return a row for each guest in each window."""
    rows = []
    with rigs.quiet() as rig:
        guests = rig.boot(max(COUNTS), 'cpu')

        def speed() -> float:
            (seen,) = window(guests[:1], guests[1:], seconds)
            return seen['units'] / seen['run']

        with contextlib.ExitStack() as stack:
            stack.callback(limit, guests, None)
            speeds = [speed()]
            for number in range(rounds):
                found = []
                for count, quota in itertools.product(COUNTS, QUOTAS):
                    limit(guests, quota)
                    found += [(count, quota, seen) for seen in window(
                        guests[:count], guests[count:], seconds)]
                    limit(guests, None)
                speeds.append(speed())
                alone = statistics.fmean(speeds[-2:])
                rows += [{'guests': count, 'quota': quota,
                          **slow_downs(seen, alone)}
                         for count, quota, seen in found]
                say(f'{number + 1} of {rounds}: median error '
                    f'{error(rows):.1%}, {alone:.1f} units/s alone')
    return rows


def error(rows: Sequence[dict]) -> float:
    """Return the median error of some rows, without its sign."""
    return statistics.median(abs(row['error']) for row in rows)


def summarise(rows: Sequence[dict]) -> dict[str, dict[str, float]]:
    """Return the medians of each number of guests and quota."""
    found = {}
    for count, quota in itertools.product(COUNTS, QUOTAS):
        those = [row for row in rows
                 if (row['guests'], row['quota']) == (count, quota)]
        name = f'{count} guests, ' + (
            'no quota' if quota is None else f'{quota:g} % each')
        found[name] = {
            **{key: round(statistics.median(row[key] for row in those), 3)
               for key in ('units', 'counters', 'with_throttled',
                           'accounted', 'cpu_per_unit')},
            'error': round(error(those), 4), 'n': len(those)}
    return found


def main() -> None:
    """Measure, print a table and JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rounds', type=int, default=5,
                        help='of all windows (default %(default)s)')
    parser.add_argument('--seconds', type=float, default=20, metavar='N',
                        help='of a window (default %(default)s)')
    forms.add_quick(parser, rounds=1, seconds=3)
    options = parser.parse_args()
    rows = measure(options.rounds, options.seconds)
    found = summarise(rows)
    for name, one in found.items():
        say(f'{name}: {one}')
    print(json.dumps({
        'median_error': round(error(rows), 4), 'by_form': found,
        'host': f'one CPU of {os.cpu_count()}, {rigs.cpu_model()}',
        'kernel': os.uname().release}))


if __name__ == '__main__':
    main()
