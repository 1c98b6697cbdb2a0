"""What the experiments with leases share: Haizea's traces, and many runs.

Each run is a simulation of its own, so that all processors can be busy.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
import contextlib
import csv
import dataclasses
import os
import pathlib
import typing

import numpy as np

from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.experiments.base import (
    ExperimentOptions,
    Figure,
    Ran,
    Values,
)
from secondary_scheduler.simulation.inputs import open_for_writing
from secondary_scheduler.simulation.leases import figures, profiles
from secondary_scheduler.simulation.leases.run import LeaseSimulation, Outcome
from secondary_scheduler.simulation.plots import Chart
from secondary_scheduler.simulation.workloads import annotations, lwf, swf
from secondary_scheduler.simulation.workloads.requests import TraceRequest

#: Haizea's traces in the folder of public ones, and the month of jobs.
FOLDER = 'haizea/traces/blue'
TRACE = '30days.swf'
HOSTS, MEMORY_MB = 144, 1024
#: What all these experiments repeat.
PROFILE = 'thesis'


def site(hosts: int = HOSTS, vms: int = 1, memory_mb: int = MEMORY_MB
         ) -> Site:
    """Return hosts that hold so many VMs of so much memory each."""
    return Site(('CPU', 'Memory'), np.tile(
        np.array(need(memory_mb), dtype=np.int64) * vms, (hosts, 1)))


def need(memory_mb: int = MEMORY_MB) -> tuple[int, int]:
    """Return what a VM takes: a CPU, and memory."""
    return lwf.CPU_UNIT, memory_mb


#: Figures by name.
Row = dict[str, float]
#: By seed and workload, for each profile what came out.
Rows = dict[tuple[int, str], dict[str, Row]]


@dataclasses.dataclass(frozen=True)
class Run:
    """One simulation: jobs and reservations on a site, under a profile.

    ``jobs`` are slowed by VMs if the profile says so, and annotated with what
    traces do not tell; reservations are as they are.  ``seed`` is of what was
    drawn.
    """

    workload: str
    profile: str
    seed: int
    jobs: Sequence[TraceRequest]
    reservations: Sequence[TraceRequest] = ()
    annotation: annotations.Annotation | None = None
    site: Site = dataclasses.field(default_factory=site)
    changes: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Which run it is."""
        return f'{self.workload}_{self.profile} seed={self.seed}'

    def simulate(self) -> list[Outcome]:
        """Return what became of each lease."""
        profile = profiles.read(self.profile, self.changes)
        jobs = profile.jobs(self.jobs)
        if self.annotation is not None:
            jobs = self.annotation.of(jobs)
        return LeaseSimulation(self.site, profile.settings, [
            *jobs, *self.reservations]).run()


class _Table:
    """Writes the leases of all runs."""

    def __init__(self, file: typing.TextIO) -> None:
        self._rows = csv.writer(file)
        self._rows.writerow((*figures.COLUMNS, 'run'))

    def add(self, run: str, outcomes: Sequence[Outcome]) -> None:
        """Write a row for each lease."""
        self._rows.writerows((*figures.row(one), run)
                             for one in outcomes)


