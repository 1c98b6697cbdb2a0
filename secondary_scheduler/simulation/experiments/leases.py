# SPDX-License-Identifier: Apache-2.0

"""Common parts of the experiments with leases: Haizea's traces, and runs.

Runs are independent simulations, which use all processors.
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
    Asked,
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
#: Only profile of these experiments.
PROFILE = 'thesis'


def site(hosts: int = HOSTS, vms: int = 1, memory_mb: int = MEMORY_MB
         ) -> Site:
    """Return a site whose hosts hold some VMs of some memory each."""
    return Site(('CPU', 'Memory'), np.tile(
        np.array(need(memory_mb), dtype=np.int64) * vms, (hosts, 1)))


def need(memory_mb: int = MEMORY_MB) -> tuple[int, int]:
    """Return the need of a VM: a CPU, and memory."""
    return lwf.CPU_UNIT, memory_mb


#: Figures by name.
Row = dict[str, float]
#: Figures of each profile, by seed and workload.
Rows = dict[tuple[int, str], dict[str, Row]]


@dataclasses.dataclass(frozen=True)
class Run:
    """Simulation of jobs and reservations on a site, under a profile.

    ``jobs`` are slowed by VMs as the profile says, and annotated with terms
    that traces lack.  Reservations are not changed.  ``seed`` is that of the
    drawn values.
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
        """Name of the run."""
        return f'{self.workload}_{self.profile} seed={self.seed}'

    def simulate(self) -> list[Outcome]:
        """Return the outcome of each lease."""
        profile = profiles.read_profile(self.profile, self.changes)
        jobs = profile.jobs(self.jobs)
        if self.annotation is not None:
            jobs = self.annotation.annotate(jobs)
        return LeaseSimulation(self.site, profile.settings, [
            *jobs, *self.reservations]).run()


class _Table:
    """Table of the leases of all runs."""

    def __init__(self, file: typing.TextIO) -> None:
        self._rows = csv.writer(file)
        self._rows.writerow((*figures.COLUMNS, 'run'))

    def add(self, run: str, outcomes: Sequence[Outcome]) -> None:
        """Write a row for each lease."""
        self._rows.writerows((*figures.table_row(one), run)
                             for one in outcomes)


@dataclasses.dataclass(frozen=True)
class LeaseContext(Asked):
    """Options and outputs of a run of an experiment with leases."""

    asked: ExperimentOptions
    charts: list[Chart] = dataclasses.field(default_factory=list)
    table: _Table | None = None

    @property
    def folder(self) -> pathlib.Path:
        """Folder of Haizea's traces."""
        return self.asked.data / FOLDER

    def jobs(self) -> list[TraceRequest]:
        """Return the month of jobs.

        :raises InputError: if the trace is missing or invalid.
        """
        return swf.read_trace(self.folder / TRACE, need()).requests

    def reservations(self) -> dict[str, pathlib.Path]:
        """Return the files of reservations for the month, by workload.

        :raises InputError: if there are none.
        """
        folder = self.folder / 'injected_leases' / TRACE.removesuffix('.swf')
        found = {workload_of(path): path for path in sorted(
            folder.glob('*.lwf'))}
        if not found:
            raise InputError(f'{folder}: no files of reservations (*.lwf); '
                             '--data names the folder of public '
                             'traces')
        return found

    def simulate(self, runs: Sequence[Run],
                 look: Callable[[Run, list[Outcome]], Row]) -> Rows:
        """Return the figures of each run, in order."""
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
    """Add the figures of another seed."""
    for name, value in row.items():
        found.setdefault(f'{name}_{suffix}', []).append(float(value))


def window(jobs: Sequence[TraceRequest]) -> tuple[int, int]:
    """Return the time in which use is measured (Sotomayor 2010, section 5.5).

    It begins later than the trace, since the site is empty at first, and ends
    with the last request.
    """
    last = max(one.arrival for one in jobs)
    return round(figures.TRIMMED * last), last


def workload_of(path: pathlib.Path) -> str:
    """Return the thesis's name of the reservations in a file.

    ``work_10-dur_4h-size_2medium`` has the name ``10_4h_medium``: reservations
    of 10 % of the site, for four hours each.
    """
    parts = [part.partition('_')[2] for part in path.stem.split('-')]
    return '_'.join(parts[:2] + [part.lstrip('0123456789')
                                 for part in parts[2:]])


@dataclasses.dataclass(frozen=True)
class LeaseExperiment:
    """Experiment with leases, and its published figures.

    ``oracle`` has figures of Haizea itself or of an independent simulation.
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
        """Run the experiment; --set changes an option of each profile."""
        if asked.events is not None:
            raise InputError(f'{self.name} keeps no events; --leases FILE.csv '
                             'has the outcome of each lease')
        changes = dict(asked.changes)
        if changes.pop('profile', PROFILE) != PROFILE:
            raise InputError(f'{self.name} compares the profiles of the '
                             f'{PROFILE}: its only profile is '
                             f'--set profile={PROFILE}')
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
            name: Figure.of_runs(per_run, self.published.get(name),
                            self.oracle.get(name), self.units(name))
            for name, per_run in measured.items()}, context.charts)
