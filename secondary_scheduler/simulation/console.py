"""The commands of ``secondary-scheduler simulate``: tables, JSON and plots.
"""

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
import time
import typing

from secondary_scheduler.simulation import experiments, profiles, traces
from secondary_scheduler.simulation.experiments import base


class InputError(Exception):
    """What is wrong with the input, and what would be right."""


def simulate_list() -> int:
    """Print the names of the experiments, and what they are."""
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
    if leases is not None:
        raise InputError(f'the leases of {name} never end, so --leases has '
                         'nothing to say; leave it out')
    profile = _profile(changes)
    runs = runs or (experiment.fewest if quick else experiment.runs)
    if runs < experiment.fewest:
        raise InputError(f'{name} compares runs with each other: --runs must '
                         f'be {experiment.fewest} or more')
    seeds = tuple(range(seed, seed + runs))
    begun = time.process_time()
    with contextlib.ExitStack() as stack:
        log = (None if events is None
               else stack.enter_context(open_for_writing(events)))
        context = base.Context(profile, seeds, quick, log, Progress(),
                               data=pathlib.Path(data))
        try:
            figures = base.run(experiment, context)
        except traces.TraceError as exc:
            raise InputError(f'{exc}; --data names the folder of public '
                             'traces') from None
    if plot is not None:
        _draw(pathlib.Path(plot), name, profile.name, context.plots, figures)
    print_document(style, name, profile.name, time.process_time() - begun,
                   {'quick': quick, **_plain(profile)}, figures, seeds)
    return 0


def print_document(style: str, name: str, profile: str, cpu_s: float,
                   config: Mapping[str, typing.Any],
                   figures: Mapping[str, base.Figure],
                   seeds: Sequence[int] = (1,)) -> None:
    """Print figures, as a table or as JSON (EXPERIMENTS 1)."""
    if style != 'json':
        _print_table(figures)
        return
    print(json.dumps({
        'schema': 1, 'experiment': name, 'profile': profile,
        'seed': seeds[0], 'seeds': list(seeds), 'runs': len(seeds),
        'cpu_s': round(cpu_s, 2), 'git': _version(), 'config': config,
        'figures': {one: dataclasses.asdict(figure)
                    for one, figure in figures.items()}}, indent=2))


def _profile(changes: list[str]) -> profiles.Profile:
    """Return the profile that --set asks for."""
    pairs = dict(pair(one) for one in changes)
    if pairs.get('algorithm', 'oracle') != 'oracle':
        raise InputError('the only algorithm to set is oracle; the others '
                         'come with their profile: --set profile=thesis')
    name = ('oracle' if pairs.pop('algorithm', None)
            else pairs.pop('profile', 'ours'))
    pairs.pop('profile', None)
    if name not in profiles.PROFILES:
        raise InputError(f'there is no profile {name}; there are: '
                         + ', '.join(profiles.PROFILES))
    try:
        return profiles.PROFILES[name].change(pairs)
    except ValueError as exc:
        raise InputError(f'--set: {exc}') from None


def pair(text: str) -> tuple[str, str]:
    """Return key and value of what --set takes."""
    key, equals, value = text.partition('=')
    if not equals:
        raise InputError(f'--set takes KEY=VALUE, like profile=thesis, not '
                         f'{text!r}')
    return key, value


def open_for_writing(path: str) -> typing.TextIO:
    """Open a file that the user named."""
    try:
        return open(path, 'w', encoding='utf-8')
    except OSError as exc:
        raise InputError(f'{path}: {exc.strerror}') from exc


def _plain(profile: profiles.Profile) -> dict[str, typing.Any]:
    """Return the knobs; JSON has no infinity, so none is null."""
    return {key: None if value == float('inf') else value
            for key, value in dataclasses.asdict(profile).items()
            if key != 'name'}


def _version() -> str | None:
    """Return the commit of the code, if it is a checkout."""
    done = subprocess.run(
        ['git', 'rev-parse', 'HEAD'], capture_output=True, text=True,
        cwd=pathlib.Path(__file__).parent)
    return done.stdout.strip() or None


class Progress:
    """Says on standard error how far it is, at most once a second."""

    def __init__(self) -> None:
        self._next = time.monotonic() + 2

    def __call__(self, what: str, share: float) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 1
            print(f'{what}: {share:4.0%}', file=sys.stderr)


def _print_table(figures: Mapping[str, base.Figure]) -> None:
    """Print one line a figure, what was published and the bound beside."""
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


def _draw(folder: pathlib.Path, name: str, profile: str, charts: base.Charts,
          figures: Mapping[str, base.Figure]) -> None:
    """Draw each chart, and the figures that have something beside them."""
    try:
        import matplotlib
        matplotlib.use('Agg')
        from matplotlib import pyplot
    except ImportError:
        raise InputError('--plot needs matplotlib: pip install matplotlib, '
                         'or leave it out') from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise InputError(f'{folder}: {exc.strerror}') from exc
    for number, (title, lines) in enumerate(charts.items()):
        shown, axes = pyplot.subplots(figsize=(8, 4))
        for label, (across, up) in lines.items():
            axes.plot(across, up, linewidth=0.8, label=label)
        axes.legend()
        axes.set(title=f'{name}, profile {profile}', xlabel='time (s)',
                 ylabel=title)
        shown.savefig(folder / f'{name}-{profile}-{number + 1}.png', dpi=120)
        pyplot.close(shown)
    known = {key: one for key, one in figures.items()
             if one.published or one.oracle}
    shown, axes = pyplot.subplots(figsize=(8, 1 + 0.22 * len(known)))
    for mark, value in (('o', 'measured'), ('x', 'published'),
                        ('|', 'oracle')):
        points = [(getattr(one, value), key) for key, one in known.items()
                  if getattr(one, value) is not None]
        axes.plot(*zip(*points, strict=True), mark, label=value)
    axes.set(xscale='symlog', title=f'{name}, profile {profile}')
    axes.legend()
    shown.tight_layout()
    shown.savefig(folder / f'{name}-{profile}-figures.png', dpi=120)
    pyplot.close(shown)
