# SPDX-License-Identifier: Apache-2.0

"""Policies that change while secondaries run."""

import unittest
from unittest import mock

from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.experiments import changes
from secondary_scheduler.simulation.experiments.base import Context


class TestClearing(unittest.TestCase):

    def clear(self, profile, timelimit):
        with mock.patch.multiple(changes, CLEARED=(6,),
                                 TIMELIMITS=(timelimit,)):
            return {name.split('_6_')[0]: value for name, (value,) in
                    changes.run_clearing(Context(profile, (1,))).items()}

    def test_thesis_stops_instances_only_with_a_short_time_limit(self):
        short = self.clear(profiles.THESIS, 5)
        self.assertEqual((0, 0), (short['suspends'], short['migrations']))
        self.assertGreater(short['stops'], 0)
        long = self.clear(profiles.THESIS, 50)
        self.assertEqual(0, long['stops'] + long['work_lost_core_s'])
        self.assertGreater(long['migrations'], 0)

    def test_ours_loses_no_work_with_a_short_time_limit(self):
        found = self.clear(profiles.OURS, 5)
        self.assertEqual(0, found['stops'] + found['kills']
                         + found['invalidations'] + found['work_lost_core_s'])
        self.assertLessEqual(found['clear_s'], 5)
