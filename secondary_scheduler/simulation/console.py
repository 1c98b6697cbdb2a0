# SPDX-License-Identifier: Apache-2.0

"""Commands of ``secondary-scheduler simulate``: tables and JSON."""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
import typing

from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation import experiments, plots
from secondary_scheduler.simulation.experiments import base
from secondary_scheduler.simulation.inputs import parse_pair


def simulate_list() -> int:
    """Print the name and summary of each experiment."""
    width = max(map(len, experiments.EXPERIMENTS))
    for one in experiments.EXPERIMENTS.values():
        print(f'{one.name:{width}}  {one.summary}')
    return 0


def simulate_run(name: str, changes: list[str], seed: int, runs: int | None,
                 quick: bool, style: str, plot: str | None,
                 events: str | None, leases: str | None, data: str) -> int:
    """Run an experiment and print its figures."""
    experiment = experiments.EXPERIMENTS.get(name)
    if experiment is None:
        raise InputError(f'there is no experiment {name}; there are: '
                         + ', '.join(experiments.EXPERIMENTS))
    runs = runs or (experiment.fewest if quick else experiment.runs)
    if runs < experiment.fewest:
        raise InputError(f'{name} compares runs: --runs must be '
                         f'{experiment.fewest} or more')
    begun = _cpu_s()
    try:
        ran = experiment.run(base.ExperimentOptions(
            tuple(parse_pair(one) for one in changes),
            tuple(range(seed, seed + runs)), quick, events, leases,
            Progress(), pathlib.Path(data)))
    except InputError as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            raise InputError(f'{exc}; --data names the folder of public '
                             'traces') from None
        raise
    if plot is not None:
        plots.draw_charts(pathlib.Path(plot), f'{name}-{ran.profile}',
                          ran.charts, {
            key: dataclasses.asdict(one) for key, one in ran.figures.items()
            if one.published or one.oracle})
    print_document(style, name, ran.profile, _cpu_s() - begun,
                   {'quick': quick, **ran.config}, ran.figures,
                   tuple(range(seed, seed + runs)))
    return 0


def _cpu_s() -> float:
    """Return the CPU time of this process and its children."""
    return sum(os.times()[:4])


def print_document(style: str, name: str, profile: str, cpu_s: float,
                   config: Mapping[str, typing.Any],
                   figures: Mapping[str, base.Figure],
                   seeds: Sequence[int] = (1,)) -> None:
    """Print figures, as a table or as JSON."""
    if style != 'json':
        _print_table(figures)
        return
    print(json.dumps({
        'schema': 1, 'experiment': name, 'profile': profile,
        'seed': seeds[0], 'seeds': list(seeds), 'runs': len(seeds),
        'cpu_s': round(cpu_s, 2), 'git': _version(), 'config': config,
        'figures': {one: dataclasses.asdict(figure)
                    for one, figure in figures.items()}}, indent=2))


def _version() -> str | None:
    """Return the commit of the code; None outside a checkout."""
    try:
        done = subprocess.run(
            ['git', 'rev-parse', 'HEAD'], capture_output=True, text=True,
            cwd=pathlib.Path(__file__).parent)
    except OSError:
        return None
    return done.stdout.strip() or None


class Progress:
    """Progress messages on standard error, at most one a second."""

    def __init__(self) -> None:
        self._next = time.monotonic() + 2

    def __call__(self, what: str, share: float) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 1
            print(f'{what}: {share:4.0%}', file=sys.stderr)


def _print_table(figures: Mapping[str, base.Figure]) -> None:
    """Print a line for each figure, with its published value and bound."""
    width = max(map(len, figures))
    print(f'{"FIGURE":{width}} {"MEASURED":>10} {"SD":>9} {"PUBLISHED":>10} '
          f'{"ORACLE":>10}  UNIT')
    for name, one in figures.items():
        print(f'{name:{width}} {_cell(one.measured):>10} {_cell(one.sd):>9} '
              f'{_cell(one.published):>10} {_cell(one.oracle):>10}  '
              f'{one.unit}')


def _cell(value: float | None) -> str:
    if value is None:
        return '-'
    return f'{value:.0f}' if abs(value) >= 1000 else f'{value:.4g}'
