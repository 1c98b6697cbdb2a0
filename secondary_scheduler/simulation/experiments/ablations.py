# SPDX-License-Identifier: Apache-2.0

"""Ablations: runs with another sensitivity, or without one of the means.

All run on the efficiency experiment's cluster with a square load of 45 % under
``cpu <= 90% for 8s`` (Boettger 2012, section 6.4.3).
"""

from collections.abc import Callable, Mapping
import dataclasses

from secondary_scheduler.simulation.experiments import efficiency
from secondary_scheduler.simulation.experiments.base import (
    Context,
    Experiment,
    Values,
    columns,
)

MEAN, THRESHOLD, TIMELIMIT = 45, 90, 8
#: Checks by which the trigger of Table 6.3 fires earlier or later.
LEVELS = {'low': -1, 'mid': 0, 'high': 1}
SHOWN = ('global_triggers', 'local_triggers', 'migrations', 'suspends',
         'stops', 'kills', 'invalidations', 'res_usage', 'work_lost_core_s')


def _run(context: Context, suffix: str, **fields: object) -> Values:
    """Run the cluster with some fields of the profile changed."""
    changed = dataclasses.replace(context, profile=dataclasses.replace(
        context.profile, **fields))  # type: ignore[arg-type]
    tally = changed.simulate(
        efficiency.workload('square', THRESHOLD, TIMELIMIT, (MEAN,),
                            context.seeds),
        [f'{suffix} seed={seed}' for seed in context.seeds])
    rows = [efficiency.figures(tally, slice(one, one + 1))
            for one in range(len(context.seeds))]
    return columns([{name: row[name] for name in SHOWN} for row in rows],
                   f'_{suffix}')


def _levels(context: Context, *controls: bool) -> Values:
    values: Values = {}
    for level, offset in LEVELS.items():
        for control in controls:
            values |= _run(context, f'{level}_{"on" if control else "off"}',
                           sensitivity_offset=offset, local_control=control)
    return values


def run_sensitivity(context: Context) -> Values:
    """Run with an earlier and a later global trigger."""
    return _levels(context, True)


def run_no_local_control(context: Context) -> Values:
    """Run each sensitivity with usage controllers and without."""
    return _levels(context, True, False)


def _without(**fields: object) -> Callable[[Context], Values]:
    def measure(context: Context) -> Values:
        return _run(context, 'on') | _run(context, 'off', **fields)

    return measure


def _published() -> Mapping[str, float]:
    """Return the figures of the text.

    Its high sensitivity is the low one of Table 6.3 (see reference/errata,
    Boettger, sensitivity).
    """
    table = {'low': (226, 152, 39, 165, 36), 'mid': (None, 26, 19, 29, None),
             'high': (29, 5, 2, 50, None)}
    names = ('global_triggers', 'migrations', 'suspends', 'stops', 'kills')
    return {f'{name}_{level}_on': float(value)
            for level, row in table.items()
            for name, value in zip(names, row, strict=True)
            if value is not None}


def _unit(name: str) -> str:
    return {'res': 'share', 'wor': 'core-s'}.get(name[:3], 'count')


EXPERIMENTS = tuple(
    Experiment(name, summary, measure, _published(), _unit, runs=3,
               bounds=False)
    for name, summary, measure in (
        ('sensitivity', 'global trigger that fires earlier or later',
         run_sensitivity),
        ('no-local-control', 'runs without usage controllers',
         run_no_local_control),
        ('no-search', 'runs without operations of the reconfigurator',
         _without(reconfigure=False)),
        ('no-local-trigger', 'runs without kills and the floor',
         _without(local_trigger=False)),
        ('no-backoff', 'operations on a host without cooling down',
         _without(backoff_s=0.0))))
