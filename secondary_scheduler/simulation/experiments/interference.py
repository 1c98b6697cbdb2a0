# SPDX-License-Identifier: Apache-2.0

"""Interference of secondaries with the primary (Boettger 2012, section 6.5).

A primary keeps one of two cores busy and sends at a rate that changes all the
time.  Secondaries compute and send as much as they can.
"""

from collections.abc import Sequence

import numpy as np

from secondary_scheduler.simulation import loads, sharing
from secondary_scheduler.simulation.engine import Workload
from secondary_scheduler.simulation.experiments import testbed
from secondary_scheduler.simulation.experiments.base import (
    Context,
    Experiment,
    Values,
    product,
)
from secondary_scheduler.simulation.record import Tally
from secondary_scheduler.simulation.statistics import compare

SECONDS = 420
THRESHOLDS, TIMELIMITS = (95, 90, 85, 80, 75), (25, 15, 8)
#: CPU use of the primary, and mean of its traffic, in percent.
CPU, NET = 54.0, 50.0
#: Traffic of an instance: 250 of 1,000 Mbit/s (footnote in section 6.5.2).
GUEST_NET = 25.0
#: Noise of the primary from run to run, and margin, in percent.
NOISE = {'cpu': 1.2, 'net': 0.2}
MARGIN = 2.0
#: With 64 runs a loss of 1.4 % (the model's under 90 %) is found within the
#: margin in nine cases out of ten, with 16 runs in four.
RUNS = 64
#: Losses of Table 6.6, by time limit from 8 to 25.
_CPU_LOST = {75: (2.21, 4.46, 6.75), 80: (8.33, 14.71, 18.67),
             85: (21.5, 24.38, 41.25), 90: (34.25, 42.71, 43.88),
             95: (48.21, 50.08, 51.59)}
_NET_LOST = {75: (1060, 27, 1701), 80: (5205, 2136, 2257),
             85: (9172, 4600, 6209), 90: (9901, 8180, 9508),
             95: (14411, 12425, 14125)}


def run_policy(context: Context, threshold: int, timelimit: int) -> Tally:
    """Run all seeds under one policy.

    All instances start with the primary, before a mean of its use is known:
    Table 6.6 is of guests on all hosts.
    """
    name = f'{threshold}_{timelimit}'
    random = [np.random.default_rng((seed, threshold, timelimit))
              for seed in context.seeds]
    hosts = testbed.HOSTS * len(context.seeds)
    net = np.concatenate([
        loads.wave('square', NET, testbed.HOSTS, SECONDS, one)
        for one in random], axis=1)[::loads.STEPS]
    return context.simulate(Workload(
        testbed.shape(len(context.seeds), net=GUEST_NET),
        ('slots <= 2 for 25s', f'cpu <= {threshold}% for {timelimit}s',
         f'net_out <= {threshold}% for {timelimit}s'),
        np.full((SECONDS * loads.STEPS, hosts), CPU),
        tuple((seed, threshold, timelimit, 2) for seed in context.seeds),
        net=net, placed=True),
        [f'{name} seed={seed}' for seed in context.seeds], series=True)


def _performance(context: Context, tally: Tally) -> dict[str, Sequence[float]]:
    """Return the performance of the primary, 1 if undisturbed, by run."""
    assert tally.series is not None
    alone, total = (np.stack(one) for one in zip(*tally.series, strict=True))
    speed = sharing.speed(total, alone, context.profile.contention)
    left = speed.mean(axis=0).reshape(len(context.seeds), -1).mean(axis=1)
    sums = tally.sums
    return {'cpu': (left * sums['main'] / sums['load']).tolist(),
            'net': (sums['net_main'] / sums['net_load']).tolist()}


def run_interference(context: Context) -> Values:
    """Compare runs with and without secondaries under each policy."""
    values: Values = {}
    for one in product(threshold=THRESHOLDS, timelimit=TIMELIMITS):
        threshold, timelimit = one['threshold'], one['timelimit']
        left = _performance(
            context, run_policy(context, threshold, timelimit))
        random = np.random.default_rng((context.seeds[0], threshold,
                                        timelimit, 3))
        for kind, shares in left.items():
            def noise(kind: str = kind, random: np.random.Generator = random
                      ) -> np.ndarray:
                return random.normal(0.0, NOISE[kind], len(context.seeds))

            alone = 100 + noise()
            both = 100 * np.array(shares) + noise()
            found = compare(alone.tolist(), both.tolist())
            suffix = f'{kind}_{threshold}_{timelimit}'
            values |= {f'loss_pct_{suffix}': [found.difference],
                       f'p_welch_{suffix}': [found.p],
                       f'ci_low_pct_{suffix}': [found.low],
                       f'ci_high_pct_{suffix}': [found.high],
                       f'equivalent_{suffix}': [
                           float(found.equivalent(MARGIN))]}
    return values


def _published() -> dict[str, float]:
    return {
        f'loss_pct_{kind}_{threshold}_{timelimit}': 100 * value / whole
        for kind, table, whole in (('cpu', _CPU_LOST, 344.25),
                                   ('net', _NET_LOST, 666129))
        for threshold, row in table.items()
        for timelimit, value in zip(reversed(TIMELIMITS), row, strict=True)}


def _unit(name: str) -> str:
    return '%' if 'pct' in name else 'p' if name[0] == 'p' else '0 or 1'


EXPERIMENTS = (Experiment(
    'interference', 'loss of the primary under 15 policies',
    run_interference, _published(), _unit, runs=RUNS, fewest=2,
    bounds=False),)
