# SPDX-License-Identifier: Apache-2.0

"""Reservations beside a month of jobs (Sotomayor 2010, section 5.4).

``haizea-e1``: costs of reservations for jobs that cannot be suspended, for
jobs that can, and for jobs in VMs.
"""

from collections.abc import Iterator, Mapping, Sequence
import itertools
import statistics

from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.simulation.experiments.base import Values
from secondary_scheduler.simulation.experiments.leases import (
    HOSTS,
    LeaseContext,
    LeaseExperiment,
    Row,
    Rows,
    Run,
    add,
    need,
    values,
)
from secondary_scheduler.simulation.leases import figures
from secondary_scheduler.simulation.leases.run import Outcome
from secondary_scheduler.simulation.plots import Chart, Line
from secondary_scheduler.simulation.workloads import annotations, lwf
from secondary_scheduler.simulation.workloads.requests import TraceRequest

WITHOUT = 'novm-nosr'
PROFILES = (WITHOUT, 'novm-sr', 'vm-predeploy')
#: The workloads of Table 5.1.
TABLE = ('10_4h_medium', '20_3h_medium', '30_2h_medium')
#: Workloads also drawn as in the thesis's appendix: those, and the worst case.
DRAWN = {**{name: (int(name[:2]), int(name[3])) for name in TABLE},
         '30_1h_medium': (30, 1)}
#: Requests of more seconds are long.
LONG_S = 3600
#: Bounds of the classes of requested times, in seconds.
BOUNDS_S = (0, 450, 900, 1800, 3600, 7200, 14_400, 28_800, 57_600, 2 ** 30)
SHOWN = ('all_best_effort_s', 'wait_mean_s', 'wait_mean_trimmed_s',
         'bounded_slowdown_mean', 'bounded_slowdown_trimmed',
         'reservations_accepted', 'reservations_rejected',
         'reservations_late', 'suspends', 'resumes', 'requeues')


def _drawn(jobs: Sequence[TraceRequest],
           seed: int) -> dict[str, list[TraceRequest]]:
    last = max(one.arrival for one in jobs)
    return {f'drawn_{name}': annotations.Reservations(
        share / 100, hours, annotations.SIZES['medium']).draw(
            HOSTS, last, need(), seed, f'{name}-')
            for name, (share, hours) in DRAWN.items()}


def _runs(context: LeaseContext) -> Iterator[Run]:
    jobs, first = context.jobs(), context.seeds[0]
    yield Run('baseline', WITHOUT, first, jobs)
    files = context.reservations()
    if context.quick:
        files = {name: files[name] for name in TABLE if name in files}
    sets = [(first, {name: lwf.read_text(path, f'{name}-')
                     for name, path in files.items()})]
    if not context.quick:
        sets += [(seed, _drawn(jobs, seed)) for seed in context.seeds]
    for seed, workloads in sets:
        for name, reserved in workloads.items():
            for profile in PROFILES:
                yield Run(name, profile, seed, jobs, reserved)


def run_reservations(context: LeaseContext) -> Values:
    """Run all files of reservations, and some drawn ones."""
    waits: dict[str, dict[str, Line]] = {}

    def look(run: Run, outcomes: Sequence[Outcome]) -> Row:
        if run.workload in TABLE:
            waits.setdefault(run.workload, {})[run.profile] = _by_request(
                outcomes)
        return _row(outcomes)

    rows = context.simulate(list(_runs(context)), look)
    baseline = rows.pop((context.seeds[0], 'baseline'))[WITHOUT][
        'all_best_effort_s']
    for of_workload in rows.values():
        for row in of_workload.values():
            row['excess_pct'] = 100 * (row['all_best_effort_s'] / baseline - 1)
    files = {name: row for (_seed, name), row in rows.items()
             if not name.startswith('drawn_')}
    _draw(context, files, waits)
    return values(rows) | _ratios(rows) | _headlines(
        baseline, list(files.values()))


def _row(outcomes: Sequence[Outcome]) -> Row:
    found = figures.figures(outcomes)
    return {name: found[name] for name in SHOWN} | {
        'long_to_short': _long_to_short(outcomes)}


def _served(outcomes: Sequence[Outcome]) -> list[tuple[int, int]]:
    """Return requested time and wait of each served job, in seconds."""
    return [(one.lease.terms.duration, figures.wait(one))
            for one in outcomes
            if one.lease.terms.kind is LeaseKind.BEST_EFFORT
            and one.lease.state is LeaseState.DONE]


