# SPDX-License-Identifier: Apache-2.0

"""Placement of guests that are all there, beside the best one.

No guest comes or goes, so that a driver can be compared with an oracle that
knows the true slow-downs: annealing over all assignments to as many CPUs as
``interference`` uses, and to all.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import statistics

from secondary_scheduler.cpu_affinity.base import (
    AffinityDecision,
    AffinityGuest,
    AffinityView,
    CpuAffinityDriver,
)
from secondary_scheduler.simulation.affinity import scenarios, thesis_host
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
        guests = scenarios.draw_random(
            max(1, round(self.ratio * len(topology.cpus))), self.seed,
            (self.profile.shortest_s, self.profile.longest_s))
        classes = [one.workload_class for one in guests]
        truth = make_truth(self.truth, thesis_host.PROFILES, self.seed)
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
    for name in list(found):
        if name.startswith('snapshot_ours'):
            context.bounds[name] = found[name.replace('ours', 'oracle')]
    for suffix in {name.removeprefix('snapshot_ours_') for name in found
                   if name.startswith('snapshot_ours_')
                   and not name.startswith('snapshot_ours_all')}:
        low, here, best = (statistics.fmean(found[f'snapshot_{name}_{suffix}'])
                           for name in ('ibs', 'ours', 'oracle'))
        if best > low:
            found[f'snapshot_way_{suffix}'] = [(here - low) / (best - low)]
    return found
