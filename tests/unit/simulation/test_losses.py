# SPDX-License-Identifier: Apache-2.0

"""Crashed instances, lost hosts and lost agents."""

import dataclasses
import unittest

import numpy as np

from secondary_scheduler.plans.operations import OperationKind
from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.direct_starts import start_new_instances
from secondary_scheduler.simulation.engine import Simulation, Workload
from secondary_scheduler.simulation.losses import Loss, Lost, draw_losses
from secondary_scheduler.simulation.record import Recorder
from secondary_scheduler.simulation.world import NOWHERE, Shape, Status


class LossTest(unittest.TestCase):

    def begin(self, *losses, leases=(1, 1), seconds=120, load=0.0,
              profile=profiles.OURS):
        """Return a run of two hosts that starts all instances at once."""
        shape = Shape(1, 2, 2, leases)
        self.record = Recorder(shape, ['run'])
        one = Simulation(Workload(
            shape, ('cpu <= 90% for 20s',), np.full((2 * seconds, 2), load),
            ((1, 2),), placed=True, losses=losses), profile, self.record)
        return one

    @property
    def counts(self):
        return self.record.tally.counts[0]

    def states(self, one):
        return one.world.status.tolist()


class TestCrash(LossTest):

    def test_lease_of_a_crashed_instance_is_taken_down_and_returns(self):
        one = self.begin(Loss(60, Lost.INSTANCE, 0), leases=(2, 1),
                         seconds=70)
        one.run()
        lease = one.world.lease_of
        peers = {one for one in range(3) if lease[one] == lease[0]} - {0}
        self.assertEqual(Status.STOPPED, one.world.status[0])
        self.assertEqual(peers, {
            flight.instance for flight in one.operations.flights.values()
            if flight.kind is OperationKind.SUSPEND})
        self.assertEqual(1, self.counts['crash'])
        self.assertGreater(self.record.tally.lost[0], 0)
        one = self.begin(Loss(60, Lost.INSTANCE, 0), leases=(2, 1),
                         seconds=300)
        one.run()
        self.assertEqual([Status.RUNNING] * 3, self.states(one))

    def test_suspended_instance_cannot_crash(self):
        one = self.begin(seconds=1)
        one.world.status[0] = Status.SUSPENDED
        one._damage._lose(Loss(0, Lost.INSTANCE, 0), 1.0)
        self.assertEqual(Status.SUSPENDED, one.world.status[0])
        self.assertEqual(0, self.counts['crash'])


class TestHost(LossTest):

    def test_instances_of_a_lost_host_start_elsewhere(self):
        one = self.begin(Loss(60, Lost.HOST, 0, 1000.0), seconds=200)
        one.run()
        self.assertEqual([Status.RUNNING] * 2, self.states(one))
        self.assertEqual([1, 1], one.world.host.tolist())
        self.assertEqual((1, 1), (self.counts['host_lost'],
                                  self.counts['crash']))

    def test_lost_host_has_no_primary_load(self):
        one = self.begin(Loss(60, Lost.HOST, 0, 30.0), seconds=120, load=40.0)
        one.run()
        self.assertEqual(40.0 * (240 - 30),
                         self.record.tally.sums['load'][0])
        self.assertTrue(one.world.up.all())

    def test_suspended_instance_waits_for_its_lost_host(self):
        one = self.begin(Loss(60, Lost.HOST, 0, 80.0), seconds=300)
        start_new_instances(one.operations, 0.0)
        for second in range(59):
            one._second(second)
        guest = int(np.flatnonzero(one.world.host == 0)[0])
        one.world.status[guest] = Status.SUSPENDED
        for second in range(59, 135):
            one._damage.strike(second)
            one._second(second)
        self.assertEqual((Status.SUSPENDED, 0), (
            one.world.status[guest], one.world.host[guest]))
        self.assertEqual(0, self.record.tally.lost[0])
        for second in range(135, 220):
            one._damage.strike(second)
            one._second(second)
        self.assertEqual(Status.RUNNING, one.world.status[guest])

    def test_operations_on_a_lost_host_fail(self):
        one = self.begin(Loss(5, Lost.HOST, 0, 1000.0), seconds=60)
        one.run()       # both boot at the fifth second
        self.assertEqual(1, self.counts['failed'])
        self.assertEqual([Status.RUNNING] * 2, self.states(one))
        self.assertNotIn(0, one.world.host)
        self.assertEqual(0.0, np.abs(one.operations.burden).max())

    def test_planned_operations_do_not_begin_on_a_lost_host(self):
        one = self.begin(seconds=1)
        one.operations.lose_host(0, 0.0)
        one.run()       # one start was planned for each host
        self.assertEqual([False, True], sorted(one.world.booting))
        self.assertEqual([NOWHERE, 1], sorted(one.world.host))


