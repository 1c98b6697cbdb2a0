# SPDX-License-Identifier: Apache-2.0

"""Effects of operations, and their failures."""

import dataclasses
import unittest

import numpy as np

from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.engine import (
    Simulation,
    Workload,
)
from secondary_scheduler.simulation.record import Recorder
from secondary_scheduler.simulation.world import Shape, Status


def simulation(profile, leases, seconds, *policies, **values):
    """Return a run of two idle hosts, and its tally."""
    shape = Shape(1, 2, 2, leases)
    record = Recorder(shape, ['run'])
    one = Simulation(Workload(
        shape, policies or ('slots <= 2 for 10s',),
        np.zeros((2 * seconds, 2)), ((1, 2),), **values), profile, record)
    return one, record.tally


class TestFailures(unittest.TestCase):

    def test_failed_start_is_repeated(self):
        profile = dataclasses.replace(profiles.THESIS, failures=0.5,
                                      backoff_s=0.0)
        one, tally = simulation(profile, (1, 1), 400)
        one.run()
        self.assertTrue(tally.counts[0]['failed'])
        self.assertTrue((one.world.status == Status.RUNNING).all())

    def test_lease_with_a_failed_start_does_not_run_in_part(self):
        one, tally = simulation(dataclasses.replace(
            profiles.OURS, failures=0.4), (3,), 900)
        halves = 0

        def look(_second):
            nonlocal halves
            running = one.world.status == Status.RUNNING
            halves += bool(running.any() and not running.all()
                           and not one.operations.flights)
        one.run(look)
        self.assertTrue(tally.counts[0]['failed'])
        self.assertTrue((one.world.status == Status.RUNNING).all())
        self.assertEqual(0, halves)

    def test_lease_of_a_killed_instance_is_queued(self):
        one, tally = simulation(profiles.THESIS, (2,), 60, placed=True)
        one.run()
        one.operations.kill(0, 60.0)
        self.assertEqual({Status.STOPPED}, set(one.world.status.tolist()))
        self.assertEqual((1, 120.0), (tally.counts[0]['kill'],
                                      one.world.hold_until[0]))
        self.assertGreater(tally.lost[0], 0)
