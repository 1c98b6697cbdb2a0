# SPDX-License-Identifier: Apache-2.0

"""HLT-Chain experiments (Boettger 2012, section 6.6).

The chain loads 25 hosts; 48 secondaries in 22 leases run beside it.
"""

from collections.abc import Callable
import statistics

import numpy as np

from secondary_scheduler.simulation import loads, queueing, sharing
from secondary_scheduler.simulation.engine import Simulation, Workload
from secondary_scheduler.simulation.experiments import testbed
from secondary_scheduler.simulation.experiments.base import (
    Context,
    Experiment,
    Values,
    columns,
    operations,
)
from secondary_scheduler.simulation.record import Tally
from secondary_scheduler.simulation.world import Floats

#: Mean load of the primary on each host, shuffled by the seed.
LOADS = np.array([
    14.1, 20.6, 24.8, 28.1, 31.0, 33.6, 36.0, 38.2, 40.4, 42.5, 44.5, 46.6,
    48.4, 50.6, 52.6, 54.7, 56.8, 59.0, 61.3, 63.7, 66.4, 69.3, 72.8, 77.2,
    84.1])
POLICIES = ('slots <= 2 for 10s', 'cpu <= 95% for 15s',
            'net_out <= 75% for 15s', 'net_in <= 75% for 15s')
#: Seconds before the queue is sampled.
WARM_UP = 60
#: Times at which chain and secondaries are switched, in seconds (Table 6.7).
CHAIN_ON, VMS_ON, CHAIN_OFF, CHAIN_AGAIN, VMS_OFF, CHAIN_END = (
    75, 310, 1000, 1400, 2000, 2250)
#: Seconds over which the level of each phase is read, after its lead-in.
PHASES = {'chain': (200, VMS_ON), 'both': (600, CHAIN_OFF),
          'drop': (CHAIN_OFF, CHAIN_OFF + 10),
          'vms': (1200, CHAIN_AGAIN), 'again': (1700, VMS_OFF)}

#: Returns the course of shuffled loads, (seconds, hosts).
Course = Callable[[Floats], Floats]


def steady(means: Floats) -> Floats:
    """Return the same load for half an hour."""
    return np.tile(means, (1800, 1))


