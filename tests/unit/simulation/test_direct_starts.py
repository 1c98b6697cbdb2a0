# SPDX-License-Identifier: Apache-2.0

"""Starts of instances without a decision."""

import unittest

from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.direct_starts import start_new_instances
from secondary_scheduler.simulation.operations import Operations
from secondary_scheduler.simulation.record import Recorder
from secondary_scheduler.simulation.world import NOWHERE, Shape, World


class DirectStartTest(unittest.TestCase):

    def start(self, memory_mb):
        """Start three instances of 10 MB on two hosts."""
        shape = Shape(1, 2, 2, (1, 1, 1), memory_mb=memory_mb)
        world = World(shape, ((1,),))
        world.memory_mb[:] = 10
        start_new_instances(Operations(
            world, profiles.OURS, Recorder(shape, ['run'])), 0.0)
        return world

    def test_instances_are_spread_over_hosts(self):
        world = self.start(memory_mb=20)
        self.assertEqual([0, 1, 0], world.host.tolist())
        self.assertTrue(world.booting.all())

    def test_instance_without_memory_stays_stopped(self):
        world = self.start(memory_mb=10)
        self.assertEqual([0, 1, NOWHERE], world.host.tolist())
        self.assertEqual([True, True, False], world.booting.tolist())
