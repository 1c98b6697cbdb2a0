# SPDX-License-Identifier: Apache-2.0

"""Comparison of means, against tables."""

import unittest

from secondary_scheduler.simulation import statistics


class TestStudent(unittest.TestCase):

    def test_quantiles_equal_those_of_tables(self):
        for share, freedom, value in ((0.95, 30, 1.697), (0.975, 10, 2.228),
                                      (0.95, 4, 2.132), (0.5, 7, 0.0)):
            self.assertAlmostEqual(value, statistics.t_quantile(
                share, freedom), places=3)
            self.assertAlmostEqual(share, statistics.t_cdf(
                value, freedom), places=3)


class TestCompare(unittest.TestCase):

    def test_welch_test_of_a_small_example(self):
        # t = 1 / sqrt(2 (5 / 3) / 4) = 1.0954 with 6 degrees of freedom.
        found = statistics.compare((1, 2, 3, 4), (2, 3, 4, 5))
        self.assertEqual(-1, found.difference)
        self.assertAlmostEqual(0.315, found.p, places=3)
        self.assertAlmostEqual(-1 - 1.943 * 0.9129, found.low, places=3)
        self.assertAlmostEqual(-1 + 1.943 * 0.9129, found.high, places=3)

    def test_equivalence_needs_the_whole_interval(self):
        found = statistics.compare((1, 2, 3, 4), (2, 3, 4, 5))
        self.assertFalse(found.equivalent(2.0))
        self.assertTrue(found.equivalent(3.0))
