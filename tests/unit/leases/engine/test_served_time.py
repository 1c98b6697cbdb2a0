# SPDX-License-Identifier: Apache-2.0

"""Served time of leases that are interrupted, and their charge."""

import dataclasses
import unittest

from secondary_scheduler.leases.engine.values import LeaseOperation, Nature
from secondary_scheduler.leases.scheduling.pricing import Constant
from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import base, fakes


class ServedTimeTest(base.EngineTestCase):

    def start(self, number=2, duration=120):
        lease = self.world.ask(number, duration=duration)
        self.world.until(20)
        self.assertEqual('active', self.world.state(lease))
        return lease

    def change(self, lease, node=0, **changes):
        self.nova.change(self.world.clock.now,
                         self.nova.of(lease)[node].uuid, **changes)

    def test_slow_boot_is_not_served_and_extends_the_lease(self):
        self.nova.takes[LeaseOperation.BOOT] = 60
        lease = self.world.ask(2, duration=60)
        self.world.until(50)
        self.assertEqual('starting', self.world.state(lease))
        self.assertEqual(0, self.lease(lease).served)
        self.world.until(150)
        found = self.lease(lease)
        self.assertEqual(('done', 60), (found.state, found.served))

    def test_preempted_lease_is_interrupted_and_extended(self):
        lease = self.start()
        self.change(lease, status='SUSPENDED', preempted=True)
        self.world.until(70)
        found = self.lease(lease)
        self.assertEqual('interrupted', found.state)
        self.assertIn('policy of its host is violated', found.reason)
        self.assertLess(found.served, 20)
        self.change(lease, status='ACTIVE', preempted=False)
        self.world.until(240)
        found = self.lease(lease)
        self.assertEqual(('done', 120), (found.state, found.served))
        self.assertIn('interrupted', self.world.kinds(lease))

    def test_preempted_lease_without_room_is_suspended_and_resumes(self):
        self.world = fakes.World(self, base.OPTIONS, hosts=('h1',))
        self.nova = self.world.nova
        lease = self.start()
        self.world.ask(4, project='p2', duration=40, start=NOW + 150)
        self.change(lease, status='SUSPENDED', preempted=True)
        self.world.until(60)
        self.change(lease, status='ACTIVE', preempted=False)
        self.world.until(180)
        self.assertIn('suspending', self.world.kinds(lease))
        self.world.until(400)
        found = self.lease(lease)
        self.assertEqual(('done', 120), (found.state, found.served))

    def test_server_that_its_owner_stops_is_not_served(self):
        lease = self.start()
        self.change(lease, status='SHUTOFF')
        self.world.until(50)
        found = self.lease(lease)
        self.assertEqual('interrupted', found.state)
        self.assertIn('SHUTOFF by its owner', found.reason)
        self.world.until(150)
        found = self.lease(lease)
        self.assertEqual('done', found.state)
        self.assertLess(found.served, 30)
        self.assertIn('of 120 s', found.reason)
        self.assertIn('SHUTOFF by its owner', found.reason)

    def test_server_in_error_fails_the_lease(self):
        lease = self.start(duration=600)
        self.change(lease, status='ERROR', fault='the disk is broken')
        self.world.until(30 + base.GIVE_UP + 20)
        self.assert_failed(lease, 'ERROR', 'the disk is broken')

    def test_engine_that_is_away_does_not_shorten_a_lease(self):
        lease = self.start(duration=200)
        self.world.clock.now += 70
        self.world.restart()
        self.world.until(240)
        found = self.lease(lease)
        self.assertEqual(('done', 200), (found.state, found.served))

    def test_restart_forgets_no_more_than_a_heartbeat(self):
        lease = self.start(duration=600)
        self.world.until(60)
        self.world.restart()
        self.change(lease, status='PAUSED')
        self.world.until(64)
        self.assertGreaterEqual(self.lease(lease).served, 30)

    def test_charge_follows_served_time(self):
        self.world.options = dataclasses.replace(
            base.OPTIONS, settings=dataclasses.replace(
                base.OPTIONS.settings, pricing=Constant(2.0)))
        self.world.restart()
        lease, failed = self.start(), self.world.ask(1, duration=60)
        self.change(lease, status='SHUTOFF')
        self.refuse(LeaseOperation.BOOT, Nature.PERMANENT, 'no image')
        self.world.until(160)
        found = self.lease(lease)
        self.assertAlmostEqual(found.price * found.served / 120, found.charge)
        self.assertLess(found.charge, found.price / 2)
        self.assertEqual(0.0, self.lease(failed).charge)


if __name__ == '__main__':
    unittest.main()
