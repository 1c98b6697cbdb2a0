# SPDX-License-Identifier: Apache-2.0

"""Cost of context switches by packing (Hermenier 2009, section 5.1).

``entropy-cost``: random clusters of 200 hosts are reconfigured for the jobs
that are selected.  The same states are reached by first fit decreasing, by
first fit with the present host first, and by the optimiser.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import statistics
import time

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.optimiser import optimise
from secondary_scheduler.decisions.packing import sticky_target
from secondary_scheduler.decisions.selection import QueuedLease, select
from secondary_scheduler.decisions.sequencing import sequence
from secondary_scheduler.estimation import switch_costs, switch_times
from secondary_scheduler.model.configuration import Configuration, Switch
from secondary_scheduler.model.operation_kinds import OperationKind
from secondary_scheduler.simulation.experiments.base import Values
from secondary_scheduler.simulation.experiments.switches import (
    SwitchContext,
    SwitchExperiment,
)
from secondary_scheduler.simulation.plots import Chart, GanttChart
from secondary_scheduler.simulation.switches import named
from secondary_scheduler.simulation.switches.charts import gantt_chart
from secondary_scheduler.simulation.switches.profiles import (
    PROFILES,
    SwitchProfile,
)
from secondary_scheduler.simulation.workloads import switches

ALGORITHMS = ('first_fit', 'sticky', 'optimised')
#: Numbers of virtual machines, with the usual share of busy ones.
SIZES = tuple(range(54, 487, 54))
#: Tolerance of the bound that the optimiser is to reach.
WITHIN = 1.01


@dataclasses.dataclass(frozen=True)
class CostPoint:
    """Number of virtual machines, with the mix of jobs and the busy share.

    :param label: suffix of its figures
    """

    label: str
    vms: int
    busy: float = switches.BUSY
    mix: tuple[int, ...] = switches.EVEN


def _points(suffix: str, mix: tuple[int, ...]) -> list[CostPoint]:
    return [*(CostPoint(f'{vms}{suffix}', vms, mix=mix) for vms in SIZES),
            CostPoint(f'486_overload{suffix}', 486, switches.OVERLOAD, mix),
            CostPoint(f'760{suffix}', 760, mix=mix)]


#: States of jobs drawn evenly, and three of five jobs running.
POINTS = (*_points('', switches.EVEN),
          *_points('_311', switches.MOSTLY_RUNNING))
LARGEST = next(one for one in POINTS if one.vms == SIZES[-1])
FIRST_LOOK = tuple(one for one in POINTS if one.label in ('54', '162'))


@dataclasses.dataclass(frozen=True)
class CostSample:
    """Cluster to draw and to reconfigure, in a process of its own."""

    point: CostPoint
    seed: int
    profile: SwitchProfile

    def draw(self) -> tuple[Configuration, list[QueuedLease]]:
        """Return the configuration and the queue."""
        current, queue = switches.draw(
            self.seed, self.point.vms, mix=self.point.mix,
            busy=self.point.busy)
        return dataclasses.replace(
            current, resumes_in_place=self.profile.resumes_in_place), [
                QueuedLease(lease, -position)
                for position, lease in enumerate(queue)]

    def draw_switch(self) -> list[GanttChart]:
        """Return charts of the cheapest switch, in pools and as a graph."""
        current, queue = self.draw()
        best = optimise(current, select(current, queue).sample,
                        self.profile.objective, Budget(self.profile.budget))
        pools, seconds = best.switch.pools, self.profile.seconds
        return [gantt_chart(times, f'{self.point.vms} virtual machines, '
                            f'{title}') for times, title in (
            (switch_times.pool_times(pools, seconds), 'one pool at a time'),
            (switch_times.graph_times(current, pools, seconds),
             'by dependencies'))]

    def measure(self) -> 'Rows':
        """Return the figures of each algorithm."""
        current, queue = self.draw()
        begun = time.process_time()
        selected = select(current, queue)
        switch = sequence(current, selected.sample)
        spent = time.process_time() - begun
        found = {'first_fit': self._figures(current, switch, spent)}
        begun = time.process_time()
        switch = sequence(current, sticky_target(current, selected.states))
        spent = time.process_time() - begun
        found['sticky'] = self._figures(current, switch, spent)
        begun = time.process_time()
        best = optimise(current, selected.sample, self.profile.objective,
                        Budget(self.profile.budget))
        spent = time.process_time() - begun
        found['optimised'] = self._figures(current, best.switch, spent) | {
            'bound': best.bound,
            'proved': 100.0 * (best.status in ('optimal', 'nothing_to_do'))}
        return found

    def _figures(self, current: Configuration, switch: Switch, cpu_s: float
                 ) -> dict[str, float]:
        pools = switch.pools
        seconds = self.profile.seconds
        objective = switch_costs.OBJECTIVES[self.profile.objective]
        return {
            'value': objective(pools), 'cpu_s': cpu_s,
            'cost': switch_costs.plan_cost(pools),
            'span': switch_costs.plan_span(pools),
            'memory': switch_costs.memory_moved(pools),
            'avoidable': avoidable_cost(switch),
            'pools': len(pools),
            'pools_s': switch_times.pools_s(pools, seconds),
            'graph_s': switch_times.graph_s(current, pools, seconds),
            **count_moves(switch)}


#: Figures of each algorithm.
Rows = dict[str, dict[str, float]]


def count_moves(switch: Switch) -> dict[str, float]:
    """Return the numbers of operations.

    Resumptions are those of suspended jobs; others belong to a bypass.  A
    resumption in place that a migration follows is a relocated one.
    """
    moves = switch.moves
    moved = {one.member for one in moves
             if one.kind is OperationKind.MIGRATE}
    resumed = [one for one in moves
               if one.kind is OperationKind.RESUME and not one.bypass]
    relocated = sum(one.is_remote or one.member in moved for one in resumed)
    return {
        'migrations': sum(one.kind is OperationKind.MIGRATE for one in moves),
        'suspends': sum(one.kind is OperationKind.SUSPEND for one in moves),
        'local': len(resumed) - relocated, 'relocated': relocated,
        'bypasses': sum(one.bypass for one in moves)}


def avoidable_cost(switch: Switch) -> float:
    """Return the plan cost beyond suspensions and local resumptions.

    The states of the jobs need these, whatever the placement.
    """
    needed = sum(
        one.memory_mb for one in switch.moves if one.kind in (
            OperationKind.SUSPEND, OperationKind.RESUME) and not one.bypass)
    return switch_costs.plan_cost(switch.pools) - needed


def run_cost(context: SwitchContext) -> Values:
    """Reconfigure clusters of each size with each algorithm."""
    samples = [CostSample(point, seed, context.profile)
               for point in (FIRST_LOOK if context.quick else POINTS)
               for seed in context.seeds]
    values: Values = {}
    rows: dict[CostPoint, list[Rows]] = {}
    for sample, found in context.map(CostSample.measure, samples):
        rows.setdefault(sample.point, []).append(found)
        for algorithm in ALGORITHMS:
            _add(values, _compare(found, algorithm),
                 f'{algorithm}_{sample.point.label}')
    for point, several in rows.items():
        _summarise(context, values, point.label, several)
    if named.has_solver():
        _add(values, _compare_models(samples[0].profile, context), 'named')
    _draw(context, rows, samples)
    return values


def _compare_models(profile: SwitchProfile, context: SwitchContext
                    ) -> dict[str, float]:
    """Compare the optimiser with a variable for each machine and host.

    Both look for the least memory moved; the first seed is compared.
    """
    point = FIRST_LOOK[0] if context.quick else LARGEST
    current, queue = CostSample(point, context.seeds[0], profile).draw()
    sample = select(current, queue).sample
    begun = time.process_time()
    best = optimise(current, sample, 'memory', Budget(profile.budget))
    spent = time.process_time() - begun
    found = named.least_memory(current, sample)
    return {'variables': found.variables, 'cpu_s': found.cpu_s,
            'cpu_ratio': found.cpu_s / spent, 'optimum': best.value,
            'difference': abs(best.value - found.memory_mb)
            if found.memory_mb is not None else float('nan')}


def _add(values: Values, row: Mapping[str, float], suffix: str) -> None:
    for name, value in row.items():
        values.setdefault(f'{name}_{suffix}', []).append(float(value))


def _compare(found: Rows, algorithm: str) -> dict[str, float]:
    """Return the figures of an algorithm, beside those of first fit."""
    row = dict(found[algorithm])
    first = found['first_fit']
    row['reduction'] = _percent(row['value'], first['value'])
    row['avoidable_reduction'] = _percent(row['avoidable'],
                                          first['avoidable'])
    if 'bound' in row:
        row['attainable'] = _percent(row['bound'], first['value'])
    return row


def _percent(value: float, first: float) -> float:
    """Return by how many percent a value is below that of first fit."""
    return 100 * (1 - value / first) if first else 0.0


def _summarise(context: SwitchContext, values: Values, label: str,
               several: Sequence[Rows]) -> None:
    """Add figures of all samples of a point together."""
    best = [one['optimised'] for one in several]
    spent = [one['cpu_s'] for one in best]
    values |= {
        f'cpu_median_s_optimised_{label}': [statistics.median(spent)],
        f'cpu_worst_s_optimised_{label}': [max(spent)],
        f'within_1_pct_optimised_{label}': [statistics.fmean(
            100.0 * (one['value'] <= WITHIN * one['bound']) for one in best)],
        f'ordered_pct_{label}': [statistics.fmean(
            100.0 * (one['optimised']['value'] <= one['sticky']['value']
                     <= one['first_fit']['value']) for one in several)],
        f'graph_later_{label}': [float(sum(
            row['graph_s'] > row['pools_s'] + 1e-6
            for one in several for row in one.values()))]}
    context.bounds[f'{context.profile.objective}_optimised_{label}'] = [
        one['bound'] for one in best]
    context.bounds[f'reduction_optimised_{label}'] = values[
        f'attainable_optimised_{label}']


def _draw(context: SwitchContext, rows: Mapping[CostPoint, Sequence[Rows]],
          samples: Sequence[CostSample]) -> None:
    """Draw the cost by number of virtual machines, and a switch."""
    for mix, title in ((switches.EVEN, 'states of jobs drawn evenly'),
                       (switches.MOSTLY_RUNNING, 'three of five jobs run')):
        some = {point: several for point, several in rows.items()
                if point.mix == mix and point.busy == switches.BUSY}
        if not some:
            continue
        across = [float(point.vms) for point in some]
        objective = context.profile.objective
        lines = {algorithm.replace('_', ' '): (across, [
            statistics.fmean(one[algorithm]['value'] for one in several)
            for several in some.values()]) for algorithm in ALGORITHMS}
        lines['bound'] = (across, [
            statistics.fmean(one['optimised']['bound'] for one in several)
            for several in some.values()])
        context.charts.append(Chart(
            f'{objective} of a switch', lines, 'virtual machines',
            title=f'{context.profile.name}, {title}'))
    sample = max(samples, key=lambda one: (one.point.busy == switches.BUSY,
                                           one.point.vms <= SIZES[-1],
                                           one.point.vms))
    context.charts.extend(sample.draw_switch())


_PUBLISHED = {
    **{f'reduction_optimised_{point.label}': 95.0 for point in POINTS},
    'cpu_worst_s_optimised_486': 40.0}


#: Units of figures by the beginning of their names; of others MB.
_UNITS = {
    **dict.fromkeys(('pools_s_', 'graph_s_'), 's'),
    **dict.fromkeys(('cpu_s_', 'cpu_median_s_', 'cpu_worst_s_'),
                    's CPU'),
    **dict.fromkeys(('within_1_pct', 'ordered_pct', 'reduction', 'proved',
                     'avoidable_reduction', 'attainable'), '%'),
    'cpu_ratio': 'ratio',
    **dict.fromkeys(('pools', 'migrations', 'suspends', 'local', 'relocated',
                     'bypasses', 'graph_later', 'variables'), 'count')}


def _unit(name: str) -> str:
    return next((unit for start, unit in _UNITS.items()
                 if name.startswith(start)), 'MB')


EXPERIMENTS = (SwitchExperiment(
    'entropy-cost', 'cost of a context switch by packing', run_cost,
    _PUBLISHED, _unit, PROFILES, default='thesis', runs=30),)
