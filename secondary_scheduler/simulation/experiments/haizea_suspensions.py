# SPDX-License-Identifier: Apache-2.0

"""Costs of suspending and resuming (Sotomayor 2010, chapter 7).

``haizea-e5``: reservations beside a month of jobs in VMs.  The processors of
hosts, the memory of VMs and the place of saved memory vary: each host, or one
place for all.  Times are relative to the same workload with suspends that take
no time.
"""

from collections.abc import Iterator, Sequence
import dataclasses

from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.experiments.base import Values
from secondary_scheduler.simulation.experiments.leases import (
    HOSTS,
    LeaseContext,
    LeaseExperiment,
    Row,
    Run,
    add,
    need,
    site,
    values,
)
from secondary_scheduler.simulation.leases import figures
from secondary_scheduler.simulation.leases.run import Outcome
from secondary_scheduler.simulation.plots import Chart
from secondary_scheduler.simulation.workloads import lwf
from secondary_scheduler.simulation.workloads.requests import TraceRequest

INSTANT, LOCAL, GLOBAL, SLOW = (
    'suspend-instant', 'suspend-local', 'suspend-global',
    'suspend-global-100mbps')
#: Files of reservations, by the thesis's names of workloads.
WORKLOADS = {'t00': None, 't10': '10_4h_medium', 't20': '20_3h_medium',
             't30': '30_2h_medium'}
CORES = (1, 2, 4, 8)
MEMORIES_MB = (1024, 2048, 3072, 4096)
FIRST_LOOK = {'t00': (MEMORIES_MB[0],), 't30': MEMORIES_MB[::3]}
SHOWN = ('all_best_effort_s', 'wait_mean_trimmed_s', 'suspends', 'requeues',
         'reservations_late')


@dataclasses.dataclass(frozen=True)
class Cell:
    """Workload on hosts of some processors, one for each VM."""

    workload: str
    cores: int
    memory_mb: int

    @property
    def name(self) -> str:
        """Name of the cell in figures."""
        return f'{self.workload}_{self.cores}_{self.memory_mb}'

    @property
    def yardstick(self) -> 'Cell':
        """Cell to compare with; memory saved at once may have any size."""
        return dataclasses.replace(self, memory_mb=MEMORIES_MB[0])

    @property
    def profiles(self) -> Iterator[str]:
        """Profiles of the cell; the slow network as in Table 7.1."""
        if self == self.yardstick:
            yield INSTANT
        yield from (LOCAL, GLOBAL)
        if self == self.yardstick and self.cores == CORES[0]:
            yield SLOW


def _cells(quick: bool) -> list[Cell]:
    if quick:
        return [Cell(workload, CORES[0], memory) for workload, memories
                in FIRST_LOOK.items() for memory in memories]
    return [Cell(workload, cores, memory) for workload in WORKLOADS
            for cores in CORES for memory in MEMORIES_MB]


def run_suspensions(context: LeaseContext) -> Values:
    """Run all workloads on all sites."""
    cells, seed = _cells(context.quick), context.seeds[0]
    rows = context.simulate(list(_runs(context, cells)), _look)
    found: Values = {}
    for cell in cells:
        of_cell = rows[seed, cell.name]
        whole = rows[seed, cell.yardstick.name][INSTANT]['all_best_effort_s']
        for row in of_cell.values():
            row['normalized'] = row['all_best_effort_s'] / whole
        if SLOW in of_cell:
            add(found, {'difference_pct': 100 * (
                of_cell[SLOW]['normalized'] / of_cell[GLOBAL]['normalized']
                - 1)}, cell.name)
    by_cell = {cell: rows[seed, cell.name] for cell in cells}
    _draw(context, by_cell)
    return values(rows) | found | _worst(by_cell)


