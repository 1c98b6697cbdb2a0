# SPDX-License-Identifier: Apache-2.0

"""Common parts of all experiments: options, context and figures."""

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
from secondary_scheduler.simulation.plots import Chart, Drawing
from secondary_scheduler.simulation.profiles import (
    ORACLE,
    PROFILES,
    Profile,
)
from secondary_scheduler.simulation.record import Recorder, Tally

#: Figures by name, a value for each run.
Values = dict[str, list[float]]
#: Charts by label; in each, lines by name: seconds and values.
Charts = dict[str, dict[str, tuple[Sequence[float], Sequence[float]]]]


def _silent(what: str, share: float) -> None:
    """Default progress callback; does nothing."""


@dataclasses.dataclass(frozen=True)
class ExperimentOptions:
    """Options of a run of an experiment.

    ``changes`` are keys and values of --set.  ``events`` and ``leases`` name
    files to write.  ``progress`` is called with the name of the run and the
    share that is done.  ``data`` is the folder of public traces.
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
    """Figure of an experiment, with mean and deviation of all runs."""

    measured: float
    sd: float
    published: float | None
    oracle: float | None
    unit: str
    per_run: tuple[float, ...]

    @classmethod
    def of_runs(cls, per_run: Sequence[float], published: float | None,
                oracle: float | None, unit: str) -> 'Figure':
        """Return the figure of the values of all runs."""
        return cls(statistics.fmean(per_run),
                   statistics.stdev(per_run) if len(per_run) > 1 else 0.0,
                   published, oracle, unit, tuple(per_run))


class Asked:
    """Access to the options of a run."""

    asked: ExperimentOptions

    @property
    def quick(self) -> bool:
        """Whether the experiment is run in a smaller form."""
        return self.asked.quick

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of drawn values."""
        return self.asked.seeds


@dataclasses.dataclass(frozen=True)
class Ran:
    """Result of an experiment, and its configuration."""

    profile: str
    config: Mapping[str, typing.Any]
    figures: Mapping[str, Figure]
    charts: Sequence[Drawing]


class Runnable(typing.Protocol):
    """Experiment as the command line uses it."""

    @property
    def name(self) -> str:
        """Name on the command line."""

    @property
    def summary(self) -> str:
        """Summary of one line."""

    @property
    def runs(self) -> int:
        """Default number of seeds."""

    @property
    def fewest(self) -> int:
        """Smallest number of seeds."""

    def run(self, asked: ExperimentOptions) -> Ran:
        """Run the experiment.

        :raises InputError: for an unknown option, or a file that it does not
            write.
        """


@dataclasses.dataclass(frozen=True)
class Context:
    """Profile, seeds and outputs of a run of an experiment.

    ``log`` takes the events.  ``progress`` and ``data`` are as in
    ``ExperimentOptions``.
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
        """Run a workload; ``runs`` are the names of its clusters."""
        record = Recorder(workload.shape, runs, self.log, series)
        name = f'{self.profile.name}: {_common(runs)}'
        Simulation(workload, self.profile, record).run(
            lambda second: self.progress(
                name, (second + 1) / workload.seconds))
        return record.tally


def _common(runs: Sequence[str]) -> str:
    """Return the words common to the names of all runs."""
    words = [run.split() for run in runs]
    return ' '.join(word for word in words[0]
                    if all(word in other for other in words)) or 'all runs'


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Experiment with its published figures.

    ``measure`` returns the figures.  ``runs`` is the default number of seeds,
    ``fewest`` the smallest.  With ``bounds`` the oracle is run as well.
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
        """Run the experiment with the profile of --set."""
        if asked.leases is not None:
            raise InputError(f'the leases of {self.name} never end: there is '
                             'no table for --leases')
        profile = _profile(dict(asked.changes))
        with contextlib.ExitStack() as stack:
            log = (None if asked.events is None else stack.enter_context(
                open_for_writing(asked.events)))
            context = Context(profile, asked.seeds, asked.quick, log,
                              asked.progress, data=asked.data)
            figures = run_with_oracle(self, context)
        return Ran(profile.name, _plain(profile), figures, [
            Chart(up, lines) for up, lines in context.plots.items()])


def _profile(pairs: dict[str, str]) -> Profile:
    """Return the profile that --set describes."""
    if pairs.get('algorithm', 'oracle') != 'oracle':
        raise InputError('the only algorithm to set is oracle; for others set '
                         'a profile: --set profile=thesis')
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
    """Return the parameters; infinity is None, since JSON lacks it."""
    return {key: None if value == float('inf') else value
            for key, value in dataclasses.asdict(profile).items()
            if key != 'name'}


def run_with_oracle(experiment: Experiment, context: Context
                    ) -> dict[str, Figure]:
    """Run an experiment, and its oracle if it has one."""
    values = experiment.measure(context)
    bounds: Values = {}
    if experiment.bounds and not context.profile.placed:
        bounds = experiment.measure(dataclasses.replace(
            context, profile=ORACLE, log=None, plots={}))
    return {name: Figure.of_runs(
        per_run, experiment.published.get(name),
        statistics.fmean(bounds[name]) if name in bounds else None,
        experiment.units(name)) for name, per_run in values.items()}


def operations(tally: Tally, cluster: int) -> dict[str, float]:
    """Return the figures on operations of a cluster."""
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
