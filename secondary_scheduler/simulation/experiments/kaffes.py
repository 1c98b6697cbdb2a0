# SPDX-License-Identifier: Apache-2.0

"""Secondaries on the CPUs of one host (Kaffes 2015, chapters 5 and 6).

``kaffes-under`` has at most as many guests as CPUs, ``kaffes-over`` more, and
in ``kaffes-dynamic`` some of them are active at a time.  Each seed has the
same guests under round robin, the kernel's balancing and the drivers.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools

from secondary_scheduler.cpu_affinity.base import (
    AffinityView,
    CpuAffinityDriver,
)
from secondary_scheduler.cpu_affinity.prediction import SlowdownEstimates
from secondary_scheduler.simulation.affinity import scenarios
from secondary_scheduler.simulation.affinity.profiles import (
    PROFILES,
    AffinityProfile,
)
from secondary_scheduler.simulation.affinity.run import (
    Algorithm,
    HostRun,
    RunOutcome,
)
from secondary_scheduler.simulation.affinity.truths import make_truth
from secondary_scheduler.simulation.experiments.base import Values
from secondary_scheduler.simulation.experiments.kaffes_snapshots import (
    run_snapshots,
)
from secondary_scheduler.simulation.experiments.profiled import (
    ProfiledContext,
    ProfiledExperiment,
)
from secondary_scheduler.simulation.plots import Chart

AffinityContext = ProfiledContext[AffinityProfile]

#: Subscription ratios (guests by CPUs) of each experiment, by label.
UNDER = {'05': 0.5, '1': 1.0}
OVER = {'15': 1.5, '2': 2.0, '25': 2.5, '3': 3.0}
#: The ratios of the thesis; others have the random scenario only.
PUBLISHED_RATIOS = ('05', '1', '15', '2')
#: Guests of ``kaffes-dynamic`` by CPUs, and the active ones.
PLACED, ACTIVE = 2.0, {'12': 1.0, '6': 0.5}
RUNS = 40


def algorithms(profile: AffinityProfile, truth: SlowdownEstimates
               ) -> dict[str, Algorithm]:
    """Return the algorithms that are compared, by the names in figures."""
    interference = profile.load_driver('interference')
    found = {'rrs': Algorithm(profile.load_driver('round-robin'), 0.0),
             'cfs': Algorithm(None),
             'rbs': Algorithm(profile.load_driver('resource'),
                              profile.period_s),
             'ibs': Algorithm(interference, profile.period_s)}
    if profile.driver != 'none':
        found['ours'] = Algorithm(
            profile.compared_driver(truth), 0.0,
            functools.partial(_cpus_of, interference) if profile.confines
            else None)
    return found


def _cpus_of(driver: CpuAffinityDriver, view: AffinityView) -> float:
    """Return the number of CPUs that a driver uses for running guests."""
    decision = driver.decide(view, None)
    return float(len({cpu for name in decision.running
                      for cpus in decision.sets[name] for cpu in cpus}))


@dataclasses.dataclass(frozen=True)
class HostSample:
    """Guests to draw and to run, in a process of its own.

    :param label: suffix of its figures
    :param ratio: guests by CPUs
    :param active: active guests by CPUs in ``dynamic``, None elsewhere
    """

    scenario: str
    label: str
    ratio: float
    seed: int
    truth: str
    profile: AffinityProfile
    active: float | None = None

    def draw(self, cpus: int) -> tuple[scenarios.ScenarioGuest, ...]:
        """Return the guests."""
        count = max(1, round(self.ratio * cpus))
        classes = self.profile.workload_profiles().time_sharing.classes
        lengths = self.profile.shortest_s, self.profile.longest_s
        if self.active is not None:
            return scenarios.draw_dynamic(
                count, max(1, round(self.active * cpus)), self.seed, classes)
        if self.scenario == 'latency':
            return scenarios.draw_latency(count, self.seed, lengths)
        return scenarios.draw_random(count, self.seed, lengths, classes)

    def run(self) -> dict[str, RunOutcome]:
        """Return the outcome of each algorithm."""
        topology = self.profile.topology()
        truth = make_truth(self.truth, self.profile.workload_profiles(),
                           self.seed)
        guests = self.draw(len(topology.cpus))
        return {name: HostRun(guests, algorithm, truth, topology,
                              self.seed).run()
                for name, algorithm in algorithms(self.profile,
                                                 truth).items()}


#: Figures of each algorithm.
Rows = Mapping[str, Mapping[str, float]]


def compare(outcomes: Mapping[str, RunOutcome]) -> Rows:
    """Return the figures of each algorithm against round robin.

    M is the gain in performance plus the part of core-minutes saved (Kaffes
    2015, section 6.1).  The thesis charges round robin for each core that it
    ever used, until the last guest has ended; ``rrs_release`` only while a
    guest runs there.
    """
    base = outcomes['rrs']
    rows: dict[str, dict[str, float]] = {}
    for name, one in outcomes.items():
        gain = one.performance / base.performance - 1
        saved = 1 - one.core_s / base.kept_core_s
        rows[name] = {
            'm': gain + saved, 'core_minutes_pct': -100 * saved,
            'slowest': one.slowest}
        if name != 'rrs':
            rows[name] |= {'perf_pct': 100 * gain, 'm_release':
                           gain + 1 - one.core_s / base.core_s}
    return {'rrs_release' if name == 'rrs' else name: row
            for name, row in rows.items()}


def run_ratios(context: AffinityContext, ratios: Mapping[str, float]
               ) -> Values:
    """Run both scenarios with each ratio of guests to CPUs."""
    chosen = dict(list(ratios.items())[:1]) if context.quick else ratios
    context.write_event({
        'kind': 'host', 'topology': context.profile.topology().describe()})
    samples = [HostSample(scenario, f'{scenario}_{label}', ratio, seed,
                          truth, context.profile)
               for scenario in scenarios.SCENARIOS
               for label, ratio in chosen.items()
               if scenario == 'random' or (
                   label in PUBLISHED_RATIOS
                   and context.profile.has_thesis_classes)
               for truth in context.profile.truth_names
               for seed in context.seeds]
    found: Values = {}
    for sample, outcomes in _run_all(context, samples):
        for name, row in compare(outcomes).items():
            for figure, value in row.items():
                found.setdefault(_figure(figure, name, sample), []).append(
                    value)
    _draw(context, found, chosen)
    if context.profile.driver != 'none':
        found |= run_snapshots(context, {
            label: ratio for label, ratio in chosen.items()
            if label in PUBLISHED_RATIOS})
    return found


def _figure(figure: str, algorithm: str, sample: HostSample) -> str:
    suffix = '' if sample.truth == 't1' else f'_{sample.truth}'
    return f'{figure}_{algorithm}_{sample.label}{suffix}'


def _run_all(context: AffinityContext, samples: Sequence[HostSample]
             ) -> Iterator[tuple[HostSample, Mapping[str, RunOutcome]]]:
    """Run samples; write the outcome of each guest as an event."""
    for sample, outcomes in context.map(HostSample.run, samples):
        for name, outcome in outcomes.items():
            for one in outcome.guests:
                context.write_event({
                    'kind': 'guest', 'seed': sample.seed, 'run': sample.label,
                    'truth': sample.truth, 'algorithm': name,
                    'instance': one.guest.name,
                    'class': one.guest.workload_class,
                    'arrived': one.guest.arrives_s, 'ended': one.ended_s,
                    'performance': one.performance})
        yield sample, outcomes


def _draw(context: AffinityContext, found: Values,
          ratios: Mapping[str, float]) -> None:
    """Draw M on the first of the true models."""
    truth = context.profile.truth_names[0]
    suffix = '' if truth == 't1' else f'_{truth}'
    for scenario in scenarios.SCENARIOS:
        lines = {}
        for name in ('rrs_release', 'cfs', 'rbs', 'ibs', 'ours'):
            points = [(ratio, found[key]) for label, ratio in ratios.items()
                      if (key := f'm_{name}_{scenario}_{label}{suffix}')
                      in found]
            if points:
                lines[name] = ([ratio for ratio, _ in points],
                               [sum(some) / len(some) for _, some in points])
        if lines:
            context.charts.append(Chart(
                'M against round robin', lines, 'guests by CPUs',
                scenario))


def run_under(context: AffinityContext) -> Values:
    """Run at most as many guests as CPUs."""
    return run_ratios(context, UNDER)


def run_over(context: AffinityContext) -> Values:
    """Run more guests than CPUs."""
    return run_ratios(context, OVER)


def run_dynamic(context: AffinityContext) -> Values:
    """Run guests of which some are active at a time."""
    labels = dict(list(ACTIVE.items())[:1]) if context.quick else ACTIVE
    samples = [HostSample('dynamic', label, PLACED, seed, truth,
                          context.profile, active)
               for label, active in labels.items()
               for truth in context.profile.truth_names
               for seed in context.seeds]
    found: Values = {}
    for sample, outcomes in _run_all(context, samples):
        for name, row in compare(outcomes).items():
            one = outcomes['rrs' if name == 'rrs_release' else name]
            figures = {'cores': one.core_s / one.seconds}
            figures |= {figure: row[figure] for figure in (
                'perf_pct', 'slowest') if figure in row}
            for figure, value in figures.items():
                found.setdefault(_figure(figure, name, sample), []).append(
                    value)
    return found


#: Table 6.1: M of resource and interference.
_TABLE = {
    'random_05': (0.3017322721, 0.2569134853),
    'random_1': (0.1645904566, 0.2598010751),
    'random_15': (0.4024503311, 0.4777130243),
    'random_2': (0.07868456622, 0.1507817439),
    'latency_05': (0.3016877948, 0.3262783336),
    'latency_1': (0.3119356019, 0.4184069583),
    'latency_15': (0.285943619, 0.3956368481),
    'latency_2': (0.2476092701, 0.3072840804)}


def _published() -> dict[str, float]:
    found = {f'm_{name}_{label}': value for label, values in _TABLE.items()
             for name, value in zip(('rbs', 'ibs'), values, strict=True)}
    # Section 5.3, in words.
    for figure, label, values in (
            ('core_minutes_pct', 'random_05', (-32.0, -32.0)),
            ('core_minutes_pct', 'random_1', (-24.0, -34.5)),
            ('core_minutes_pct', 'random_2', (-11.5, -15.0)),
            ('core_minutes_pct', 'latency_2', (-10.5, -25.0)),
            ('perf_pct', 'random_05', (-2.5, -7.0)),
            ('perf_pct', 'random_1', (-8.0, -8.5)),
            ('perf_pct', 'random_15', (10.0, 10.0)),
            ('perf_pct', 'latency_2', (14.0, 5.5))):
        found |= {f'{figure}_{name}_{label}': value for name, value in zip(
            ('rbs', 'ibs'), values, strict=True)}
    return found


def _unit(name: str) -> str:
    if '_pct_' in name:
        return '%'
    return 'CPUs' if name.startswith('cores_') else 'part'


def _experiment(name: str, summary: str, measure: object,
                published: Mapping[str, float]) -> ProfiledExperiment[
                    AffinityProfile]:
    return ProfiledExperiment(name, summary, measure, published, _unit,
                              PROFILES, default='thesis', runs=RUNS)


EXPERIMENTS: Sequence[ProfiledExperiment[AffinityProfile]] = (
    _experiment('kaffes-under', 'guests on at most as many CPUs, by driver',
                run_under, _published()),
    _experiment('kaffes-over', 'more guests than CPUs, by driver', run_over,
                _published()),
    _experiment('kaffes-dynamic', 'guests that are active in turns, by driver',
                run_dynamic, {'perf_pct_rbs_12': 18.0,
                              'perf_pct_ibs_12': 13.0}))
