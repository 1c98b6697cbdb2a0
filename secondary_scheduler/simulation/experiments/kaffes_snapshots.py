# SPDX-License-Identifier: Apache-2.0

"""Placement of guests that are all there, beside the best one.

No guest comes or goes, so that a driver can be compared with an oracle that
knows the true slow-downs: annealing over all assignments to as many CPUs as
``interference`` uses, and to all.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import random
import statistics

from secondary_scheduler.cpu_affinity.base import (
    AffinityDecision,
    AffinityGuest,
    AffinityView,
    CpuAffinityDriver,
)
from secondary_scheduler.cpu_affinity.prediction import SlowdownEstimates
from secondary_scheduler.cpu_affinity.profile_learning import (
    ObservedSlowdown,
    ProfileLearner,
)
from secondary_scheduler.simulation.affinity import scenarios
from secondary_scheduler.simulation.affinity.annealing import anneal
from secondary_scheduler.simulation.affinity.profiles import AffinityProfile
from secondary_scheduler.simulation.affinity.truths import (
    make_truth,
    slowdowns,
)
from secondary_scheduler.simulation.experiments.base import Values
from secondary_scheduler.simulation.experiments.profiled import (
    ProfiledContext,
)

#: Seconds between two decisions that learn.
ROUND_S = 60.0
#: Deviation of the logarithm of an observed slow-down.
NOISE = 0.05


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """Guests to draw and to place, in a process of its own.

    :param label: suffix of its figures
    :param ratio: guests by CPUs
    """

    label: str
    ratio: float
    seed: int
    truth: str
    profile: AffinityProfile

    def measure(self) -> dict[str, float]:
        """Return mean and lowest performance under each algorithm."""
        topology = self.profile.topology()
        workloads = self.profile.workload_profiles()
        guests = scenarios.draw_random(
            max(1, round(self.ratio * len(topology.cpus))), self.seed,
            (self.profile.shortest_s, self.profile.longest_s),
            workloads.time_sharing.classes)
        classes = [one.workload_class for one in guests]
        truth = make_truth(self.truth, workloads, self.seed)
        view = AffinityView(0.0, topology, tuple(
            AffinityGuest(one.name, one.workload_class, topology.cpus)
            for one in guests))
        names = [one.name for one in guests]

        def place(driver: CpuAffinityDriver, most: int) -> list[int]:
            return _cpus(names, driver.decide(
                dataclasses.replace(view, share_cpus=float(most)), None))

        every = len(topology.cpus)
        ours = self.profile.compared_driver(truth)
        placed = {'rrs': place(self.profile.load_driver('round-robin'),
                               every),
                  'ibs': place(self.profile.load_driver('interference'),
                               every)}
        used = len(set(placed['ibs']))
        placed['ours'] = place(ours, used)
        placed['learned'] = (
            placed['ours'] if self.profile.driver == 'oracle'
            else self._learn(dataclasses.replace(
                view, share_cpus=float(used)), truth))
        placed['ours_all'] = place(ours, every)
        for name, most, start in (('oracle', used, 'ibs'),
                                  ('oracle_all', every, 'rrs')):
            placed[name] = anneal(truth, topology, classes, placed[start],
                                  most, self.profile.annealing_steps,
                                  self.seed)
        found = {}
        for name, cpus in placed.items():
            speeds = [1 / one for one in slowdowns(truth, topology, classes,
                                                   cpus)]
            found[f'snapshot_{name}'] = statistics.fmean(speeds)
            found[f'snapshot_slowest_{name}'] = min(speeds)
        return found


    def _learn(self, view: AffinityView, truth: SlowdownEstimates
               ) -> list[int]:
        """Return the CPU of each guest after decisions that learn.

        Each guest's slow-down is observed after each decision, with noise.
        """
        noise = random.Random(f'observations {self.seed}')
        learner = ProfileLearner(self.profile.workload_profiles())
        names = [one.name for one in view.guests]
        classes = [str(one.workload_class) for one in view.guests]
        domain = {cpu: part for part in view.topology.cache_domains
                  for cpu in part}
        decision: AffinityDecision | None = None
        cpus: list[int] = []
        for number in range(self.profile.rounds):
            driver = self.profile.load_driver(self.profile.driver,
                                              learner.profiles())
            decision = driver.decide(dataclasses.replace(
                view, now_s=ROUND_S * number), decision)
            cpus = _cpus(names, decision)
            found = slowdowns(truth, view.topology, classes, cpus)
            for place, cpu in enumerate(cpus):
                learner.observe(ObservedSlowdown(
                    classes[place],
                    tuple(one for other, one in enumerate(classes)
                          if other != place and cpus[other] == cpu),
                    tuple(one for other, one in enumerate(classes)
                          if cpus[other] != cpu
                          and cpus[other] in domain[cpu]),
                    found[place] * noise.lognormvariate(0.0, NOISE)))
        return cpus


def _cpus(names: Sequence[str], decision: AffinityDecision) -> list[int]:
    """Return the CPU for which each guest's slow-down was predicted."""
    return [decision.homes[name][0] if name in decision.homes
            else min(decision.sets[name][0]) for name in names]


def run_snapshots(context: ProfiledContext[AffinityProfile],
                  ratios: Mapping[str, float]) -> Values:
    """Place guests with each ratio of guests to CPUs."""
    samples = [Snapshot(label, ratio, seed, truth, context.profile)
               for label, ratio in ratios.items()
               for truth in context.profile.truth_names
               for seed in context.seeds]
    found: Values = {}
    for sample, row in context.map(Snapshot.measure, samples):
        suffix = (f'_{sample.label}'
                  + ('' if sample.truth == 't1' else f'_{sample.truth}'))
        for name, value in row.items():
            found.setdefault(name + suffix, []).append(value)
    _add_bounds(context.bounds, found)
    return found


def _add_bounds(bounds: Values, found: Values) -> None:
    """Add the oracle's values, and the part of the way to it.

    ``snapshot_way`` is the part of the way in mean performance from
    ``interference`` to the oracle on as many CPUs.
    """
    for name in list(found):
        for one in ('ours', 'learned'):
            if name.startswith((f'snapshot_{one}',
                                f'snapshot_slowest_{one}')):
                bounds[name] = found[name.replace(one, 'oracle')]
    start = 'snapshot_learned_'
    for suffix in [name.removeprefix(start) for name in found
                   if name.startswith(start)]:
        low, best = (statistics.fmean(found[f'snapshot_{name}_{suffix}'])
                     for name in ('ibs', 'oracle'))
        for one, figure in (('ours', 'way'), ('learned', 'way_learned')):
            here = statistics.fmean(found[f'snapshot_{one}_{suffix}'])
            if best > low:
                found[f'snapshot_{figure}_{suffix}'] = [
                    (here - low) / (best - low)]
