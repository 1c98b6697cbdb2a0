# SPDX-License-Identifier: Apache-2.0

"""Jobs with deadlines, and preemption (Sotomayor 2010, section 5.5).

``haizea-e2``: no lease is refused for its price.  The thesis's second and
third trace are not available; the jobs are those of the first, with drawn
starts and deadlines.
"""

from collections.abc import Mapping, Sequence
import itertools

from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.simulation.experiments.base import Values, product
from secondary_scheduler.simulation.experiments.leases import (
    HOSTS,
    LeaseContext,
    LeaseExperiment,
    Row,
    Rows,
    Run,
    add,
    values,
    window,
)
from secondary_scheduler.simulation.leases import figures
from secondary_scheduler.simulation.leases.run import Outcome
from secondary_scheduler.simulation.plots import Chart
from secondary_scheduler.simulation.workloads import annotations

NONE, ANEW, RESUMED = PROFILES = ('maximum-nop', 'maximum-nosr', 'maximum')
#: Bounds of a tight lease: slack, and spare seconds before the deadline.
SLACK, SPARE_S = 2.0, annotations.DEADLINE // 5
CELLS = product(start=annotations.STARTS, deadline=annotations.DEADLINES)
FIRST_LOOK = product(start=('late',), deadline=('tight',))


def run_deadlines(context: LeaseContext) -> Values:
    """Run all distributions of starts and deadlines under each profile."""
    jobs = context.jobs()
    measured = window(jobs)

    def look(run: Run, outcomes: Sequence[Outcome]) -> Row:
        return _row(outcomes, measured)

    rows = context.simulate([
        Run('_'.join(one.values()), profile, seed, jobs,
            annotation=annotations.Annotation(**one, users='constant',
                                              seed=seed))
        for seed in context.seeds
        for one in (FIRST_LOOK if context.quick else CELLS)
        for profile in PROFILES], look)
    _draw(context, rows)
    found = values(rows)
    for (_seed, name), of_workload in rows.items():
        add(found, _gains(of_workload), name)
    for seed in context.seeds if not context.quick else ():
        add(found, _orders({tuple(name.split('_')): row[RESUMED]
                            for (other, name), row in rows.items()
                            if other == seed}), RESUMED)
    return found


def _row(outcomes: Sequence[Outcome], measured: tuple[int, int]) -> Row:
    found = figures.figures(outcomes)
    row = {name: found[name] for name in (
        'deadlines_missed', 'suspends', 'resumes', 'requeues')}
    tight: dict[str, list[bool]] = {'slack2': [], 'spare': []}
    for one in outcomes:
        terms = one.lease.terms
        assert terms.start is not None and terms.deadline is not None
        left = terms.deadline - terms.start
        accepted = one.lease.state is not LeaseState.REJECTED
        if left <= SLACK * terms.duration:
            tight['slack2'].append(accepted)
        if left - terms.duration <= SPARE_S:
            tight['spare'].append(accepted)
    for name, some in tight.items():
        row |= {f'asked_{name}': len(some), f'accepted_{name}': sum(some),
                f'accepted_pct_{name}': 100 * sum(some) / max(1, len(some))}
    return row | {
        'accepted': sum(one.lease.state is not LeaseState.REJECTED
                        for one in outcomes),
        'utilization_pct': figures.utilization(
            outcomes, HOSTS, *measured)}


def _gains(of_workload: Mapping[str, Row]) -> Row:
    """Return the gain in accepted leases from preemption."""
    found: Row = {}
    for tight in ('slack2', 'spare'):
        none, anew, resumed = (
            max(1.0, of_workload[profile][f'accepted_{tight}'])
            for profile in PROFILES)
        found |= {f'preemption_gain_pct_{tight}': 100 * (resumed / none - 1),
                  f'suspension_gain_pct_{tight}': 100 * (resumed / anew - 1)}
    use = [of_workload[profile]['utilization_pct'] for profile in PROFILES]
    return found | {'utilization_range_pct': max(use) - min(use)}


def _orders(use: Mapping[tuple[str, ...], Row]) -> Row:
    """Return the number of neighbouring cells with the published order.

    Tighter deadlines and later starts use fewer nodes.
    """
    def rise(cells: Sequence[tuple[str, ...]]) -> int:
        return sum(use[one]['utilization_pct'] < use[other]['utilization_pct']
                   for one, other in itertools.pairwise(cells))

    late_first = list(annotations.STARTS)[::-1]
    return {
        'orders_of_deadlines': sum(
            rise([(start, one) for one in annotations.DEADLINES])
            for start in late_first),
        'orders_of_starts': sum(
            rise([(one, deadline) for one in late_first])
            for deadline in annotations.DEADLINES)}


def _draw(context: LeaseContext, rows: Rows) -> None:
    first = {name: row for (seed, name), row in rows.items()
             if seed == context.seeds[0]}
    names = {float(place): name.replace('_', '\n')
             for place, name in enumerate(first)}
    for figure, up in (
            ('accepted_pct_slack2', f'accepted of slack <= {SLACK:g} (%)'),
            ('utilization_pct', 'nodes in use (%)')):
        context.charts.append(Chart(
            up, {profile: (list(names), [one[profile][figure]
                                         for one in first.values()])
                 for profile in PROFILES},
            'start, deadline', joined=False, ticks=names,
            title='Jobs with deadlines'))


#: Table 5.2 for BLUE2: leases accepted without preemption, without suspension
#: and with it, and leases requested.
_SLACK = {'late_tight': (597, 873, 902, 1155),
          'uniform_uniform': (86, 132, 128, 192),
          'early_loose': (13, 18, 18, 29)}
_SPARE = {'late_tight': (2553, 2973, 3049, 3387),
          'uniform_uniform': (632, 732, 739, 839),
          'early_loose': (75, 81, 80, 94)}


def _published() -> dict[str, float]:
    """Return shares, since BLUE2 has another number of jobs."""
    found = {f'orders_of_deadlines_{RESUMED}': 6.0,
             f'orders_of_starts_{RESUMED}': 6.0}
    for tight, table in (('slack2', _SLACK), ('spare', _SPARE)):
        for name, (none, anew, resumed, asked) in table.items():
            found |= {f'accepted_pct_{tight}_{name}_{profile}':
                      100 * accepted / asked for profile, accepted in zip(
                          PROFILES, (none, anew, resumed), strict=True)}
            found |= {
                f'preemption_gain_pct_{tight}_{name}':
                    100 * (resumed / none - 1),
                f'suspension_gain_pct_{tight}_{name}':
                    100 * (resumed / anew - 1)}
    return found


EXPERIMENTS = (LeaseExperiment(
    'haizea-e2', 'deadlines and preemption (BLUE1 for BLUE2 and DS)',
    run_deadlines, _published(),
    lambda name: '%' if '_pct' in name else 'count'),)
