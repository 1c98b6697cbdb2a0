# SPDX-License-Identifier: Apache-2.0

"""Leases whose operations fail."""

import dataclasses
import unittest

from secondary_scheduler.leases.engine.values import LeaseOperation, Nature
from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import base


class BootTest(base.EngineTestCase):

    def test_permanent_failure_ends_the_lease_with_the_reason(self):
        self.refuse(LeaseOperation.BOOT, Nature.PERMANENT,
                    'No Image found for guest')
        lease = self.world.ask(2, duration=60)
        self.world.until(20)
        self.assert_failed(lease, 'boot of server 0',
                           'No Image found for guest')
        self.assertEqual(1, self.orders(lease))

    def test_other_servers_of_a_failed_lease_are_deleted(self):
        self.refuse(LeaseOperation.BOOT, Nature.PERMANENT,
                    'Quota exceeded for instances', nodes=(1,))
        lease = self.world.ask(2, duration=60)
        self.world.until(40)
        self.assert_failed(lease, 'Quota exceeded for instances')
        self.assertNotIn('active', self.world.kinds(lease))
        self.assertEqual(0, self.lease(lease).served)

    def test_transient_failure_is_retried(self):
        self.refuse(LeaseOperation.BOOT, Nature.TRANSIENT,
                    '503, Neutron is away')
        lease = self.world.ask(2, duration=60)
        self.world.until(40)
        self.assertEqual('starting', self.world.state(lease))
        self.assertIn('Neutron is away', self.lease(lease).reason)
        self.nova.refusal = lambda order: None
        self.world.until(90)
        self.assertEqual('active', self.world.state(lease))
        self.assertEqual('', self.lease(lease).reason)
        self.world.until(180)
        self.assertEqual('done', self.world.state(lease))
        self.assertEqual(60, self.lease(lease).served)

    def test_transient_failure_ends_after_a_bounded_time(self):
        self.refuse(LeaseOperation.BOOT, Nature.TRANSIENT,
                    '503, Neutron is away')
        lease = self.world.ask(2, duration=600)
        self.world.until(base.GIVE_UP + 30)
        self.assert_failed(lease, 'given up after', 'Neutron is away')

    def test_server_in_rescue_mode_cannot_keep_its_lease_suspending(self):
        lease = self.world.ask(1, duration=600)
        self.world.until(20)
        server, = self.nova.servers
        self.nova.change(self.world.clock.now, server, status='RESCUE')
        self.world.store.change(lease, 'paused', {'hold': True})
        self.world.until(40)
        self.assertEqual('suspending', self.world.state(lease))
        self.assertIn('suspend of server 0', self.lease(lease).reason)
        self.world.until(base.GIVE_UP + 90)
        self.assert_failed(lease, 'given up after', 'suspend of server 0')

    def test_retries_become_rare(self):
        self.world.options = dataclasses.replace(base.OPTIONS, give_up=3600.0)
        self.world.restart()
        count = iter(range(10 ** 6))
        # The two servers fail in turn, so that their pauses differ.
        self.nova.refusal = lambda order: (
            (Nature.TRANSIENT, 'no answer')
            if order.kind is LeaseOperation.BOOT and next(count) % 2 else None)
        self.nova.takes[LeaseOperation.BOOT] = 10 ** 6
        self.refuse(LeaseOperation.BOOT, Nature.TRANSIENT, 'no answer')
        lease = self.world.ask(2, duration=600)
        self.world.until(600)
        self.assertLessEqual(self.orders(lease), 12)

    def test_account_of_watcher_that_is_refused_is_retried(self):
        """Without trusts the right is Watcher's own."""
        self.refuse(LeaseOperation.BOOT, Nature.LOST_RIGHT, '401')
        lease = self.world.ask(1, duration=60)
        self.world.until(30)
        self.assertEqual('starting', self.world.state(lease))
        self.nova.refusal = lambda order: None
        self.world.until(90)
        self.assertEqual('active', self.world.state(lease))

    def test_hosts_without_room_fail_the_lease_in_the_end(self):
        self.nova.refuses |= set(self.nova.hosts)
        lease = self.world.ask(1, duration=60)
        self.world.until(900)
        self.assert_failed(lease, 'No valid host')
        self.assertLessEqual(self.orders(lease), 18)

    def test_reservation_without_room_says_why(self):
        self.nova.refuses |= set(self.nova.hosts)
        lease = self.world.ask(1, duration=60, start=NOW + 30)
        self.world.until(400)
        self.assert_failed(lease, 'No valid host')


