# SPDX-License-Identifier: Apache-2.0

"""Profiles that observations correct."""

import random
import unittest

from secondary_scheduler.cpu_affinity.prediction import SlowdownModel
from secondary_scheduler.cpu_affinity.profile_learning import (
    ObservedSlowdown,
    ProfileLearner,
)
from secondary_scheduler.simulation.affinity import thesis_host, truths

PROFILES = thesis_host.PROFILES


class TestProfileLearner(unittest.TestCase):

    def test_expected_observations_change_nothing(self):
        learner = ProfileLearner(PROFILES)
        model = SlowdownModel(PROFILES)
        for victim, other, far in (('BS', 'LS', 'HA'), ('HL', 'LL', 'JA')):
            learner.observe(ObservedSlowdown(
                victim, (other,), (far,),
                model.on_cpu(tuple(sorted((victim, other))))[victim]
                * model.beside(victim, [far])))
        for one in thesis_host.CLASSES:
            for other in thesis_host.CLASSES:
                self.assertAlmostEqual(
                    PROFILES.time_sharing.slowdown(one, other),
                    learner.profiles().time_sharing.slowdown(one, other))

    def test_only_the_entries_of_an_observation_change(self):
        learner = ProfileLearner(PROFILES)
        learner.observe(ObservedSlowdown('HL', (), ('HA', 'LS'), 1.2))
        found = learner.profiles()
        self.assertEqual(PROFILES.time_sharing, found.time_sharing)
        # The largest entry, 1.68, explains what was seen.
        self.assertAlmostEqual(1.2, found.space_sharing.slowdown('HL', 'HA'),
                               delta=0.03)
        self.assertEqual(1.02, found.space_sharing.slowdown('HL', 'LS'))

    def test_entries_stay_at_1_or_above(self):
        learner = ProfileLearner(PROFILES)
        for _ in range(20):
            learner.observe(ObservedSlowdown('LS', ('BS',), (), 0.7))
        self.assertEqual(1.0, learner.profiles().time_sharing.slowdown(
            'LS', 'BS'))

    def test_unknown_classes_and_invalid_slowdowns_are_left_out(self):
        learner = ProfileLearner(PROFILES)
        for observed in (ObservedSlowdown('new', ('BS',), (), 9.0),
                         ObservedSlowdown('BS', ('new',), (), 9.0),
                         ObservedSlowdown('BS', (), ('new',), 9.0),
                         ObservedSlowdown('BS', ('HA',), (), 0.0),
                         ObservedSlowdown('BS', ('HA',), (), -1.0)):
            learner.observe(observed)
        self.assertEqual(PROFILES, learner.profiles())

    def test_errors_of_profiles_are_learned_from_noisy_observations(self):
        truth = truths.wrong_profiles(PROFILES, 5)
        model, learner = SlowdownModel(truth), ProfileLearner(PROFILES)
        draw = random.Random(1)
        for _ in range(1500):
            victim, other, far = draw.choices(thesis_host.CLASSES, k=3)
            learner.observe(ObservedSlowdown(
                victim, (other,), (far,),
                model.on_cpu(tuple(sorted((victim, other))))[victim]
                * model.beside(victim, [far])
                * draw.lognormvariate(0.0, 0.05)))

        def error(profiles):
            model_of = SlowdownModel(profiles)
            return sum(abs(
                model_of.on_cpu(tuple(sorted((one, other))))[one]
                * model_of.beside(one, [far])
                / (model.on_cpu(tuple(sorted((one, other))))[one]
                   * model.beside(one, [far])) - 1)
                for one in thesis_host.CLASSES
                for other in thesis_host.CLASSES
                for far in thesis_host.CLASSES) / 512

        self.assertLess(0.1, error(PROFILES))
        self.assertLess(error(learner.profiles()), 0.05)
