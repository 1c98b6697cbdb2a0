# SPDX-License-Identifier: Apache-2.0

"""Effect of the CPU sets of secondaries on a primary and on their own work.

On one bare host of two CPUs with the policy ``cpu <= 50%``, four guests work
without a pause beside primaries of 20 %, of 60 % and of twice 40 % of a CPU.
The drivers of ``cpu_affinity`` take turns, window by window.  Ratios are of
the windows of one turn, each driver to the first one; told are their
geometric mean and its 90 % interval (bootstrap over the turns).  First come
pairs of two equal windows: what noise alone makes of a ratio.

    delay   time for which primaries wait for a CPU, by the kernel's counters
    p99     of a primary's requests, from when each was due to its end
    units   work of all secondaries

    python3 tools/box bare --cpus 2 benchmarks/cpu_pool.py [--pairs 30]

A primary asks for 1.5 ms of CPU time at a rate.  ``cpus`` is the mean number
of CPUs that a secondary may use, by the mask of its vCPU.  A window takes
half a minute: 30 pairs and 6 equal ones for each kind of primary, 110
minutes.
"""

import argparse
from collections.abc import Iterator, Sequence
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
import rig as rigs

from benchmarks import forms
import cgroups
import report
import shell
from shell import say

CPUS = 2
POLICY = f'cpu <= 50% for 15s on host:{rigs.HOST}'
SECONDARIES = 4
#: Beside twice 40 % of a CPU the policy leaves 2 % of the host to each.
SHARED = ('minimum_share = 1',)
#: Percent of a CPU that each primary of a kind asks for.
PRIMARIES = ('20', '60', '40+40')
DRIVERS = ('none', 'pool')
FIGURES = ('delay', 'p99', 'units')
#: Seconds of a window, and before it, in which the agent finds its shares and,
#: with the next decision on CPU sets, the pool.
SECONDS, SETTLE_S = 12.0, 12.0
#: Seconds in which the CPU sets of all secondaries are there.
SETS_S = 30
RESAMPLES = 10_000

#: Serves requests of ARGV[1] seconds of CPU time, as often as makes ARGV[2]
#: of a CPU, and after ARGV[3] seconds for ARGV[4] seconds counts: prints the
#: seconds from when each was due, and for how long it waited for a CPU.
_PRIMARY = '''
import json, random, sys, time
work, share, settle, seconds = map(float, sys.argv[1:])

def waited():
    with open('/proc/thread-self/schedstat') as file:
        return int(file.read().split()[1])

draw = random.Random(1)
due = begin = time.monotonic()
latencies, before = [], None
while due < begin + settle + seconds:
    due += draw.uniform(0.5, 1.5) * work / share
    time.sleep(max(0.0, due - time.monotonic()))
    until = time.thread_time() + work
    while time.thread_time() < until:
        pass
    if due >= begin + settle:
        if before is None:
            before = waited()
        latencies.append(time.monotonic() - due)
print(json.dumps([latencies, (waited() - before) / 1e9]))
'''
_REQUEST_S = 0.0015


@contextlib.contextmanager
def primaries(kind: str, settle: float, seconds: float
              ) -> Iterator[list[subprocess.Popen[str]]]:
    """Run the primaries of a kind; yield their processes.

    :param kind: percent of a CPU for each, joined by "+".
    """
    cgroups.make(rigs.PRIMARY)
    running = [subprocess.Popen(
        cgroups.inside(rigs.PRIMARY, [
            sys.executable, '-c', _PRIMARY, str(_REQUEST_S),
            str(float(percent) / 100), str(settle), str(seconds)]),
        stdout=subprocess.PIPE, text=True) for percent in kind.split('+')]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def wait_sets(agent: rigs.Agent, guests: Sequence[rigs.Guest]) -> None:
    """Wait until the agent has CPU sets for all guests."""
    wanted = {one.domain.UUIDString() for one in guests}
    shell.wait_for('a CPU set of each guest', lambda: wanted <= agent.status(
        ).get('affinity', {}).get('guests', {}).keys(), timeout=SETS_S,
        service=rigs.SERVICE)


def window(rig: rigs.Rig, guests: Sequence[rigs.Guest], driver: str,
           kind: str, options: argparse.Namespace) -> dict[str, float]:
    """Return what one window shows."""
    with rig.agent(POLICY, shared=SHARED, own=[
            f'cpu_affinity = {driver}', *options.set]) as agent:
        agent.wait_control(len(guests))
        if driver != 'none':
            wait_sets(agent, guests)
        with primaries(kind, options.settle, options.seconds) as running:
            time.sleep(options.settle)
            before = [one.units() for one in guests]
            time.sleep(options.seconds)
            units = sum(one.units() for one in guests) - sum(before)
            cpus = statistics.fmean(
                len(os.sched_getaffinity(one.vcpu())) for one in guests)
            said = [json.loads(process.communicate(timeout=60)[0])
                    for process in running]
    latencies = [latency for some, _ in said for latency in some]
    return {'delay': sum(delay for _, delay in said) / options.seconds,
            'p99': 1000 * report.percentile(latencies, 0.99),
            'units': units / options.seconds, 'cpus': cpus}


