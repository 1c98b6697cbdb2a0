# SPDX-License-Identifier: Apache-2.0

"""Constant loads come to rest in the simulators, without any throttle."""

import unittest

import numpy as np

from benchmarks import constant_loads, constant_simulations
from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.observe import WINDOW
from secondary_scheduler.simulation.world import Status
from tests.unit.simulation.test_operations import simulation


class TestRest(unittest.TestCase):

    def assert_rest(self, courses):
        found = list(courses)
        self.assertEqual([([], [])] * len(found), [
            (one.late, one.again) for one in found])
        self.assertGreater(sum(sum(one.operations) for one in found), 0)

    def test_guided_comes_to_rest(self):
        self.assert_rest(constant_simulations.simulate_guided(40, 1))

    def test_context_switch_comes_to_rest(self):
        self.assert_rest(constant_simulations.simulate_switches(
            map(constant_loads.draw_model, range(60)), 4))


class TestLastUse(unittest.TestCase):

    def test_suspended_guest_counts_with_its_last_use(self):
        for local_control, counts in ((False, 50.0), (True, 13.0)):
            one, _tally = simulation(
                profiles.OURS.change({
                    'local_control': 'on' if local_control else 'off'}),
                (1,), 40, placed=True)
            one.run()
            self.assertEqual(Status.RUNNING, one.world.status[0])
            one.world.status[0] = Status.SUSPENDED
            for _second in range(2 * WINDOW):
                one._observer.add_second(np.zeros((3, 2)), np.zeros(1))
            self.assertAlmostEqual(
                counts, one._observer.counted()[0], delta=1.0)
