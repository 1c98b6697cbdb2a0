# SPDX-License-Identifier: Apache-2.0

"""Prices: revenue earned and missed (Sotomayor 2010, chapter 8).

``haizea-e6``: jobs with drawn starts, deadlines and acceptable rates of users.
The rate is constant, drawn, learned, or the highest that each user accepts.
The thesis's second and third trace are not available; the jobs are those of
the first.  Jobs that begin late are run without cheap and constant users.
``--set suspension=false`` and ``--set preemption=none`` give the variants
without suspension and without preemption.
"""

from collections.abc import Iterator, Mapping, Sequence
import math

import numpy as np

from secondary_scheduler.leases.scheduling.pricing import Adaptive, price
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
from secondary_scheduler.simulation.workloads.requests import TraceRequest

STRATEGIES = ('maximum', 'constant', 'random', 'adaptive')
#: Users for whom, by the thesis, learning beats all but the bound.
BEATEN = ('uniform', 'rich')
FIRST_LOOK = ({'start': 'early', 'deadline': 'tight', 'users': 'uniform'},
              {'start': 'early', 'deadline': 'loose', 'users': 'rich'})
CELLS = (product(start=('early',), deadline=annotations.DEADLINES,
                 users=annotations.USERS)
         + product(start=('uniform', 'late'), deadline=annotations.DEADLINES,
                   users=BEATEN))
#: Parts of the total possible revenue.
PARTS = ('revenue', 'missed_underpricing', 'missed_price', 'missed_schedule')


class BooksError(ArithmeticError):
    """Earned and missed revenue are not the total possible revenue."""


def _runs(context: LeaseContext,
          jobs: Sequence[TraceRequest]) -> Iterator[Run]:
    cells = FIRST_LOOK if context.quick else CELLS
    for seed in context.seeds:
        for one in cells:
            annotation = annotations.Annotation(**one, seed=seed)
            for profile in STRATEGIES:
                yield Run('_'.join(one.values()), profile, seed, jobs,
                          annotation=annotation)


def run_prices(context: LeaseContext) -> Values:
    """Run each population of users with each pricing strategy."""
    jobs = context.jobs()
    measured = window(jobs)

    def look(run: Run, outcomes: Sequence[Outcome]) -> Row:
        return _row(run, outcomes, measured)

    rows = context.simulate(list(_runs(context, jobs)), look)
    found = values(rows)
    for (_seed, name), of_workload in rows.items():
        add(found, _of_maximum(of_workload), name)
    _draw(context, rows)
    return found | _sweeps(context, jobs) | _headlines(context, rows)


def _row(run: Run, outcomes: Sequence[Outcome], measured: tuple[int, int]
         ) -> Row:
    """Return the parts of the total possible revenue, and the utilization.

    :raises BooksError: if the parts do not add up to it.
    """
    found = figures.figures(outcomes)
    total = math.fsum(price(one.lease.terms, one.lease.terms.max_rate or 0.0)
                      for one in outcomes)
    counted = math.fsum(found[part] for part in PARTS)
    if not math.isclose(total, counted, rel_tol=1e-9):
        raise BooksError(f'{run.name}: {counted} was earned or missed of '
                         f'{total}')
    return {f'{part}_pct': 100 * found[part] / total for part in PARTS} | {
        'utilization_pct': figures.utilization(
            outcomes, HOSTS, *measured),
        'deadlines_missed': found['deadlines_missed']}


def _of_maximum(of_workload: Mapping[str, Row]) -> Row:
    """Return the revenue of each strategy in percent of the bound."""
    most = of_workload['maximum']['revenue_pct']
    return {f'of_maximum_pct_{profile}': 100 * row['revenue_pct'] / most
            for profile, row in of_workload.items()
            if profile != 'maximum' and most}


def _headlines(context: LeaseContext, rows: Rows) -> Values:
    """Return the figures that the thesis gives of all runs together."""
    found: Values = {}
    for seed in context.seeds:
        cells = {tuple(name.split('_')): row
                 for (other, name), row in rows.items() if other == seed}
        some = [row for (*_, users), row in cells.items() if users in BEATEN]
        earned = [row['adaptive']['revenue_pct'] for row in some]
        used = {profile: [row[profile]['utilization_pct']
                          for (*_, users), row in cells.items()
                          if users != 'constant'] for profile in STRATEGIES}
        add(found, {
            'cells': len(some),
            'cells_beats_constant': sum(
                row['adaptive']['revenue_pct']
                > row['constant']['revenue_pct'] for row in some),
            'cells_beats_random': sum(
                row['adaptive']['revenue_pct']
                > row['random']['revenue_pct'] for row in some),
            'least_revenue_pct': min(earned),
            'most_revenue_pct': max(earned)}, 'adaptive')
        for profile, use in used.items():
            add(found, {'least_utilization_pct': min(use),
                        'most_utilization_pct': max(use),
                        'utilization_range_pct': max(use) - min(use)},
                profile)
    return found


