# SPDX-License-Identifier: Apache-2.0

"""Queue of the HLT experiments."""

import unittest

import numpy as np

from secondary_scheduler.simulation import queueing
from secondary_scheduler.simulation.experiments import hlt


class TestQueue(unittest.TestCase):

    def test_mean_queue_without_secondaries_is_the_published_one(self):
        load = np.tile(hlt.LOADS, (1800, 1))
        means = [queueing.waiting_events(load, np.ones_like(load), (seed, 3))[
            hlt.WARM_UP:].mean() for seed in range(1, 6)]
        self.assertAlmostEqual(8.93, np.mean(means), delta=0.05 * 8.93)

    def test_events_do_not_depend_on_the_speed(self):
        load = np.tile(hlt.LOADS, (300, 1))
        full = queueing.waiting_events(load, np.ones_like(load), (1,))
        slow = queueing.waiting_events(load, np.full_like(load, 0.95), (1,))
        self.assertTrue((slow >= full - 1e-9).all())
        self.assertGreater(slow.mean(), full.mean())

    def test_no_event_waits_without_load(self):
        self.assertEqual(0, queueing.waiting_events(
            np.zeros((9, 2)), np.ones((9, 2)), (1,)).sum())
