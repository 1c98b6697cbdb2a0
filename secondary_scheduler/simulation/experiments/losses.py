# SPDX-License-Identifier: Apache-2.0

"""Costs of crashed instances, lost hosts and lost agents.

Each kind of loss is run alone, on the efficiency experiment's cluster with a
square load of 45 % under ``cpu <= 90% for 20s``.
"""

import dataclasses

from secondary_scheduler.simulation.experiments import efficiency
from secondary_scheduler.simulation.experiments.base import (
    Context,
    Experiment,
    Values,
    columns,
)
from secondary_scheduler.simulation.losses import Lost, draw_losses

MEAN, THRESHOLD, TIMELIMIT = 45, 90, 20
#: Mean time between losses of each instance, host or agent, in seconds.
EVERY_S = {Lost.INSTANCE: 7200.0, Lost.HOST: 7200.0, Lost.AGENT: 3600.0}
#: Seconds until hosts and agents are back.
LASTS_S = 120.0
SHOWN = ('res_usage', 'work_conv', 'work_lost_core_s', 'stops', 'kills',
         'invalidations')


def run_losses(context: Context) -> Values:
    """Run the cluster without losses, and with those of each kind."""
    values = _run(context, 'none', {})
    for what, mean_s in EVERY_S.items():
        values |= _run(context, what, {what: mean_s})
    return values


def _run(context: Context, name: str, every_s: dict[Lost, float]) -> Values:
    workload = efficiency.workload('square', THRESHOLD, TIMELIMIT, (MEAN,),
                                   context.seeds)
    workload = dataclasses.replace(workload, losses=draw_losses(
        workload.shape, workload.seconds, every_s, LASTS_S,
        [(seed, 3) for seed in context.seeds]))
    tally = context.simulate(workload, [
        f'{name} seed={seed}' for seed in context.seeds])
    rows = []
    for one, counts in enumerate(tally.counts):
        figures = efficiency.figures(tally, slice(one, one + 1))
        rows.append({shown: figures[shown] for shown in SHOWN} | {
            'crashes': float(counts['crash']),
            'hosts_lost': float(counts['host_lost']),
            'agents_lost': float(counts['agent_lost'])})
    return columns(rows, f'_{name}')


EXPERIMENTS = (Experiment(
    'losses', 'instances crash, hosts and agents are lost', run_losses, {},
    efficiency.unit, runs=3, bounds=False),)
