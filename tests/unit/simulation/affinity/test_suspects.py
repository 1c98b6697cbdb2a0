# SPDX-License-Identifier: Apache-2.0

"""Hosts on which some secondaries harm the primary."""

import unittest

from secondary_scheduler.cpu_affinity.suspects import SuspectOptions
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.affinity import suspects
from secondary_scheduler.simulation.affinity.suspects import (
    HarmOutcome,
    HarmRun,
    HarmScenario,
)
from secondary_scheduler.simulation.experiments import EXPERIMENTS, base

TRIALS = SuspectOptions()


def run(options=TRIALS, **values):
    """Return the culprits and the outcome of a run."""
    made = HarmRun(HarmScenario(**values), options)
    return made.culprits, made.run()


class TestHarmRun(unittest.TestCase):

    def test_culprits_are_found(self):
        for culprits, seconds in ((1, 900), (3, 1800)):
            runs = [run(culprits=culprits, seed=seed, seconds=seconds)
                    for seed in range(3)]
            with self.subTest(culprits=culprits):
                self.assertLessEqual(0.9, suspects.precision(runs))
                self.assertLessEqual(0.75, suspects.recall(runs))

    def test_primary_that_harms_itself_has_no_suspects(self):
        for own_s in (20.0, 60.0):
            named = [run(culprits=0, seed=seed, own_s=own_s, seconds=900
                         )[1].named for seed in range(3)]
            self.assertEqual([frozenset()] * 3, named)

    def test_innocent_secondaries_work_more_than_without_trials(self):
        (_, one), (_, other) = (run(options, culprits=1, seed=5, seconds=900)
                                for options in (TRIALS, None))
        self.assertGreater(one.work, other.work)
        self.assertEqual(frozenset(), other.named)

    def test_host_without_harm_reacts_to_nothing(self):
        culprits, found = run(culprits=0, seed=1, seconds=300)
        self.assertEqual((frozenset(), frozenset(), 0),
                         (culprits, found.named, found.longest_floor_s))
        self.assertLess(0.95, found.work)

    def test_same_seed_gives_the_same_result(self):
        self.assertEqual(run(culprits=2, seed=3, seconds=300),
                         run(culprits=2, seed=3, seconds=300))

    def test_figures_by_hand(self):
        none = HarmOutcome(frozenset(), None, 1.0, 0, 0)
        runs = [(frozenset('ab'), none._replace(named=frozenset(named)))
                for named in ('ac', 'b', '')]
        self.assertAlmostEqual(2 / 3, suspects.precision(runs))
        self.assertAlmostEqual(2 / 6, suspects.recall(runs))


class TestExperiment(unittest.TestCase):

    def run_with(self, *changes):
        """Return the figures of the smallest form, with one seed."""
        return EXPERIMENTS['suspects'].run(base.ExperimentOptions(
            (('seconds', '300'), *changes), (1,), quick=True)).figures

    def test_figures_with_and_without_culprits(self):
        found = self.run_with()
        for name, unit in (('recall_3', 'part'), ('unnamed_own_20', 'part'),
                           ('failed_without_s_3', 's')):
            self.assertEqual(unit, found[name].unit)
        self.assertEqual(1.0, found['unnamed_own_20'].measured)
        self.assertNotIn('recall_own_20', found)

    def test_wrong_options_are_named(self):
        for name, value, text in (
                ('guests', '2', 'guests is a number from 3'),
                ('noise', '2', 'parts from 0 to 1'),
                ('trials', '0', 'trials: expected a number from 1'),
                ('profile', 'thesis', 'there are: ours')):
            with self.subTest(name), self.assertRaisesRegex(InputError, text):
                self.run_with((name, value))
