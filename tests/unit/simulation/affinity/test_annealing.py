# SPDX-License-Identifier: Apache-2.0

"""Oracle of the experiments with CPU affinity."""

import itertools
import statistics
import unittest

from secondary_scheduler.simulation.affinity import thesis_host, truths
from secondary_scheduler.simulation.affinity.annealing import (
    OracleAffinity,
    anneal,
)
from tests.unit.cpu_affinity import hosts


class TestAnnealing(unittest.TestCase):

    CLASSES = ('HS', 'JA', 'HL', 'HA', 'LL', 'LS')

    def mean(self, name, cpus):
        truth = truths.make_truth(name, thesis_host.PROFILES, 1)
        return statistics.fmean(1 / one for one in truths.slowdowns(
            truth, thesis_host.TOPOLOGY, self.CLASSES, cpus))

    def test_best_assignment_is_found(self):
        # Two CPUs of each socket stand for all assignments to four CPUs.
        for name in truths.NAMES:
            best = max(self.mean(name, cpus) for cpus in itertools.product(
                (0, 1, 6, 7), repeat=6) if len(set(cpus)) <= 3)
            found = anneal(truths.make_truth(name, thesis_host.PROFILES, 1),
                           thesis_host.TOPOLOGY, self.CLASSES, [0] * 6, 3,
                           4000, 1)
            self.assertLessEqual(len(set(found)), 3)
            self.assertAlmostEqual(best, self.mean(name, found))

    def test_oracle_keeps_to_the_share_and_to_its_decision(self):
        truth = truths.make_truth('t2', thesis_host.PROFILES, 1)
        driver = OracleAffinity(truth, 500)
        view = hosts.view(self.CLASSES, share_cpus=2.0)
        found = driver.decide(view, None)
        self.assertEqual(2, len(found.pool))
        self.assertIs(found, driver.decide(view, found))