def _runs(context: LeaseContext, cells: Sequence[Cell]) -> Iterator[Run]:
    files = context.reservations()
    jobs = {memory: _with(context.jobs(), memory)
            for memory in {cell.memory_mb for cell in cells}}
    for cell in cells:
        reserved: list[TraceRequest] = []
        file = WORKLOADS[cell.workload]
        if file is not None:
            if file not in files:
                raise InputError(f'{context.folder}: no file of reservations '
                                 f'{file}')
            reserved = lwf.read_text(files[file], f'{file}-')
        for profile in cell.profiles:
            yield Run(
                cell.name, profile, context.seeds[0],
                jobs[cell.memory_mb], _with(reserved, cell.memory_mb),
                site=site(HOSTS // cell.cores, cell.cores, cell.memory_mb))


def _with(requests: Sequence[TraceRequest],
          memory_mb: int) -> list[TraceRequest]:
    """Return the requests with VMs of some memory."""
    return [dataclasses.replace(one, terms=dataclasses.replace(
        one.terms, nodes=tuple(
            dataclasses.replace(nodes, need=need(memory_mb))
            for nodes in one.terms.nodes))) for one in requests]


def _look(run: Run, outcomes: Sequence[Outcome]) -> Row:
    found = figures.figures(outcomes)
    return {name: found[name] for name in SHOWN}


def _worst(rows: dict[Cell, dict[str, Row]]) -> Values:
    """Return the worst figure of each workload.

    Also that of the largest memory saved in one place.
    """
    found: Values = {}
    for workload in dict.fromkeys(cell.workload for cell in rows):
        some = {(profile, cell.memory_mb, cell.cores): row['normalized']
                for cell, of_cell in rows.items() if cell.workload == workload
                for profile, row in of_cell.items()
                if profile in (LOCAL, GLOBAL)}
        most = max(memory for _, memory, _ in some)
        found[f'worst_{workload}'] = [max(some.values())]
        found[f'worst_{workload}_{GLOBAL}_{most}'] = [max(
            value for (profile, memory, _), value in some.items()
            if (profile, memory) == (GLOBAL, most))]
    return found


def _draw(context: LeaseContext, rows: dict[Cell, dict[str, Row]]) -> None:
    for workload in dict.fromkeys(cell.workload for cell in rows):
        some = {cell: of_cell for cell, of_cell in rows.items()
                if cell.workload == workload}
        lines = {}
        for profile in (LOCAL, GLOBAL):
            for cores in dict.fromkeys(cell.cores for cell in some):
                points = [(cell.memory_mb, of_cell[profile]['normalized'])
                          for cell, of_cell in some.items()
                          if cell.cores == cores]
                lines[f'{profile}, {cores} a host'] = (
                    [one for one, _ in points], [one for _, one in points])
        context.charts.append(Chart(
            'when the last job ends (1: suspended at once)', lines,
            'memory of a VM (MB)', title=workload.upper()))


#: Table 7.1: at 1000 Mbps, at 100 Mbps, and the difference (%).
_TABLE = {'t00': (1.00, 1.00, 0.39), 't10': (1.00, 1.00, 0.61),
          't20': (1.00, 1.04, 3.81), 't30': (1.04, 1.14, 8.98)}


def _published() -> dict[str, float]:
    found = {'worst_t10': 1.01, 'worst_t20': 1.05, 'worst_t30': 1.14,
             f'worst_t30_{GLOBAL}_{MEMORIES_MB[-1]}': 1.14}
    for workload, (fast, slow, difference) in _TABLE.items():
        name = Cell(workload, CORES[0], MEMORIES_MB[0]).name
        found |= {f'normalized_{name}_{GLOBAL}': fast,
                  f'normalized_{name}_{SLOW}': slow,
                  f'difference_pct_{name}': difference}
    return found


def _unit(name: str) -> str:
    for part, unit in (('normalized', 'times'), ('worst', 'times'),
                       ('_pct', '%'), ('best_effort_s', 's'),
                       ('trimmed_s', 's')):
        if part in name:
            return unit
    return 'count'


EXPERIMENTS = (LeaseExperiment(
    'haizea-e5', 'costs of suspending in the long run',
    run_suspensions, _published(), _unit),)