class VerificationTest(base.EngineTestCase):
    """Leases that the service accepted while another service was away."""

    UNVERIFIED = ({'field': 'nodes[0].image', 'reason': 'Glance is away'},)

    def ask(self, start=NOW + 3600):
        return self.world.ask(2, duration=60, start=start,
                              unverified=self.UNVERIFIED)

    def verifications(self):
        return [at for at, one in self.nova.ordered
                if one.kind is LeaseOperation.VERIFY]

    def test_waiting_lease_is_verified_once(self):
        lease = self.ask()
        self.world.until(60)
        self.assertEqual([], self.lease(lease).unverified)
        self.assertEqual('scheduled', self.world.state(lease))
        self.assertEqual(1, len(self.verifications()))

    def test_lease_that_cannot_run_fails_before_its_start(self):
        self.refuse(LeaseOperation.VERIFY, Nature.PERMANENT,
                    'nodes[0].image: there is no image guest')
        lease = self.ask()
        self.world.until(60)
        self.assert_failed(lease, 'there is no image guest')

    def test_service_that_stays_away_ends_no_lease(self):
        self.refuse(LeaseOperation.VERIFY, Nature.TRANSIENT, '503')
        lease = self.ask(NOW + 1800)
        self.world.until(1500)
        self.assertEqual('scheduled', self.world.state(lease))
        self.assertLessEqual(len(self.verifications()), 13)
        self.world.until(1860)
        self.assertEqual('active', self.world.state(lease))
        self.assertEqual([], self.lease(lease).unverified)

    def test_verified_lease_is_not_verified_again(self):
        self.world.ask(2, duration=60, start=NOW + 3600)
        self.world.until(60)
        self.assertEqual([], self.verifications())


class OtherOperationsTest(base.EngineTestCase):

    def test_suspension_that_always_fails_ends_the_lease(self):
        lease = self.world.ask(1, duration=600)
        self.world.until(30)
        self.refuse(LeaseOperation.SUSPEND,
                    Nature.TRANSIENT, '500, disk is full')
        self.world.store.change(lease, 'paused', {'hold': True})
        self.world.until(30 + base.GIVE_UP + 60)
        self.assert_failed(lease, 'suspend of server 0', 'disk is full')

    def test_resumption_that_always_fails_ends_the_lease(self):
        lease = self.world.ask(1, duration=600)
        self.world.until(30)
        self.world.store.change(lease, 'paused', {'hold': True})
        self.world.until(50)
        self.refuse(LeaseOperation.RESUME,
                    Nature.TRANSIENT, '500, file is gone')
        self.world.store.change(lease, 'unpaused', {'hold': False})
        self.world.until(60 + base.GIVE_UP + 60)
        self.assert_failed(lease, 'resume of server 0', 'file is gone')

    def test_server_that_cannot_be_deleted_is_reported_and_left(self):
        lease = self.world.ask(1, duration=30)
        self.world.until(30)
        self.refuse(LeaseOperation.DELETE, Nature.TRANSIENT,
                    '500, database is locked')
        self.world.until(20 + base.GIVE_UP)
        self.assertEqual('ending', self.world.state(lease))
        self.world.until(120 + base.GIVE_UP)
        found = self.lease(lease)
        self.assertEqual('done', found.state)
        self.assertIn('delete of server 0', found.reason)
        self.assertIn('database is locked', found.reason)
        self.assertEqual([], found.servers)


if __name__ == '__main__':
    unittest.main()
