# SPDX-License-Identifier: Apache-2.0

"""Cluster of jobs under a control loop (Hermenier 2009, section 5.2).

``entropy-cluster``: eight jobs of nine virtual machines each share eleven
hosts.  The control loop suspends, resumes and migrates them as their demand
changes.  Static allocations of the same jobs stand beside it.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import statistics

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.optimiser import optimise
from secondary_scheduler.decisions.selection import (
    QueuedLease,
    SelectionOptions,
    select,
)
from secondary_scheduler.decisions.sequencing import sequence
from secondary_scheduler.decisions.steady_selection import select_steadily
from secondary_scheduler.estimation import switch_costs
from secondary_scheduler.model.configuration import Configuration, Switch
from secondary_scheduler.simulation.experiments.base import Values
from secondary_scheduler.simulation.experiments.entropy_cost import (
    count_moves,
)
from secondary_scheduler.simulation.experiments.switches import (
    SwitchContext,
    SwitchExperiment,
)
from secondary_scheduler.simulation.plots import Chart
from secondary_scheduler.simulation.switches import jobs, static
from secondary_scheduler.simulation.switches.charts import gantt_chart
from secondary_scheduler.simulation.switches.loop import (
    ControlLoop,
    finish_ended,
)
from secondary_scheduler.simulation.switches.profiles import (
    PROFILES,
    SwitchProfile,
)
from secondary_scheduler.simulation.switches.world import (
    HOSTS,
    UNITS,
    JobWorld,
    Timed,
)

#: All units of the cluster.
ALL_UNITS = HOSTS * UNITS
#: Without a suffix: all members have 512 MB.
VARIANTS = {'small': '', 'mixed': '_mixed', 'large': '_large'}


@dataclasses.dataclass(frozen=True)
class ClusterRun:
    """Run of the jobs under a control loop, in a process of its own."""

    variant: str
    seed: int
    optimised: bool
    profile: SwitchProfile

    @property
    def name(self) -> str:
        """Name of the run."""
        return (f'{self.variant}_{"switch" if self.optimised else "first_fit"}'
                f' seed={self.seed}')

    def jobs(self) -> tuple[jobs.PhasedJob, ...]:
        """Return the jobs in the order of their queue."""
        return jobs.draw_jobs(self.seed, self.variant)

    def simulate(self) -> ControlLoop:
        """Return the control loop after the last job has ended."""
        profile = self.profile
        loop = ControlLoop(JobWorld(
            self.jobs(), profile.claims, profile.resumes_in_place), profile,
            self.decide)
        loop.run()
        return loop

    def decide(self, current: Configuration, queue: tuple[str, ...],
               running_s: dict[str, float]) -> Switch:
        """Select jobs to run, and return the switch to them.

        Without the optimiser all is packed anew by first fit decreasing.

        With ``keeps_sample`` the optimiser starts from the selection's own
        configuration, as the published one does (Hermenier 2009, section
        4.3).
        """
        profile = self.profile
        leases = [QueuedLease(name, -position, running_s.get(name))
                  for position, name in enumerate(queue)]
        options = SelectionOptions(profile.minimum_run_s,
                                   profile.displacement_margin)
        selected = (select_steadily(current, leases, options,
                                    profile.headroom)
                    if profile.steady and self.optimised
                    else select(current, leases, options))
        sample = finish_ended(current, queue, selected.sample)
        if not self.optimised:
            return sequence(current, sample)
        best = optimise(current, sample, profile.objective,
                        Budget(profile.budget))
        if profile.keeps_sample:
            first = sequence(current, sample)
            objective = switch_costs.OBJECTIVES[profile.objective]
            if (first.reached == sample
                    and objective(first.pools) <= best.value):
                return first
        return best.switch


def run_cluster(context: SwitchContext) -> Values:
    """Run the jobs statically and under the control loop."""
    profile = context.profile
    values: Values = {}
    if profile.fluid:
        _run_oracle(context, values)
        return values
    variants = ['small'] if context.quick else list(VARIANTS)
    runs = [ClusterRun(variant, seed, optimised, profile)
            for variant in variants
            for seed in (context.seeds[:1] if variant == 'small'
                         else context.seeds)
            for optimised in (True, False)]
    for run, loop in context.map(ClusterRun.simulate, runs):
        suffix = VARIANTS[run.variant]
        makespan = makespan_s(loop)
        if not run.optimised:
            _add(values, {'makespan_s_first_fit': makespan,
                          **{f'{name}_first_fit': value for name, value in
                             _of_switches(loop).items()}}, suffix)
            continue
        fcfs, easy = (static.static_makespan(run.jobs(), ALL_UNITS, one)
                      for one in ('fcfs', 'easy'))
        fluid = jobs.fluid_makespan(run.jobs(), ALL_UNITS)
        _add(values, {
            'makespan_s_fcfs': fcfs, 'makespan_s_easy': easy,
            'makespan_s_switch': makespan,
            'reduction_pct': 100 * (1 - makespan / fcfs),
            'bound_s': jobs.least_makespan(run.jobs(), ALL_UNITS),
            **_of_switches(loop), **_of_loop(loop)}, suffix)
        _add(context.bounds, {
            'makespan_s_switch': fluid,
            'reduction_pct': 100 * (1 - fluid / fcfs)}, suffix)
        for one in loop.rounds:
            for timed in one.times:
                context.write_event(_event(run.name, one.decided_s, timed))
        if run.variant == 'small':
            _draw(context, loop)
    return values


def _run_oracle(context: SwitchContext, values: Values) -> None:
    """Add the figures without operations and without hosts."""
    for seed in context.seeds:
        some = jobs.draw_jobs(seed, 'small')
        fcfs = static.static_makespan(some, ALL_UNITS, 'fcfs')
        fluid = jobs.fluid_makespan(some, ALL_UNITS)
        _add(values, {'makespan_s_fcfs': fcfs, 'makespan_s_switch': fluid,
                      'reduction_pct': 100 * (1 - fluid / fcfs),
                      'bound_s': jobs.least_makespan(some, ALL_UNITS)}, '')


def _add(values: Values, row: Mapping[str, float], suffix: str) -> None:
    for name, value in row.items():
        values.setdefault(name + suffix, []).append(float(value))


def makespan_s(loop: ControlLoop) -> float:
    """Return the time at which the last job has ended."""
    return max(one.ended_s for one in loop.world.jobs.values()
               if one.ended_s is not None)


def _of_switches(loop: ControlLoop) -> dict[str, float]:
    """Return the figures of the switches of a loop.

    There is no share of local resumptions where no job is resumed.
    """
    counts = [count_moves(one.switch) for one in loop.rounds]
    local, relocated = (sum(one[name] for one in counts)
                        for name in ('local', 'relocated'))
    share = ({'local_pct': 100 * local / (local + relocated)}
             if local + relocated else {})
    return share | {
        'switches': len(loop.rounds),
        'switch_mean_s': statistics.fmean(
            one.ended_s - one.decided_s for one in loop.rounds),
        'resumes': local + relocated,
        'migrations': sum(one['migrations'] for one in counts),
        'bypasses': sum(one['bypasses'] for one in counts),
        'zero_cost': sum(not switch_costs.plan_cost(one.switch.pools)
                         for one in loop.rounds)}


def _of_loop(loop: ControlLoop) -> dict[str, float]:
    """Return the figures of demand, displacement and work."""
    displaced = [(seconds, one.viable) for one in loop.rounds
                 for _, seconds in one.displaced]
    return {
        'wanted_max': max(one.wanted for one in loop.samples),
        'viable_again_s': longest_excess(loop),
        'viable_bound_s': loop.profile.period_s + max(
            one.ended_s - one.decided_s for one in loop.rounds),
        'displaced': len(displaced),
        'displaced_early': sum(
            viable and seconds < loop.profile.minimum_run_s
            for seconds, viable in displaced),
        'half_up': loop.mixed,
        'work_lost_core_s': loop.world.work_lost}


def longest_excess(loop: ControlLoop) -> float:
    """Return the longest time for which jobs want more units than exist."""
    longest = 0.0
    since: float | None = None
    for one in loop.samples:
        if since is not None:
            longest = max(longest, one.second - since)
        if one.wanted <= ALL_UNITS:
            since = None
        elif since is None:
            since = one.second
    return longest


def _event(run: str, issued: float, timed: Timed) -> dict[str, object]:
    move = timed.move
    return {'run': run, 'event': 'operation', 'kind': str(move.kind),
            'instance': move.member, 'lease': move.lease,
            'from': move.source, 'to': move.target, 'issued': issued,
            'started': timed.start_s, 'ended': timed.end_s,
            'bypass': move.bypass}


def _draw(context: SwitchContext, loop: ControlLoop) -> None:
    samples = loop.samples
    last = samples[-1].second
    context.charts.extend([
        gantt_chart([tuple(timed) for one in loop.rounds
                     for timed in one.times],
                    f'switches, {context.profile.name}', by_lease=True),
        Chart('processing units', {
            'demanded': _steps([(one.second, one.wanted) for one in samples]),
            'used': _steps([(one.second, one.used) for one in samples]),
            'available': ([0, last], [ALL_UNITS, ALL_UNITS])},
              title=f'processing units, {context.profile.name}')])


def _steps(points: Sequence[tuple[float, float]]
           ) -> tuple[list[float], list[float]]:
    """Return a line on which each value holds until the next."""
    across, up = [points[0][0]], [points[0][1]]
    for second, value in points[1:]:
        across += [second, second]
        up += [up[-1], value]
    return across, up


_PUBLISHED = {
    'makespan_s_fcfs': 15_000, 'makespan_s_switch': 9_000,
    'reduction_pct': 40, 'switches': 19, 'switch_mean_s': 70,
    'local_pct': 75, 'zero_cost': 5, 'wanted_max': 29}


def _unit(name: str) -> str:
    if '_pct' in name:
        return '%'
    if name.startswith('wanted'):
        return 'units'
    if name.startswith('work_lost'):
        return 'core-seconds'
    return 's' if '_s_' in name or name.endswith('_s') else 'count'


EXPERIMENTS = (SwitchExperiment(
    'entropy-cluster', 'makespan of jobs under context switches', run_cluster,
    _PUBLISHED, _unit, PROFILES, default='ours', runs=5),)