def _long_to_short(outcomes: Sequence[Outcome]) -> float:
    """Return the mean wait of long jobs by that of short ones."""
    served = _served(outcomes)
    long = [wait for asked, wait in served if asked > LONG_S]
    short = [wait for asked, wait in served if asked <= LONG_S]
    if not long or not any(short):
        return 1.0
    return statistics.fmean(long) / statistics.fmean(short)


def _ratios(rows: Rows) -> Values:
    """Return the means without suspension by those with it."""
    found: Values = {}
    of_files: dict[str, list[float]] = {}
    for (_seed, name), of_workload in rows.items():
        without, saved = (of_workload[one] for one in PROFILES[:2])
        ratios = {f'ratio_{figure}': without[figure] / saved[figure]
                  for figure in ('wait_mean_trimmed_s',
                                 'bounded_slowdown_trimmed')
                  if saved[figure]}
        add(found, ratios, name)
        if not name.startswith('drawn_'):
            add(of_files, ratios, 'median')
    return found | {name: [statistics.median(some)]
                    for name, some in of_files.items()}


def _headlines(baseline: float, files: Sequence[Mapping[str, Row]]) -> Values:
    """Return the figures of all files of reservations together."""
    excess = {profile: [one[profile]['excess_pct'] for one in files]
              for profile in PROFILES}
    return {
        'baseline_s': [baseline], 'files': [float(len(files))],
        'files_sooner_with_suspension': [float(sum(
            max(with_it) < without for without, *with_it in zip(
                *excess.values(), strict=True)))],
        **{f'largest_excess_pct_{profile}': [max(values)]
           for profile, values in excess.items()},
        'largest_gap_of_vms_pct': [max(abs(vm - job) for job, vm in zip(
            excess['novm-sr'], excess['vm-predeploy'], strict=True))],
        'refused': [sum(one[WITHOUT]['reservations_rejected']
                        for one in files)],
        'late': [sum(one[profile]['reservations_late'] for one in files
                     for profile in PROFILES)]}


def _draw(context: LeaseContext, files: Mapping[str, Mapping[str, Row]],
          waits: Mapping[str, Mapping[str, Line]]) -> None:
    shares = [name.partition('_')[0] for name in files]
    context.charts.append(Chart(
        'excess over no reservations (%)', {profile: (
            list(range(len(files))),
            [row[profile]['excess_pct'] for row in files.values()])
            for profile in PROFILES},
        'share of the site that is reserved (%)', joined=False,
        title='When the last job ends', ticks={
            shares.index(one) + (shares.count(one) - 1) / 2: f'{int(one)}'
            for one in dict.fromkeys(shares)}))
    for name, lines in waits.items():
        context.charts.append(Chart(
            'mean wait (1000 s)', lines, 'requested duration (h)',
            scale='log', title='Waiting of jobs, '
            + name.replace('_', '/')))


def _by_request(outcomes: Sequence[Outcome]) -> Line:
    """Return requested hours and mean wait (1000 s) of each class."""
    served = _served(outcomes)
    across, up = [], []
    for least, most in itertools.pairwise(BOUNDS_S):
        some = [(asked, wait) for asked, wait in served
                if least < asked <= most]
        if some:
            across.append(statistics.fmean(one for one, _ in some) / 3600)
            up.append(statistics.fmean(one for _, one in some) / 1000)
    return across, up


def _beside(rows: Mapping[str, Sequence[float]], prefix: str = ''
            ) -> dict[str, float]:
    """Return rows of excess (%), wait (1000 s) and slowdown by figure."""
    found: dict[str, float] = {}
    for name, (excess, wait, slowdown) in rows.items():
        found |= {f'excess_pct_{prefix}{name}': excess,
                  f'wait_mean_trimmed_s_{prefix}{name}': 1000 * wait,
                  f'bounded_slowdown_trimmed_{prefix}{name}': slowdown}
    return found


#: Table 5.1.
_THESIS = {
    '10_4h_medium_novm-nosr': (5.15, 14.05, 56.55),
    '20_3h_medium_novm-nosr': (7.37, 24.73, 90.65),
    '30_2h_medium_novm-nosr': (26.71, 86.50, 318.56),
    '10_4h_medium_novm-sr': (0.46, 6.24, 28.05),
    '20_3h_medium_novm-sr': (1.26, 10.76, 51.40),
    '30_2h_medium_novm-sr': (6.09, 26.00, 134.46),
    '10_4h_medium_vm-predeploy': (0.46, 6.18, 24.66),
    '20_3h_medium_vm-predeploy': (1.40, 10.88, 47.27),
    '30_2h_medium_vm-predeploy': (5.99, 27.43, 121.33)}
