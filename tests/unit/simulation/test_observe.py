# SPDX-License-Identifier: Apache-2.0

"""Observations of simulated clusters for decisions."""

import dataclasses
import unittest

import numpy as np

from secondary_scheduler.policies import language
from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.checks import PolicyChecks
from secondary_scheduler.simulation.observe import BLOCK, SimulatedObserver
from secondary_scheduler.simulation.operations import Operations
from secondary_scheduler.simulation.record import Recorder
from secondary_scheduler.simulation.world import Shape, Status, World

HELD = dataclasses.replace(profiles.OURS, memory_s=40)
KILLED = dataclasses.replace(HELD, freeze=False)


class TestObserver(unittest.TestCase):

    def observer(self, profile=profiles.OURS, leases=(1, 1, 1)):
        shape = Shape(2, 3, 2, leases)
        self.world = World(shape, ((1,), (2,)))
        return SimulatedObserver(
            self.world, PolicyChecks(language.parse_all(
                ('cpu <= 90% for 10s', 'slots <= 2 for 25s')), 6),
            Operations(self.world, profile, Recorder(shape, ('a', 'b'))),
            profile)

    def see(self, observer, cpu, seconds=1):
        main = np.zeros((3, 6))
        main[0] = cpu
        for _second in range(seconds):
            observer.add_second(main, np.full(6, 3.0))

    def test_highest_use_counts_without_a_floor(self):
        for profile, expected in ((KILLED, 80), (HELD, 10)):
            observer = self.observer(profile)
            self.see(observer, 80)
            self.see(observer, 10, 20)
            np.testing.assert_allclose(expected, observer.foreseen()[0])
            np.testing.assert_allclose(10, observer.main()[0])
            self.see(observer, 10, 20 + BLOCK)
            np.testing.assert_allclose(10, observer.foreseen()[0])

    def test_part_has_instances_of_its_hosts_and_the_given_ones(self):
        observer = self.observer()
        self.see(observer, 10)
        world = self.world
        world.status[3:5], world.host[3:5] = Status.RUNNING, (3, 5)
        part = observer.part(1, 0.0, np.array([4, 5]), np.array([5]))
        self.assertEqual({'0001', '0002'}, part.hosts.keys())
        self.assertEqual({'00001': '0002', '00002': None}, {
            one.uuid: one.host for one in part.instances.values()})
        whole = observer.cluster(1, 0.0)
        self.assertEqual(3, len(whole.hosts))
        self.assertEqual({'00000', '00001', '00002'}, whole.instances.keys())
        for name, host in part.hosts.items():
            self.assertEqual(whole.hosts[name], host)

    def test_violation_ends_cooling_down_of_its_host_and_leases(self):
        observer = self.observer(leases=(2, 1))
        self.see(observer, 95)
        world = self.world
        world.status[:], world.host[:] = Status.RUNNING, (0, 1, 2, 3, 4, 5)
        world.hold_until[:], world.block_until[:] = 9.0, 9.0
        lease = world.lease_of[0]
        observer.violated[0, 0] = True
        seen = observer.cluster(0, 1.0)
        self.assertEqual([False, True, True], [
            host.blocked for _name, host in sorted(seen.hosts.items())])
        for number, one in enumerate(
                value for _uuid, value in sorted(seen.instances.items())):
            self.assertEqual(world.lease_of[number] != lease, one.blocked)
        self.assertTrue(all(one.blocked for one in observer.cluster(
            1, 1.0).instances.values()))