@dataclasses.dataclass(frozen=True)
class LeaseContext:
    """How an experiment with leases is to be run.

    ``charts`` takes what is to be drawn, ``table`` the leases.
    """

    asked: ExperimentOptions
    charts: list[Chart] = dataclasses.field(default_factory=list)
    table: _Table | None = None

    @property
    def quick(self) -> bool:
        """Whether a first look will do."""
        return self.asked.quick

    @property
    def seeds(self) -> tuple[int, ...]:
        """From which to draw what a trace does not tell."""
        return self.asked.seeds

    @property
    def folder(self) -> pathlib.Path:
        """Where Haizea's traces are."""
        return self.asked.data / FOLDER

    def jobs(self) -> list[TraceRequest]:
        """Return the month of jobs.

        :raises InputError: if the trace is not there or not right.
        """
        return swf.read(self.folder / TRACE, need()).requests

    def reservations(self) -> dict[str, pathlib.Path]:
        """Return files of reservations that go with the month, by workload.

        :raises InputError: if there are none.
        """
        folder = self.folder / 'injected_leases' / TRACE.removesuffix('.swf')
        found = {workload_of(path): path for path in sorted(
            folder.glob('*.lwf'))}
        if not found:
            raise InputError(f'{folder}: there are no files of reservations '
                             '(*.lwf); --data names the folder of public '
                             'traces')
        return found

    def simulate(self, runs: Sequence[Run],
                 look: Callable[[Run, list[Outcome]], Row]) -> Rows:
        """Return what there is to see of each run, in order."""
        runs = [dataclasses.replace(
            one, changes=(*one.changes, *self.asked.changes)) for one in runs]
        rows: Rows = {}
        with futures.ProcessPoolExecutor(
                min(len(runs), len(os.sched_getaffinity(0)))) as pool:
            for number, (run, outcomes) in enumerate(zip(
                    runs, pool.map(Run.simulate, runs), strict=True), 1):
                self.asked.progress(run.name, number / len(runs))
                if self.table is not None:
                    self.table.add(run.name, outcomes)
                rows.setdefault((run.seed, run.workload), {})[
                    run.profile] = look(run, outcomes)
        return rows


def values(rows: Rows) -> Values:
    """Return the figures of each workload and profile, for all seeds."""
    found: Values = {}
    for (_seed, workload), of_workload in rows.items():
        for profile, row in of_workload.items():
            add(found, row, f'{workload}_{profile}')
    return found


def add(found: Values, row: Mapping[str, float], suffix: str) -> None:
    """Add what came out with one more seed."""
    for name, value in row.items():
        found.setdefault(f'{name}_{suffix}', []).append(float(value))


def window(jobs: Sequence[TraceRequest]) -> tuple[int, int]:
    """Return the time in which use is measured (Haizea 6.1).

    The site is empty at first, and nothing comes after the last request.
    """
    last = max(one.arrival for one in jobs)
    return round(figures.TRIMMED * last), last


def workload_of(path: pathlib.Path) -> str:
    """Return the thesis's name for the reservations in a file.

    Of ``work_10-dur_4h-size_2medium`` this is ``10_4h_medium``: they take
    10 % of the site, four hours each.
    """
    parts = [part.partition('_')[2] for part in path.stem.split('-')]
    return '_'.join(parts[:2] + [part.lstrip('0123456789')
                                 for part in parts[2:]])


@dataclasses.dataclass(frozen=True)
class LeaseExperiment:
    """An experiment with leases: what it does and what was published.

    ``oracle`` has what Haizea itself or an independent simulation gave.
    """

    name: str
    summary: str
    measure: Callable[[LeaseContext], Values]
    published: Mapping[str, float]
    units: Callable[[str], str]
    oracle: Mapping[str, float] = dataclasses.field(default_factory=dict)
    runs: int = 1
    fewest: int = 1

    def run(self, asked: ExperimentOptions) -> Ran:
        """Run it; --set changes an option of each profile."""
        if asked.events is not None:
            raise InputError(f'{self.name} keeps no events; --leases FILE.csv '
                             'tells what became of each lease')
        changes = dict(asked.changes)
        if changes.pop('profile', PROFILE) != PROFILE:
            raise InputError(f'{self.name} compares the profiles of the '
                             f'{PROFILE}: --set profile={PROFILE} is all '
                             'there is')
        asked = dataclasses.replace(asked, changes=tuple(changes.items()))
        with contextlib.ExitStack() as stack:
            context = LeaseContext(asked, table=None if asked.leases is None
                                   else _Table(stack.enter_context(
                                  open_for_writing(asked.leases))))
            try:
                measured = self.measure(context)
            except profiles.ProfileError as exc:
                raise InputError(f'--set: {exc}') from None
        return Ran(PROFILE, changes, {
            name: Figure.of(per_run, self.published.get(name),
                            self.oracle.get(name), self.units(name))
            for name, per_run in measured.items()}, context.charts)