class TestAgent(LossTest):

    def after(self, profile):
        """Run until a minute after the loss of host 0's agent."""
        one = self.begin(Loss(60, Lost.AGENT, 0, 1000.0), seconds=120,
                         profile=profile)
        load = np.zeros((240, 2))
        load[140:] = 85.0
        one.workload = dataclasses.replace(one.workload, load=load)
        one.run()
        self.assertFalse(one._admission._open(120.0)[0])
        return one, int(np.flatnonzero(one.world.host == 0)[0])

    def test_guests_of_a_lost_agent_are_at_the_floor(self):
        one, guest = self.after(profiles.OURS)
        self.assertTrue(one.world.frozen[guest])
        self.assertEqual((0, 1), (self.counts['invalid'],
                                  self.counts['agent_lost']))

    def test_limits_of_a_lost_agent_stay_without_a_floor(self):
        one, guest = self.after(dataclasses.replace(
            profiles.THESIS, noise=0.0))
        self.assertGreater(one._agents.caps[guest], 0.0)
        self.assertGreater(self.counts['invalid'], 0)
        self.assertEqual(0, self.counts['kill'])

    def test_restarted_agent_counts_failed_checks_from_zero(self):
        one = self.begin(Loss(60, Lost.AGENT, 0, 15.0), seconds=90,
                         profile=profiles.THESIS)
        load = np.zeros((180, 2))
        load[120:] = 85.0
        one.workload = dataclasses.replace(one.workload, load=load)
        failed = []
        one.run(lambda _second: failed.append(int(one.checks.failed[0, 0])))
        self.assertGreater(failed[74], 1)
        self.assertLessEqual(failed[75], 1)

    def test_guests_leave_the_floor_when_the_agent_is_back(self):
        one = self.begin(Loss(60, Lost.AGENT, 0, 30.0), seconds=120)
        one.run()
        self.assertTrue(one.world.watched.all())
        self.assertFalse(one.world.frozen.any())
        self.assertEqual([Status.RUNNING] * 2, self.states(one))


class TestDraw(unittest.TestCase):

    def test_losses_have_their_mean_frequency(self):
        shape = Shape(5, 20, 2, (1,) * 40)
        found = draw_losses(
            shape, 10_000, {Lost.INSTANCE: 2000.0, Lost.HOST: 500.0}, 60.0,
            [(1, one) for one in range(5)])
        count = {what: sum(one.what is what for one in found)
                 for what in Lost}
        self.assertAlmostEqual(1000, count[Lost.INSTANCE], delta=100)
        self.assertAlmostEqual(2000, count[Lost.HOST], delta=150)
        self.assertEqual(0, count[Lost.AGENT])
        self.assertEqual(found[-1:], draw_losses(
            shape, 10_000, {Lost.INSTANCE: 2000.0, Lost.HOST: 500.0}, 60.0,
            [(1, one) for one in range(5)])[-1:])
        self.assertLess(max(one.number for one in found
                            if one.what is Lost.HOST), 100)