def stepped(means: Floats) -> Floats:
    """Let the load of a host in the middle step up, and back again."""
    course = steady(means)
    host = int(np.argsort(means)[len(means) // 2])
    course[900:1200, host] += 30
    return course


def switched(means: Floats) -> Floats:
    """Start and stop the chain as in Table 6.7."""
    course = np.tile(means, (2400, 1))
    course[:CHAIN_ON] = course[CHAIN_OFF:CHAIN_AGAIN] = 0
    course[CHAIN_END:] = 0
    return course


def switch_secondaries(simulation: Simulation, second: int) -> None:
    """Allow or forbid secondaries as in Table 6.7."""
    row = [one.resource for one in simulation.checks.policies].index('slots')
    if second in (0, VMS_ON, VMS_OFF):
        simulation.checks.threshold[row] = 2 if second == VMS_ON else 0


def _measure(context: Context, course: Course, sequence: bool
             ) -> tuple[Tally, list[dict[str, float]], Floats]:
    """Run all seeds side by side.

    :returns: the tally, the figures of each seed, and the CPU use in percent
        of the cluster, (seconds, seeds).
    """
    shape = testbed.shape(len(context.seeds), len(LOADS))
    random = [np.random.default_rng((seed, 1)) for seed in context.seeds]
    means = [course(one.permutation(LOADS)) for one in random]
    load = np.concatenate([loads.noisy(mean, len(mean), one, cv=0.05)
                           for mean, one in zip(means, random, strict=True)],
                          axis=1)
    tally = context.simulate(Workload(
        shape, POLICIES, load, tuple((seed, 2) for seed in context.seeds),
        net=30.0, scenario=switch_secondaries if sequence else None),
        [f'seed={seed}' for seed in context.seeds], series=True)
    assert tally.series is not None
    alone, total = (np.stack(one) for one in zip(*tally.series, strict=True))
    rows = []
    for number, seed in enumerate(context.seeds):
        hosts = slice(number * len(LOADS), (number + 1) * len(LOADS))
        speed = sharing.speed(total[:, hosts], alone[:, hosts],
                              context.profile.contention)
        rows.append(_figures(tally, number)
                    | _queues(means[number], speed, (seed, 3)))
    cluster = total.reshape(len(total), len(rows), -1).mean(axis=2)
    context.plots['cluster CPU (%)'] = {'with secondaries': (
        range(len(cluster)), cluster[:, 0].tolist())}
    return tally, rows, cluster


def _figures(tally: Tally, number: int) -> dict[str, float]:
    counts = tally.counts[number]
    sums = {name: float(one[number] / tally.host_seconds)
            for name, one in tally.sums.items()}
    return {
        'cpu_without': sums['load'],
        'cpu_with': sums['main'] + sums['ops'] + sums['vm'],
        'results': float(counts['result']),
        'results_fractional': float(tally.kept[number] / tally.shape.unit),
        'starts': float(counts['start']),
        **operations(tally, number),
        'last_operation_s': float(tally.last_operation_s[number]),
        'frozen_share': float(tally.frozen[number]
                              / max(1.0, tally.capped[number]))}


def _queues(means: Floats, speed: Floats, seed: tuple[int, ...]
            ) -> dict[str, float]:
    """Return the figures of the queue with secondaries and without."""
    found: dict[str, float] = {}
    for name, at in (('without', np.ones_like(speed)), ('with', speed)):
        queue = queueing.waiting_events(means, at, seed)[WARM_UP:]
        found |= {f'queue_mean_{name}': float(queue.mean()),
                  f'queue_var_{name}': float(queue.var()),
                  f'queue_max_{name}': float(queue.max())}
    return found


def run_hlt(context: Context) -> Values:
    """Run the chain for half an hour, with secondaries and without."""
    return columns(_measure(context, steady, False)[1])


def run_step(context: Context) -> Values:
    """Run it with a step of one host's load by 30 points at 900 s."""
    return columns(_measure(context, stepped, False)[1])


def run_sequence(context: Context) -> Values:
    """Run it with chain and secondaries switched on and off."""
    _tally, rows, cluster = _measure(context, switched, True)
    for name, (first, last) in PHASES.items():
        for row, cpu in zip(rows, cluster.T, strict=True):
            values = cpu[first:last]
            row[f'cpu_{name}'] = (float(values.min()) if name == 'drop'
                                  else statistics.fmean(values.tolist()))
    return columns(rows)


def _unit(name: str) -> str:
    for start, unit in (('cpu', '%'), ('work', 'core-s'), ('last', 's'),
                        ('queue', 'events'), ('frozen', 'share'),
                        ('results', 'results')):
        if name.startswith(start):
            return unit
    return 'count'


PUBLISHED = {'cpu_without': 48.69, 'cpu_with': 79.27, 'results': 158.0,
             'starts': 34.0, 'migrations': 3.0, 'suspends': 0.0, 'stops': 0.0,
             'queue_mean_without': 8.93, 'queue_var_without': 9.09,
             'queue_mean_with': 10.72, 'queue_var_with': 28.71,
             'queue_max_with': 350.0, 'last_operation_s': 400.0}

EXPERIMENTS = (
    Experiment('hlt', 'half an hour of the HLT-Chain beside secondaries',
               run_hlt, PUBLISHED, _unit),
    Experiment('hlt-step', 'hlt with a step in the load of one host',
               run_step, {}, _unit),
    Experiment('hlt-sequence', 'hlt with chain and secondaries switched on '
               'and off', run_sequence, {
                   'cpu_chain': 45.0, 'cpu_both': 81.0, 'cpu_drop': 40.0,
                   'cpu_vms': 70.0, 'cpu_again': 75.0, 'suspends': 36.0,
                   'queue_max_with': 400.0}, _unit, bounds=False))
