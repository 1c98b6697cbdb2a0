# SPDX-License-Identifier: Apache-2.0

"""Efficiency experiment, and the cluster of its ablations."""

import dataclasses
import unittest
from unittest import mock

import numpy as np

from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.experiments import (
    EXPERIMENTS,
    efficiency,
)
from secondary_scheduler.simulation.experiments.base import Context


def measure(name, profile, *seeds, **values):
    return EXPERIMENTS[name].measure(Context(profile, seeds, **values))


class TestEfficiency(unittest.TestCase):

    def test_longer_results_lose_more_work(self):
        """As published: 0.52 and 0.40 (Boettger 2012, section 6.4.3)."""
        with mock.patch.object(efficiency, 'MEANS', (24,)):
            found = measure('efficiency', profiles.THESIS, 1, quick=True)
        self.assertLess(found['vm_conv_square_90_6_300'],
                        found['vm_conv_square_90_6'])
        published = EXPERIMENTS['efficiency'].published
        self.assertEqual(0.4, published['vm_conv_square_90_6_300'])


class TestConstantLoad(unittest.TestCase):

    def test_constant_load_causes_no_operation_after_the_lead_in(self):
        """The 19 clusters have different loads."""
        for profile in (profiles.THESIS, profiles.OURS):
            workload = efficiency.workload(
                'square', 80, 8, tuple(range(5, 100, 5)), (1,), seconds=900)
            workload = dataclasses.replace(
                workload, load=np.tile(workload.load[0],
                                       (len(workload.load), 1)))
            tally = Context(profile, (1,)).simulate(workload, [
                str(one) for one in range(workload.shape.clusters)])
            self.assertTrue(all(one['start'] for one in tally.counts[:10]))
            self.assertLess(tally.last_operation_s.max(), 450, profile.name)


class TestLastResort(unittest.TestCase):

    def test_ours_kills_less_since_violations_end_cooling_down(self):
        kills = {}
        for profile in (profiles.THESIS,
                        profiles.OURS.change({'freeze': 'off'})):
            tally = Context(profile, (1,)).simulate(efficiency.workload(
                'square', 90, 20, (44,), (1,)), ['a'])
            kills[profile.name] = tally.counts[0]['kill']
        self.assertGreater(kills['thesis'], 20)
        self.assertLessEqual(2 * kills['ours'], kills['thesis'])
