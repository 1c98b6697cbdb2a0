# SPDX-License-Identifier: Apache-2.0

"""A primary beside secondaries whose CPUs are chosen.

``kaffes-primary``: the host and the classes of Kaffes 2015.  Four threads of a
primary float over all CPUs.  Secondaries of random classes, one or two for
each CPU, are under ``cpu <= 90%``.
"""

from collections.abc import Mapping
import dataclasses
import random
import statistics

from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.affinity.primary import Harm, PrimaryRun
from secondary_scheduler.simulation.affinity.profiles import (
    PROFILES,
    AffinityProfile,
)
from secondary_scheduler.simulation.experiments.base import Values
from secondary_scheduler.simulation.experiments.profiled import (
    ProfiledContext,
    ProfiledExperiment,
)
from secondary_scheduler.simulation.plots import Chart

#: Part of the time for which a thread has work, by label.
LOADS = {'20': 0.2, '40': 0.4, '60': 0.6, '80': 0.8}
#: Secondaries for each CPU, by label.
RATIOS = {'1': 1, '2': 2}


@dataclasses.dataclass(frozen=True)
class PrimarySample:
    """Primary and secondaries to draw and to run, in a process of its own."""

    load: str
    ratio: str
    seed: int
    profile: AffinityProfile

    def run(self) -> dict[str, Harm]:
        """Return the result without a driver, and with each."""
        topology = self.profile.topology()
        workloads = self.profile.workload_profiles()
        classes = random.Random(f'primary {self.ratio} {self.seed}').choices(
            workloads.time_sharing.classes,
            k=RATIOS[self.ratio] * len(topology.cpus))
        drivers = {'none': None,
                   'ibs': self.profile.load_driver('interference')}
        if self.profile.driver not in ('none', 'oracle'):
            drivers['pool'] = self.profile.load_driver(self.profile.driver)
        run = PrimaryRun(workloads, topology, classes,
                         LOADS[self.load], self.seed)
        return {name: run.run(driver) for name, driver in drivers.items()}


def run_primary(context: ProfiledContext[AffinityProfile]) -> Values:
    """Run all loads, with one and with two secondaries for each CPU."""
    if not context.profile.has_thesis_classes:
        raise InputError(f'{context.profile.workloads}: the primary of this '
                         'experiment is of the classes HL and MS; expected '
                         'the classes of the thesis')
    loads = list(LOADS)[1:2] if context.quick else list(LOADS)
    samples = [PrimarySample(load, ratio, seed, context.profile)
               for ratio in RATIOS for load in loads
               for seed in context.seeds]
    found: Values = {}
    for sample, results in context.map(PrimarySample.run, samples):
        suffix = f'{sample.load}_{sample.ratio}'
        for name, one in results.items():
            found.setdefault(f'loss_pct_{name}_{suffix}', []).append(
                100 * one.loss)
            found.setdefault(f'work_{name}_{suffix}', []).append(one.work)
            context.write_event({
                'kind': 'primary', 'seed': sample.seed, 'run': suffix,
                'algorithm': name, 'loss': one.loss, 'work': one.work})
    for name in ('ibs', 'pool'):
        for suffix in [f'{load}_{ratio}' for ratio in RATIOS
                       for load in loads]:
            for figure in ('loss_pct', 'work'):
                with_it = found.get(f'{figure}_{name}_{suffix}')
                if with_it:
                    found[f'{figure.removesuffix("_pct")}_ratio_{name}_'
                          f'{suffix}'] = [
                        statistics.fmean(with_it) / max(1e-9, statistics.fmean(
                            found[f'{figure}_none_{suffix}']))]
    _draw(context, found, loads)
    return found


def _draw(context: ProfiledContext[AffinityProfile],
          found: Mapping[str, list[float]], loads: list[str]) -> None:
    for ratio in RATIOS:
        context.charts.append(Chart('loss of the primary (%)', {
            name: ([100 * LOADS[load] for load in loads],
                   [statistics.fmean(found[f'loss_pct_{name}_{load}_{ratio}'])
                    for load in loads])
            for name in ('none', 'ibs', 'pool')
            if f'loss_pct_{name}_{loads[0]}_{ratio}' in found},
            'load of each thread (%)', f'{ratio} for each CPU'))


def _unit(name: str) -> str:
    if name.startswith('work_') and '_ratio_' not in name:
        return 's'
    return '%' if '_pct_' in name else 'part'


EXPERIMENTS = (ProfiledExperiment(
    'kaffes-primary', 'loss of a primary beside guests on chosen CPUs',
    run_primary, {}, _unit, PROFILES, default='ours', runs=40),)
