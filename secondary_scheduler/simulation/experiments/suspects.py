# SPDX-License-Identifier: Apache-2.0

"""Search for the secondaries that harm a primary.

``suspects``: one host with a policy on a probe.  One to three of its
secondaries do harm, or none does and the primary harms itself.
"""

from collections.abc import Mapping
import dataclasses

from secondary_scheduler.cpu_affinity.suspects import SuspectOptions
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.affinity.suspects import (
    HarmOutcome,
    HarmRun,
    HarmScenario,
    precision,
    recall,
)
from secondary_scheduler.simulation.experiments.base import Values
from secondary_scheduler.simulation.experiments.profiled import (
    ProfiledContext,
    ProfiledExperiment,
)

#: Secondaries that do harm, by label.
CULPRITS = {'1': 1, '2': 2, '3': 3}
#: Mean seconds of the phases in which the primary harms itself, by label.
OWN = {'own_5': 5.0, 'own_20': 20.0, 'own_60': 60.0}


@dataclasses.dataclass(frozen=True)
class SuspectProfile(SuspectOptions):
    """Parameters of a run, beside the options of trials.

    * ``guests``: secondaries of the host;
    * ``seconds``: length of a run;
    * ``lag_s``: seconds until the signal shows harm;
    * ``noise``: deviation of the logarithm of the signal;
    * ``unknown``: part of the readings of activity that are unknown.
    """

    name: str = 'ours'
    guests: int = 20
    seconds: int = 1800
    lag_s: int = 1
    noise: float = 0.1
    unknown: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 3 <= self.guests <= 1000 or not 60 <= self.seconds <= 10**6:
            raise InputError('--set: guests is a number from 3 to 1000, and '
                             'seconds one from 60 to 1000000')
        if not 0 <= self.noise <= 1 or not 0 <= self.unknown <= 1:
            raise InputError('--set: noise and unknown are parts from 0 to 1')

    def scenario(self, culprits: int, own_s: float, seed: int
                 ) -> HarmScenario:
        """Return the scenario of one run."""
        return HarmScenario(culprits, seed, self.guests, own_s, self.lag_s,
                            self.noise, self.unknown, self.seconds)


@dataclasses.dataclass(frozen=True)
class SuspectSample:
    """Host to draw and to run, in a process of its own."""

    label: str
    seed: int
    profile: SuspectProfile

    def run(self) -> tuple[frozenset[str], HarmOutcome, HarmOutcome]:
        """Return the secondaries that do harm, and two outcomes.

        The first outcome is with trials, the second without.
        """
        scenario = self.profile.scenario(
            CULPRITS.get(self.label, 0), OWN.get(self.label, 0.0), self.seed)
        run = HarmRun(scenario, self.profile)
        return run.culprits, run.run(), HarmRun(scenario, None).run()


def run_suspects(context: ProfiledContext[SuspectProfile]) -> Values:
    """Run hosts with one to three culprits, and with none."""
    labels = ('3', 'own_20') if context.quick else (*CULPRITS, *OWN)
    samples = [SuspectSample(label, seed, context.profile)
               for label in labels for seed in context.seeds]
    found: Values = {}
    for sample, (culprits, one, without) in context.map(SuspectSample.run,
                                                        samples):
        context.write_event({
            'kind': 'suspects', 'seed': sample.seed, 'run': sample.label,
            'culprits': sorted(culprits), 'named': sorted(one.named),
            'failed_s': one.failed_s})
        figures = {'failed_s': one.failed_s, 'work': one.work,
                   'failed_without_s': without.failed_s,
                   'work_without': without.work,
                   'longest_floor_s': one.longest_floor_s}
        if culprits:
            figures['recall'] = recall([(culprits, one)])
            if one.first_s is not None:
                figures['precision'] = precision([(culprits, one)])
                figures['first_s'] = one.first_s
        else:
            figures['unnamed'] = not one.named
        for figure, value in figures.items():
            found.setdefault(f'{figure}_{sample.label}', []).append(
                float(value))
    return found


def _unit(name: str) -> str:
    return 's' if '_s_' in name else 'part'


PROFILES: Mapping[str, SuspectProfile] = {'ours': SuspectProfile()}

EXPERIMENTS = (ProfiledExperiment(
    'suspects', 'secondaries that harm a primary, found by trials',
    run_suspects, {}, _unit, PROFILES, default='ours', runs=40),)
