# SPDX-License-Identifier: Apache-2.0

"""Images that are copied to hosts before leases (Sotomayor 2010, chapter 6).

``haizea-e3``: the workloads of ``haizea-e1`` in VMs.  Each lease has one of
forty images of 4 GB: drawn alike, or a few of them for most leases.
"""

from collections.abc import Mapping, Sequence

from secondary_scheduler.simulation.experiments.base import Values
from secondary_scheduler.simulation.experiments.haizea_reservations import (
    TABLE,
)
from secondary_scheduler.simulation.experiments.leases import (
    LeaseContext,
    LeaseExperiment,
    Row,
    Rows,
    Run,
    add,
    values,
)
from secondary_scheduler.simulation.leases import figures
from secondary_scheduler.simulation.leases.run import Outcome
from secondary_scheduler.simulation.plots import Chart
from secondary_scheduler.simulation.workloads import annotations, lwf

PREDEPLOYED = 'vm-predeploy'
#: Distributions of images, and the profiles run with each.
CASES = {
    'uniform': (annotations.UNIFORM_IMAGES, (
        PREDEPLOYED, 'vm-mult', 'vm-reuse', 'vm-mult-bw100',
        'vm-reuse-bw100')),
    'skewed': (annotations.SKEWED_IMAGES, ('vm-reuse', 'vm-reuse-bw100'))}
SHOWN = ('all_best_effort_s', 'wait_mean_trimmed_s',
         'turnaround_mean_trimmed_s', 'bounded_slowdown_trimmed',
         'reservations_rejected', 'reservations_late', 'suspends')


def run_images(context: LeaseContext) -> Values:
    """Run the workloads with each way to copy images to hosts."""
    jobs, files = context.jobs(), context.reservations()
    runs = []
    for seed in context.seeds:
        for name in TABLE[:1] if context.quick else TABLE:
            reserved = lwf.read_text(files[name], f'{name}-')
            runs += [Run(f'{name}_{case}', profile, seed,
                         drawn.add_images(jobs, seed),
                         drawn.add_images(reserved, seed + 1))
                     for case, (drawn, profiles) in CASES.items()
                     for profile in profiles]

    def look(run: Run, outcomes: Sequence[Outcome]) -> Row:
        found = figures.figures(outcomes)
        return {name: found[name] for name in SHOWN}

    rows = context.simulate(runs, look)
    _draw(context, rows)
    return values(rows) | _ratios(rows)


def _ratios(rows: Rows) -> Values:
    """Return times by those with images on all hosts."""
    found: Values = {}
    for (seed, workload), of_profile in rows.items():
        name = workload.rpartition('_')[0]
        usual = rows[seed, f'{name}_uniform'][PREDEPLOYED]
        for profile, row in of_profile.items():
            if profile != PREDEPLOYED:
                add(found, {f'ratio_{figure}': row[figure] / usual[figure]
                            for figure in ('wait_mean_trimmed_s',
                                           'turnaround_mean_trimmed_s',
                                           'all_best_effort_s')
                            if usual[figure]}, f'{workload}_{profile}')
    return found


def _draw(context: LeaseContext, rows: Rows) -> None:
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for (seed, workload), of_profile in rows.items():
        if seed == context.seeds[0]:
            for profile, row in of_profile.items():
                across, up = lines.setdefault(
                    f'{profile}, {workload.rpartition("_")[2]}', ([], []))
                across.append(float(workload.partition('_')[0]))
                up.append(row['wait_mean_trimmed_s'] / 1000)
    context.charts.append(Chart(
        'mean wait (1000 s)', lines, 'share of the site that is reserved (%)',
        title='Costs of copying images'))


#: Table 6.1: waits (1000 s) and slowdowns for 10, 20 and 30 %.
_THESIS = {
    'uniform_vm-predeploy': ((6.18, 10.88, 27.43), (24.66, 47.27, 121.33)),
    'uniform_vm-mult': ((6.29, 10.69, 27.48), (30.36, 49.06, 144.39)),
    'uniform_vm-reuse': ((5.76, 9.81, 24.63), (26.67, 44.46, 134.65)),
    'skewed_vm-reuse': ((5.67, 10.30, 22.96), (26.64, 48.90, 115.44)),
    'uniform_vm-mult-bw100': ((12.10, 23.44, 49.16),
                              (74.95, 132.78, 292.96)),
    'uniform_vm-reuse-bw100': ((7.05, 12.35, 30.74), (36.01, 62.05, 157.42)),
    'skewed_vm-reuse-bw100': ((5.13, 9.98, 24.96), (23.07, 43.83, 118.64))}


def _published() -> Mapping[str, float]:
    found = {}
    usual = _THESIS['uniform_vm-predeploy'][0]
    for case, (waits, slowdowns) in _THESIS.items():
        for name, wait, slowdown, before in zip(
                TABLE, waits, slowdowns, usual, strict=True):
            found |= {
                f'wait_mean_trimmed_s_{name}_{case}': 1000 * wait,
                f'bounded_slowdown_trimmed_{name}_{case}': slowdown,
                f'ratio_wait_mean_trimmed_s_{name}_{case}': wait / before}
    return found


def _unit(name: str) -> str:
    for part, unit in (('ratio', 'times'), ('slowdown', 'times'),
                       ('_s_', 's')):
        if part in name:
            return unit
    return 'count'


EXPERIMENTS = (LeaseExperiment(
    'haizea-e3', 'images that are copied to hosts before leases '
    'begin', run_images, _published(), _unit),)