def ratio(ones: Sequence[float], others: Sequence[float]
          ) -> dict[str, float]:
    """Return the geometric mean of the ratios of pairs, and its interval.

    90 %, by drawing the pairs anew.
    """
    logs = np.log(np.array(ones) / np.array(others))
    drawn = np.random.default_rng(1).choice(
        logs, (RESAMPLES, len(logs))).mean(axis=1)
    low, high = np.quantile(drawn, (0.05, 0.95))
    return {name: round(float(np.exp(value)), 4) for name, value in (
        ('ratio', logs.mean()), ('low', low), ('high', high))}


def compare(ones: Sequence[dict], others: Sequence[dict]) -> dict[str, dict]:
    """Return the ratio of each figure of pairs of windows."""
    return {name: ratio([row[name] for row in ones],
                        [row[name] for row in others]) for name in FIGURES}


def describe(found: dict[str, dict]) -> str:
    """Return ratios in words."""
    return ', '.join(
        f'{name} {one["ratio"]:.3f} x [{one["low"]:.3f}, {one["high"]:.3f}]'
        for name, one in found.items())


def measure(rig: rigs.Rig, guests: Sequence[rigs.Guest], kind: str,
            options: argparse.Namespace) -> dict:
    """Let the drivers take turns beside primaries of a kind."""
    first = options.drivers[0]
    same = [window(rig, guests, first, kind, options)
            for _ in range(2 * options.same)]
    found = {'same': compare(same[1::2], same[::2])}
    say(f'{kind} %, two equal windows: {describe(found["same"])}')
    rows: dict[str, list[dict[str, float]]] = {
        driver: [] for driver in options.drivers}
    for number in range(options.pairs):
        for driver in options.drivers:
            rows[driver].append(window(rig, guests, driver, kind, options))
        if number % 5 == 4:
            say(f'{kind} %, {number + 1} of {options.pairs}')
    for driver in options.drivers[1:]:
        found[driver] = compare(rows[driver], rows[first])
        say(f'{kind} %, {driver}: {describe(found[driver])}')
    return {'ratios': found, 'medians': {
        driver: {name: round(statistics.median(row[name] for row in some), 4)
                 for name in some[0]} for driver, some in rows.items()},
        'windows': {'same': same, **rows}}


def main() -> None:
    """Measure, print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--pairs', type=int, default=30, metavar='N',
                        help='turns of all drivers (default %(default)s)')
    parser.add_argument('--same', type=int, default=6, metavar='N',
                        help='pairs of equal windows (default %(default)s)')
    parser.add_argument('--drivers', nargs='+', default=list(DRIVERS),
                        metavar='DRIVER',
                        help='cpu_affinity of the turns, the first one to '
                             'compare with (default: %(default)s); '
                             'round-robin, resource and interference confine '
                             'a guest to one CPU')
    parser.add_argument('--primaries', nargs='+', default=list(PRIMARIES),
                        metavar='PERCENT[+PERCENT]',
                        help='percent of a CPU that each of the primaries '
                             'asks for (default: %(default)s)')
    parser.add_argument('--seconds', type=float, default=SECONDS, metavar='N',
                        help='of a window (default %(default)s)')
    parser.add_argument('--settle', type=float, default=SETTLE_S, metavar='N',
                        help='seconds before a window, longer than '
                             'cpu_affinity_period (default %(default)s)')
    parser.add_argument('--set', nargs='*', default=[], metavar='OPTION=VALUE',
                        help='options of [secondary_agent]')
    parser.add_argument('--json', metavar='FILE', help='write all windows')
    forms.add_quick(parser, pairs=2, same=1, primaries=['20'], seconds=3.0,
                    settle=3.0)
    options = parser.parse_args()
    with rigs.quiet(CPUS) as rig:
        guests = rig.boot(SECONDARIES, 'cpu')
        found = {kind: measure(rig, guests, kind, options)
                 for kind in options.primaries}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found))
    for one in found.values():
        del one['windows']
    print(json.dumps({
        'host': f'{CPUS} CPUs of {os.cpu_count()}, {rigs.cpu_model()}',
        'kernel': os.uname().release, 'pairs': options.pairs,
        'primaries': found}))


if __name__ == '__main__':
    main()