#: An independent simulation, with the files and with reservations drawn.
_FILES = {
    '10_4h_medium_novm-nosr': (2.77, 14.09, 53.3),
    '20_3h_medium_novm-nosr': (8.80, 21.87, 70.8),
    '30_2h_medium_novm-nosr': (27.15, 65.37, 316.1),
    '30_1h_medium_novm-nosr': (43.97, 135.9, 496.9),
    '10_4h_medium_novm-sr': (-0.42, 7.21, 34.6),
    '20_3h_medium_novm-sr': (0.45, 14.15, 75.4),
    '30_2h_medium_novm-sr': (3.91, 37.82, 225.0),
    '10_4h_medium_vm-predeploy': (-0.06, 9.49, 48.1),
    '20_3h_medium_vm-predeploy': (1.26, 17.55, 93.1),
    '30_2h_medium_vm-predeploy': (6.51, 55.01, 337.2)}
_REGULAR = {
    '10_4h_medium_novm-nosr': (4.69, 15.43, 60.6),
    '20_3h_medium_novm-nosr': (5.66, 17.72, 63.1),
    '30_2h_medium_novm-nosr': (27.28, 71.81, 381.8),
    '30_1h_medium_novm-nosr': (29.43, 79.55, 375.6),
    '10_4h_medium_novm-sr': (-0.42, 7.03, 30.8),
    '20_3h_medium_novm-sr': (0.55, 12.66, 64.5),
    '30_2h_medium_novm-sr': (5.30, 36.03, 186.4),
    '10_4h_medium_vm-predeploy': (0.24, 9.41, 46.3),
    '20_3h_medium_vm-predeploy': (1.22, 17.17, 88.4),
    '30_2h_medium_vm-predeploy': (7.97, 48.87, 259.8)}
#: Haizea's own run of one file, with its error in estimating suspensions
#: corrected.  ``refused`` is for first come, first served over all files; four
#: of the refused reservations begin before the trace.
_HAIZEA = {
    'baseline_s': 2_668_402.0,
    'all_best_effort_s_10_3h_medium_novm-nosr': 2_758_530.0,
    'wait_mean_s_10_3h_medium_novm-nosr': 14_252.01,
    'bounded_slowdown_mean_10_3h_medium_novm-nosr': 56.05,
    'all_best_effort_s_10_3h_medium_novm-sr': 2_653_604.0,
    'wait_mean_s_10_3h_medium_novm-sr': 5_768.90,
    'bounded_slowdown_mean_10_3h_medium_novm-sr': 29.88,
    'refused': 187.0}


def _published() -> dict[str, float]:
    found: dict[str, float] = {
        'baseline_s': 2_668_432.0,
        'files': 72.0,
        'files_sooner_with_suspension': 72.0,
        'late': 0.0,
        'largest_excess_pct_novm-nosr': 29.36,
        'largest_excess_pct_novm-sr': 6.09,
        'largest_excess_pct_vm-predeploy': 6.00,
    }
    for prefix in ('', 'drawn_'):
        found |= _beside(_THESIS, prefix)
        for name in TABLE:
            (_, wait, slowdown), (_, saved, saved_slowdown) = (
                _THESIS[f'{name}_{profile}'] for profile in PROFILES[:2])
            found |= {
                f'ratio_wait_mean_trimmed_s_{prefix}{name}': wait / saved,
                f'ratio_bounded_slowdown_trimmed_{prefix}{name}':
                    slowdown / saved_slowdown}
    return found


def _unit(name: str) -> str:
    for part, unit in (('ratio', 'times'), ('long_to_short', 'times'),
                       ('slowdown', 'times'), ('_pct', '%'),
                       ('all_best_effort_s', 's'), ('wait_mean', 's'),
                       ('baseline_s', 's')):
        if part in name:
            return unit
    return 'count'


EXPERIMENTS = (LeaseExperiment(
    'haizea-e1', 'reservations beside a month of jobs',
    run_reservations, _published(), _unit,
    _beside(_FILES) | _beside(_REGULAR, 'drawn_') | _HAIZEA),)