# -- the best constant rate

def _sweeps(context: LeaseContext, jobs: Sequence[TraceRequest]) -> Values:
    """Return the best rate and the learned one of each population.

    No lease is rejected for lack of room.
    """
    found: Values = {}
    for seed in context.seeds:
        for users in annotations.USERS:
            asked = annotations.Annotation('early', 'uniform', users,
                                           seed).annotate(jobs)
            worth = np.array([price(one.terms, 1.0) for one in asked])
            most = np.array([one.terms.max_rate for one in asked])
            steps = np.arange(10, 1001) / 100
            sold = most[None, :] >= steps[:, None]
            total = float(worth @ most)
            earned = 100 * steps * (sold @ worth) / total
            kept = 100 * (sold @ (worth * most)) / total
            add(found, {
                'best_rate': steps[int(np.argmax(earned))],
                'best_revenue_pct': float(np.max(earned)),
                'median_rate': float(np.median(most)),
                'adaptive_rate': _learned(asked)}, users)
            if seed == context.seeds[0] and users != 'constant':
                context.charts.append(Chart(
                    'of what could be earned (%)', {
                        'revenue': (steps.tolist(), earned.tolist()),
                        'underpriced': (steps.tolist(),
                                        (kept - earned).tolist()),
                        'refused': (steps.tolist(), (100 - kept).tolist())},
                    'rate', title=f'One rate for all, {users} users'))
    return found


def _learned(asked: Sequence[TraceRequest]) -> float:
    """Return the rate learned from all requests."""
    pricing = Adaptive()
    for one in sorted(asked, key=lambda one: one.arrival):
        rate = pricing.rate(one.terms)
        assert one.terms.max_rate is not None
        pricing.observe(one.terms.user, rate, rate <= one.terms.max_rate)
    return pricing.rate(asked[0].terms)


def _draw(context: LeaseContext, rows: Rows) -> None:
    first = {name: row for (seed, name), row in rows.items()
             if seed == context.seeds[0] and name.startswith('early_')}
    names = {float(place): name.removeprefix('early_').replace('_', '\n')
             for place, name in enumerate(first)}
    for figure, up in (('revenue_pct', 'earned of what could be (%)'),
                       ('utilization_pct', 'nodes in use (%)')):
        context.charts.append(Chart(
            up, {profile: (list(names), [row[profile][figure]
                                         for row in first.values()])
                 for profile in STRATEGIES},
            'deadline, users', joined=False, ticks=names,
            title='Prices, early starts'))


#: Figures of the thesis's second trace.
_PUBLISHED = {
    'revenue_pct_early_tight_uniform_adaptive': 41.28,
    'of_maximum_pct_adaptive_early_tight_uniform': 61.25,
    'revenue_pct_early_loose_rich_adaptive': 61.17,
    'of_maximum_pct_adaptive_early_loose_rich': 64.06,
    'revenue_pct_early_tight_uniform_maximum': 67.4,
    'revenue_pct_early_loose_rich_maximum': 95.5,
    'least_revenue_pct_adaptive': 41.28, 'most_revenue_pct_adaptive': 61.17,
    'least_utilization_pct_adaptive': 35.17,
    'most_utilization_pct_adaptive': 47.54,
    'utilization_range_pct_adaptive': 12.37,
    'median_rate_cheap': 0.71, 'adaptive_rate_cheap': 0.85,
    'median_rate_uniform': 4.75, 'adaptive_rate_uniform': 4.94,
    'median_rate_rich': 9.68, 'adaptive_rate_rich': 8.99}


def _unit(name: str) -> str:
    if '_pct' in name:
        return '%'
    return 'money' if 'rate' in name else 'count'


EXPERIMENTS = (LeaseExperiment(
    'haizea-e6', 'revenue by pricing strategy (BLUE1 for BLUE2 and DS)',
    run_prices, _PUBLISHED, _unit),)
