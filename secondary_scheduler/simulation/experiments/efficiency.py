# SPDX-License-Identifier: Apache-2.0

"""Efficiency experiment (Boettger 2012, section 6.4).

The load of primaries on 24 hosts changes all the time, at means from 4 to
92 %, under eight policies and with two shapes of load.  One run has results
that take twice as much work.
"""

from collections.abc import Sequence

import numpy as np

from secondary_scheduler.simulation import loads
from secondary_scheduler.simulation.engine import Workload
from secondary_scheduler.simulation.experiments import base, testbed
from secondary_scheduler.simulation.record import UNUSED, Tally

SECONDS = 1200
MEANS = tuple(range(4, 93, 4))
#: Threshold (%) and time limit (s) of the policies on CPU.
POLICIES = ((95, 20), (90, 20), (80, 20), (70, 20), (90, 15), (90, 10),
            (90, 8), (90, 6))
SHAPES = ('square', 'triangle')
#: Core-seconds of a result: 2.5 minutes of one CPU, and 5.
RESULT, LONG = 150.0, 300.0


def workload(kind: str, threshold: int, timelimit: int,
             means: Sequence[float], seeds: Sequence[int],
             unit: float = RESULT, seconds: int = SECONDS) -> Workload:
    """Return a cluster for each mean load and seed, the seeds outermost."""
    each = base.product(seed=seeds, mean=means)
    load = np.concatenate([loads.wave(
        kind, one['mean'], testbed.HOSTS, seconds,
        np.random.default_rng((one['seed'], int(one['mean']), 1)))
        for one in each], axis=1)
    return Workload(
        testbed.shape(len(each), unit=unit),
        ('slots <= 2 for 25s', f'cpu <= {threshold}% for {timelimit}s'),
        load, tuple((one['seed'], int(one['mean']), 2) for one in each))


def figures(tally: Tally, rows: slice) -> dict[str, float]:
    """Return the figures of the clusters of one seed.

    Uses and results are sums over the loads, operations are means.
    """
    def total(values: np.ndarray) -> float:
        return float(values[rows].sum())

    counts = tally.counts[rows]
    used = total(tally.core_s('vm', 'ops'))
    each = [base.operations(tally, one) for one in range(
        *rows.indices(len(tally.counts)))]
    means = {name: sum(one[name] for one in each) / len(each)
             for name in each[0]}
    results = sum(one['result'] for one in counts)
    return {
        'res_usage': total(tally.sums['used'])
        / total(tally.sums['exploitable']),
        'vm_conv': results * tally.shape.unit / used,
        'work_conv': total(tally.kept) / used,
        'operations': sum(means[kind] for kind in (
            'migrations', 'suspends', 'stops')),
        **means,
        'global_triggers': sum(one['global'] for one in counts) / len(each),
        'local_triggers': sum(one['local'] for one in counts) / len(each),
        'frozen_share': total(tally.frozen) / max(1.0, total(tally.capped)),
        **{f'unused_{cause}': total(tally.sums[cause])
           / total(tally.sums['exploitable']) for cause in UNUSED},
        'mean_load': total(tally.sums['load']) / len(each)
        / tally.host_seconds}


def run_efficiency(context: base.Context) -> base.Values:
    """Run all policies and shapes, and one cell with longer results."""
    means = MEANS[::5] if context.quick else MEANS
    policies = ((90, 20), (90, 6)) if context.quick else POLICIES
    shapes = SHAPES[:1] if context.quick else SHAPES
    cells = base.product(kind=shapes, policy=policies, unit=(RESULT,))
    cells += base.product(kind=SHAPES[:1], policy=((90, 6),), unit=(LONG,))
    values: base.Values = {}
    for one in cells:
        kind, (threshold, timelimit) = one['kind'], one['policy']
        name = f'{kind}_{threshold}_{timelimit}'
        name += f'_{one["unit"]:g}' * (one['unit'] != RESULT)
        tally = context.simulate(
            workload(kind, threshold, timelimit, means, context.seeds,
                     one['unit']),
            [f'{name} load={each["mean"]} seed={each["seed"]}'
             for each in base.product(seed=context.seeds, mean=means)])
        values |= base.columns([
            figures(tally, slice(number * len(means),
                                 (number + 1) * len(means)))
            for number in range(len(context.seeds))], f'_{name}')
    return values


def unit(name: str) -> str:
    """Return the unit of a figure."""
    for start, unit in (('work_lost', 'core-s'), ('mean', '%'),
                        ('res_usage', 'share'), ('vm_conv', 'share'),
                        ('work_conv', 'share'), ('frozen', 'share'),
                        ('unused', 'share')):
        if name.startswith(start):
            return unit
    return 'count'


def _published() -> dict[str, float]:
    """Return the figures of Tables 6.1 and 6.2 and of the text."""
    table = {6: (12.5, 18.8, 49.7, 23.9, 17.4, 81, 40.9),
             8: (13.9, 11.3, 33.8, 25.3, 7.7, 59, 31.8),
             10: (15.4, 12.7, 22.3, 29.5, 4.3, 50.4, 26.2),
             15: (7.2, 8.2, 15.9, 17.1, 2.1, 31.3, 15.1),
             20: (6, 5.6, 6.6, 12.9, 0.25, 18.2, 9.6)}
    found: dict[str, float] = {}
    for timelimit, row in table.items():
        for name, value in zip(
                ('migrations', 'suspends', 'stops', 'global_triggers',
                 'local_triggers', 'operations'), row, strict=False):
            found[f'{name}_square_90_{timelimit}'] = value
        found[f'operations_triangle_90_{timelimit}'] = row[-1]
    for threshold, share in ((95, 0.7), (90, 0.71), (80, 0.6), (70, 0.6)):
        for kind in SHAPES:
            found[f'res_usage_{kind}_{threshold}_20'] = 0.8
            found[f'vm_conv_{kind}_{threshold}_20'] = share
    found |= {'vm_conv_square_90_6': 0.52, 'vm_conv_triangle_90_6': 0.6,
              f'vm_conv_square_90_6_{LONG:g}': 0.4}
    return found


EXPERIMENTS = (base.Experiment(
    'efficiency', 'use of idle CPU by secondaries, and results of it',
    run_efficiency, _published(), unit, runs=3),)
