# SPDX-License-Identifier: Apache-2.0

"""Policies that change while secondaries run (Boettger 2012, section 6.3).

``clearing`` takes all cores from some of 24 full hosts.  ``pattern`` takes and
gives cores at random, at regular intervals.
"""

from collections.abc import Callable
import dataclasses

import numpy as np

from secondary_scheduler.simulation import loads
from secondary_scheduler.simulation.engine import Simulation, Workload
from secondary_scheduler.simulation.experiments import base, testbed
from secondary_scheduler.simulation.experiments.testbed import CORES, HOSTS
from secondary_scheduler.simulation.record import Tally

TIMELIMITS = (5, 10, 25, 50)
CLEARED = (6, 12, 24)
INTERVALS = (20, 40, 60)
EVENTS = 30
#: Seconds before the first change, with all instances running by then.
LEAD_IN = 120
#: Seconds after the last change.
FOLLOW_UP = 120


def _workload(context: base.Context, timelimit: int, seconds: int,
              what: int, scenario: Callable[[Simulation, int], None]
              ) -> Workload:
    return Workload(
        testbed.shape(len(context.seeds)),
        (f'cores <= {CORES} for {timelimit}s',),
        np.zeros((seconds * loads.STEPS, len(context.seeds) * HOSTS)),
        tuple((seed, what) for seed in context.seeds), placed=True,
        scenario=scenario)


@dataclasses.dataclass
class Clearing:
    """Scenario that clears the first hosts, and measures the time."""

    hosts: int
    cleared_s: np.ndarray

    def __call__(self, simulation: Simulation, second: int) -> None:
        """Change thresholds at the beginning of a second."""
        world = simulation.world
        number = np.arange(len(world.block_until)) % HOSTS
        if second == LEAD_IN:
            simulation.checks.threshold[0, number < self.hosts] = 0
        if second > LEAD_IN:
            busy = world.running & ~world.frozen & (
                number[world.host] < self.hosts)
            clear = ~busy.reshape(len(self.cleared_s), -1).any(axis=1)
            first = clear & np.isnan(self.cleared_s)
            self.cleared_s[first] = second - LEAD_IN


def run_clearing(context: base.Context) -> base.Values:
    """Clear hosts at once, within each time limit."""
    values: base.Values = {}
    for one in base.product(hosts=CLEARED, timelimit=TIMELIMITS):
        name = f'{one["hosts"]}_{one["timelimit"]}'
        scenario = Clearing(one['hosts'],
                            np.full(len(context.seeds), np.nan))
        tally = context.simulate(
            _workload(context, one['timelimit'], LEAD_IN + FOLLOW_UP,
                      one['hosts'], scenario),
            [f'{name} seed={seed}' for seed in context.seeds])
        values |= base.columns([
            base.operations(tally, number) | {'clear_s': float(seconds)}
            for number, seconds in enumerate(np.nan_to_num(
                scenario.cleared_s, nan=FOLLOW_UP))], f'_{name}')
    return values


@dataclasses.dataclass
class Pattern:
    """Scenario of random walks of each host's cores, from 0 to 2."""

    interval: int
    random: list[np.random.Generator]
    available: np.ndarray   # core-seconds by cluster

    def __call__(self, simulation: Simulation, second: int) -> None:
        """Change thresholds at the beginning of a second."""
        cores = simulation.checks.threshold[0].reshape(-1, HOSTS)
        since = second - LEAD_IN
        if since >= 0 and since % self.interval == 0 and (
                since < EVENTS * self.interval):
            for row, random in zip(cores, self.random, strict=True):
                self._change(row, random)
        self.available += cores.sum(axis=1)

    def _change(self, row: np.ndarray, random: np.random.Generator) -> None:
        count = random.integers(0, HOSTS + 1)
        hosts = random.choice(HOSTS, count, replace=False)
        sign = random.choice(([1] * HOSTS, [-1] * HOSTS,
                              random.choice((-1, 1), HOSTS)))[:count]
        row[hosts] = np.clip(row[hosts] + sign, 0, CORES)


def run_pattern(context: base.Context, interval: int, timelimit: int,
                name: str) -> tuple[Tally, list[float]]:
    """Run ``pattern`` once for each seed.

    :returns: the tally, and the core-seconds available in each run.
    """
    scenario = Pattern(
        interval, [np.random.default_rng((seed, interval, 1))
                   for seed in context.seeds], np.zeros(len(context.seeds)))
    tally = context.simulate(
        _workload(context, timelimit, LEAD_IN + EVENTS * interval, interval,
                  scenario),
        [f'{name} seed={seed}' for seed in context.seeds])
    return tally, scenario.available.tolist()


def run_all_patterns(context: base.Context) -> base.Values:
    """Run ``pattern`` at each interval, with each time limit."""
    values: base.Values = {}
    for one in base.product(interval=INTERVALS, timelimit=TIMELIMITS):
        name = f'{one["interval"]}_{one["timelimit"]}'
        tally, available = run_pattern(context, one['interval'],
                                       one['timelimit'], name)
        values |= base.columns([
            base.operations(tally, number) | _shares(tally, number, cores)
            for number, cores in enumerate(available)], f'_{name}')
    return values


def _shares(tally: Tally, number: int, available: float) -> dict[str, float]:
    """Return the efficiency, and the shares of operations.

    Efficiency is the work of results by that of the available cores.  Shares
    are of all operations and kills, in percent as published.
    """
    counts = tally.counts[number]
    total = max(1, sum(counts[kind] for kind in (
        'migrate', 'suspend', 'stop', 'kill')))
    return {'efficiency': counts['result'] * tally.shape.unit / available,
            'suspend_pct': 100 * counts['suspend'] / total,
            'stop_pct': 100 * counts['stop'] / total,
            'kill_pct': 100 * counts['kill'] / total}


def _unit(name: str) -> str:
    for start, unit in (('work', 'core-s'), ('clear', 's'),
                        ('efficiency', 'share')):
        if name.startswith(start):
            return unit
    return '%' if 'pct' in name else 'count'


def _published() -> dict[str, float]:
    found = {}
    for interval, row in ((60, (60, 8, 1)), (40, (30, 26, 7)),
                          (20, (60, 9, 13))):
        for name, value in zip(('suspend', 'stop', 'kill'), row, strict=True):
            found[f'{name}_pct_{interval}_50'] = float(value)
    return found


EXPERIMENTS = (
    base.Experiment(
        'clearing', 'hosts lose all cores at once', run_clearing,
        {f'invalidations_{hosts}_{limit}': 0.0 for hosts in CLEARED
         for limit in TIMELIMITS}, _unit, runs=3, bounds=False),
    base.Experiment(
        'pattern', 'hosts lose and get cores at random', run_all_patterns,
        _published(), _unit, runs=3, bounds=False))
