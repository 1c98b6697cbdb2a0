"""What all experiments share: how they run, and what comes out."""

from collections.abc import Callable, Collection, Mapping, Sequence
import contextlib
import dataclasses
import itertools
import pathlib
import statistics
import typing

from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.engine import Simulation, Workload
from secondary_scheduler.simulation.inputs import open_for_writing
from secondary_scheduler.simulation.plots import Chart
from secondary_scheduler.simulation.profiles import (
    ORACLE,
    PROFILES,
    Profile,
)
from secondary_scheduler.simulation.record import Recorder, Tally

#: Figures by name, a value for each run.
Values = dict[str, list[float]]
#: Charts by what they show; in each lines by name: seconds and values.
Charts = dict[str, dict[str, tuple[Sequence[float], Sequence[float]]]]


def _silent(what: str, share: float) -> None:
    """Make no progress known."""


@dataclasses.dataclass(frozen=True)
class ExperimentOptions:
    """What is asked for by somebody who has an experiment run.

    ``changes`` are keys and values; ``events`` and ``leases`` name files in
    which to write what happened; ``progress`` is told what goes on and which
    share of it is done; ``data`` is the folder of public traces.
    """

    changes: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...]
    quick: bool = False
    events: str | None = None
    leases: str | None = None
    progress: Callable[[str, float], object] = _silent
    data: pathlib.Path = pathlib.Path()


@dataclasses.dataclass(frozen=True)
class Figure:
    """One figure, as EXPERIMENTS 1 fixes it."""

    measured: float
    sd: float
    published: float | None
    oracle: float | None
    unit: str
    per_run: tuple[float, ...]

    @classmethod
    def of(cls, per_run: Sequence[float], published: float | None,
           oracle: float | None, unit: str) -> 'Figure':
        """Return the figure that the values of all runs make."""
        return cls(statistics.fmean(per_run),
                   statistics.stdev(per_run) if len(per_run) > 1 else 0.0,
                   published, oracle, unit, tuple(per_run))


@dataclasses.dataclass(frozen=True)
class Ran:
    """What has come out of an experiment, and how it was run."""

    profile: str
    config: Mapping[str, typing.Any]
    figures: Mapping[str, Figure]
    charts: Sequence[Chart]


class Runnable(typing.Protocol):
    """What the command line knows of an experiment.

    ``runs`` is how many seeds are usual, and ``fewest`` how many it takes at
    least.
    """

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def summary(self) -> str:
        """What it does, in a line."""

    @property
    def runs(self) -> int:
        """How many seeds are usual."""

    @property
    def fewest(self) -> int:
        """How many seeds it takes at least."""

    def run(self, asked: ExperimentOptions) -> Ran:
        """Run it.

        :raises InputError: if it has no such option, or nothing to write.
        """


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
        record = Recorder(workload.shape, runs, self.log, series)
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

    def run(self, asked: ExperimentOptions) -> Ran:
        """Run it with a profile, which --set chooses and changes."""
        if asked.leases is not None:
            raise InputError(f'the leases of {self.name} never end, so '
                             '--leases has nothing to say; leave it out')
        profile = _profile(dict(asked.changes))
        with contextlib.ExitStack() as stack:
            log = (None if asked.events is None else stack.enter_context(
                open_for_writing(asked.events)))
            context = Context(profile, asked.seeds, asked.quick, log,
                              asked.progress, data=asked.data)
            figures = run(self, context)
        return Ran(profile.name, _plain(profile), figures, [
            Chart(up, lines) for up, lines in context.plots.items()])


def _profile(pairs: dict[str, str]) -> Profile:
    """Return the profile that --set asks for."""
    if pairs.get('algorithm', 'oracle') != 'oracle':
        raise InputError('the only algorithm to set is oracle; the others '
                         'come with their profile: --set profile=thesis')
    name = ('oracle' if pairs.pop('algorithm', None)
            else pairs.pop('profile', 'ours'))
    pairs.pop('profile', None)
    if name not in PROFILES:
        raise InputError(f'there is no profile {name}; there are: '
                         + ', '.join(PROFILES))
    try:
        return PROFILES[name].change(pairs)
    except ValueError as exc:
        raise InputError(f'--set: {exc}') from None


def _plain(profile: Profile) -> dict[str, typing.Any]:
    """Return the knobs; JSON has no infinity, so none is null."""
    return {key: None if value == float('inf') else value
            for key, value in dataclasses.asdict(profile).items()
            if key != 'name'}


def run(experiment: Experiment, context: Context) -> dict[str, Figure]:
    """Run an experiment, and its oracle beside it."""
    values = experiment.measure(context)
    bounds: Values = {}
    if experiment.bounds and not context.profile.placed:
        bounds = experiment.measure(dataclasses.replace(
            context, profile=ORACLE, log=None, plots={}))
    return {name: Figure.of(
        per_run, experiment.published.get(name),
        statistics.fmean(bounds[name]) if name in bounds else None,
        experiment.units(name)) for name, per_run in values.items()}


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


def product(**options: Collection[typing.Any]
            ) -> list[dict[str, typing.Any]]:
    """Return all combinations of options."""
    return [dict(zip(options, values, strict=True))
            for values in itertools.product(*options.values())]
