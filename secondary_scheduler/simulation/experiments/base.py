"""What all experiments share: how they run, and what comes out."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import itertools
import pathlib
import statistics
import typing

from secondary_scheduler.simulation.engine import Simulation, Workload
from secondary_scheduler.simulation.profiles import ORACLE, Profile
from secondary_scheduler.simulation.record import Record, Tally

#: Figures by name, a value for each run.
Values = dict[str, list[float]]
#: Charts by what they show; in each lines by name: seconds and values.
Charts = dict[str, dict[str, tuple[Sequence[float], Sequence[float]]]]


def _silent(what: str, share: float) -> None:
    """Make no progress known."""


@dataclasses.dataclass(frozen=True)
class Context:
    """How an experiment is to be run.

    ``log`` takes the events; ``progress`` is told what goes on and which
    share of it is done; ``data`` is the folder of public traces.
    """

    profile: Profile
    seeds: tuple[int, ...]
    quick: bool = False
    log: typing.TextIO | None = None
    progress: Callable[[str, float], object] = _silent
    plots: Charts = dataclasses.field(default_factory=dict)
    data: pathlib.Path = pathlib.Path()

    def simulate(self, workload: Workload, runs: Sequence[str],
                 series: bool = False) -> Tally:
        """Run a workload whose clusters are the runs of these names."""
        record = Record(workload.shape, runs, self.log, series)
        name = f'{self.profile.name}: {_common(runs)}'
        Simulation(workload, self.profile, record).run(
            lambda second: self.progress(
                name, (second + 1) / workload.seconds))
        return record.tally


def _common(runs: Sequence[str]) -> str:
    """Return what the names of all runs have in common."""
    words = [run.split() for run in runs]
    return ' '.join(word for word in words[0]
                    if all(word in other for other in words)) or 'all runs'


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment: what it does and what was published.

    ``measure`` returns the figures; ``runs`` is how many seeds are usual, and
    ``fewest`` how many it takes at least; ``bounds`` tells whether the oracle
    is worth asking.
    """

    name: str
    summary: str
    measure: Callable[[Context], Values]
    published: Mapping[str, float]
    units: Callable[[str], str]
    runs: int = 5
    fewest: int = 1
    bounds: bool = True


@dataclasses.dataclass(frozen=True)
class Figure:
    """One figure, as EXPERIMENTS 1 fixes it."""

    measured: float
    sd: float
    published: float | None
    oracle: float | None
    unit: str
    per_run: tuple[float, ...]


def run(experiment: Experiment, context: Context) -> dict[str, Figure]:
    """Run an experiment, and its oracle beside it."""
    values = experiment.measure(context)
    bounds: Values = {}
    if experiment.bounds and not context.profile.placed:
        bounds = experiment.measure(dataclasses.replace(
            context, profile=ORACLE, log=None, plots={}))
    return {name: Figure(
        statistics.fmean(per_run),
        statistics.stdev(per_run) if len(per_run) > 1 else 0.0,
        experiment.published.get(name),
        statistics.fmean(bounds[name]) if name in bounds else None,
        experiment.units(name), tuple(per_run))
        for name, per_run in values.items()}


def operations(tally: Tally, cluster: int) -> dict[str, float]:
    """Return the figures on operations that all experiments share."""
    counts = tally.counts[cluster]
    figures = {name: float(counts[event]) for name, event in (
        ('migrations', 'migrate'), ('suspends', 'suspend'),
        ('stops', 'stop'), ('kills', 'kill'), ('invalidations', 'invalid'))}
    return figures | {'work_lost_core_s': float(tally.lost[cluster])}


def columns(rows: Sequence[Mapping[str, float]], suffix: str = '') -> Values:
    """Return figures by run as runs by figure."""
    return {name + suffix: [row[name] for row in rows] for name in rows[0]}


def product(**options: Sequence[typing.Any]
            ) -> list[dict[str, typing.Any]]:
    """Return all combinations of options."""
    return [dict(zip(options, values, strict=True))
            for values in itertools.product(*options.values())]
