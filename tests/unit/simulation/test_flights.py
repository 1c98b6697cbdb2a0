# SPDX-License-Identifier: Apache-2.0

"""True durations of parallel operations."""

import dataclasses
import unittest

from secondary_scheduler.simulation import profiles
from tests.unit.simulation.test_operations import simulation


class TestDurations(unittest.TestCase):

    def ends(self, **fields):
        profile = dataclasses.replace(profiles.THESIS, noise=0.0,
                                      throttles_boot=False, **fields)
        one, tally = simulation(profile, (1, 1), 40, placed=True)
        one.run()
        return [seen.end - seen.begin for seen, _estimate
                in tally.durations[0]]

    def test_kth_parallel_operation_takes_a_plus_b_k(self):
        self.assertEqual([22.0, 23.0], self.ends())

    def test_congestion_slows_all_parallel_operations(self):
        self.assertEqual([23.0, 23.0], self.ends(congestion=True))
