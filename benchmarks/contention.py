# SPDX-License-Identifier: Apache-2.0

"""Slowdown of a primary beside secondaries of the lowest CPU priority.

The contention factor k of the simulator: the speed of a primary is
``1 - k x``, where x is the use of a host beyond 68.6 % that secondaries add
to that of the primary (see doc/source/contributor/simulator.rst).  It is
measured on one bare host of one CPU.  A service works off fixed units, one
after the other, at a rate that needs 20, 40, 60 or 80 % of the host.  Measured
is the time of a unit beside guests with the agent as shipped, and with the
guests held still.  The windows alternate; k is the least-squares slope over
the pairs, with its 90 % interval.

    python3 tools/box bare benchmarks/contention.py [--pairs 8] [--out FILE]

The simulator's profile ``ours`` has the k of ``data/contention.json``.
"""

import argparse
import json
import math
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
from secondary_scheduler.simulation.sharing import KNEE
from secondary_scheduler.simulation.statistics import t_quantile
from shell import say

DEMANDS = (20, 40, 60, 80)
SECONDS = 8
SETTLE_S = 2
SECONDARIES = 4
THRESHOLD = 95

#: Works off units at a rate (ARGV[1], 0: as fast as it can) for ARGV[2]
#: seconds, and prints the seconds that each took.  A unit is arithmetic and a
#: walk through a MiB of memory.
_WORK = '''
import hashlib, json, sys, time
rate, until = float(sys.argv[1]), time.monotonic() + float(sys.argv[2])
memory, took = bytes(range(256)) * 4096, []
due = time.monotonic()
while (began := time.monotonic()) < until:
    hashlib.sha256(memory).digest()
    sum(range(100_000))
    took.append(time.monotonic() - began)
    due = max(due + (1 / rate if rate else 0), time.monotonic() - 0.05)
    time.sleep(max(0.0, due - time.monotonic()))
print(json.dumps(took))
'''


def unit_s(rate: float, seconds: float) -> float:
    """Return how long a unit takes, the mean of a window."""
    done = subprocess.run(
        cgroups.inside(rigs.PRIMARY, [sys.executable, '-c', _WORK, str(rate),
                                      str(seconds)]),
        check=True, capture_output=True, text=True)
    took = json.loads(done.stdout)
    return statistics.fmean(took[len(took) // 10:])


def beside(rate: float, seconds: float) -> tuple[float, float]:
    """Return what a unit takes beside guests, and how full the host was."""
    with rigs.watch(f'hosts/{rigs.HOST}', period=0.1) as watch:
        began = time.monotonic()
        took = unit_s(rate, seconds)
        used = watch.percent(began + 1, time.monotonic() - 0.5)[0]
    return took, min(1.0, used / 100)


def measure(pairs: int, seconds: float) -> list[dict[str, float]]:
    """Return one row for each pair: demand, x, and the loss of speed."""
    rows = []
    cgroups.make(rigs.PRIMARY)
    with rigs.quiet() as rig:
        rig.boot(SECONDARIES, 'cpu')
        with rig.agent(f'cpu <= {THRESHOLD}% for 15s on host:{rigs.HOST}'
                       ) as agent:
            agent.wait_control(SECONDARIES)
            with cgroups.held(rigs.MACHINE):
                alone_s = unit_s(0, seconds)
            for number in range(pairs):
                for demand in DEMANDS:
                    rate = demand / 100 / alone_s
                    with cgroups.held(rigs.MACHINE):
                        alone = unit_s(rate, seconds)
                    time.sleep(SETTLE_S)
                    took, used = beside(rate, seconds)
                    own = demand / 100
                    rows.append({
                        'demand': own, 'used': used,
                        'x': max(0.0, used - KNEE) - max(0.0, own - KNEE),
                        'loss': 1 - alone / took})
                say(f'{number + 1} of {pairs}: ' + ', '.join(
                    f'{row["demand"]:.0%}: {row["loss"]:.1%} at '
                    f'{row["used"]:.0%}' for row in rows[-len(DEMANDS):]))
    return rows


def fit(rows: list[dict[str, float]]) -> dict[str, float]:
    """Return k and its 90 % interval."""
    x = np.array([row['x'] for row in rows])
    loss = np.array([row['loss'] for row in rows])
    k = float((x * loss).sum() / (x ** 2).sum())
    residual = loss - k * x
    error = math.sqrt((residual ** 2).sum() / (len(x) - 1) / (x ** 2).sum())
    half = t_quantile(0.95, len(x) - 1) * error
    return {'k': round(k, 4), 'low': round(k - half, 4),
            'high': round(k + half, 4), 'n': len(x)}


def main() -> None:
    """Measure, fit, print and keep JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--pairs', type=int, default=8,
                        help='for each demand (default %(default)s)')
    parser.add_argument('--seconds', type=float, default=SECONDS, metavar='N',
                        help='of a window (default %(default)s)')
    parser.add_argument('--out', metavar='FILE', help='keep the result')
    forms.add_quick(parser, pairs=1, seconds=3)
    options = parser.parse_args()
    rows = measure(options.pairs, options.seconds)
    found = {**fit(rows),
             'host': f'one CPU of {os.cpu_count()}, {rigs.cpu_model()}',
             'kernel': os.uname().release, 'by_demand': {
                 f'{demand} %': round(statistics.fmean(
                     row['loss'] for row in rows
                     if row['demand'] == demand / 100), 4)
                 for demand in DEMANDS}}
    print(json.dumps(found))
    if options.out:
        path = pathlib.Path(options.out)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=2) + '\n')


if __name__ == '__main__':
    main()
