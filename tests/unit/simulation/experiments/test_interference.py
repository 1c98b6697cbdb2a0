# SPDX-License-Identifier: Apache-2.0

"""Interference of secondaries with the primary."""

import unittest

from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.experiments import (
    interference,
)
from secondary_scheduler.simulation.experiments.base import Context


class TestInterference(unittest.TestCase):

    def test_guests_work_beside_the_primary_under_all_thresholds(self):
        for threshold in interference.THRESHOLDS:
            tally = interference.run_policy(
                Context(profiles.THESIS, (1,)), threshold, 8)
            self.assertGreater(tally.counts[0]['start'], 20, threshold)
            self.assertGreater(tally.sums['vm'][0] / tally.host_seconds,
                               1.0, threshold)
