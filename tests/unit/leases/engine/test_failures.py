"""Leases whose operations fail, and leases that are interrupted."""

import dataclasses
import unittest

from secondary_scheduler.leases.api.db import schedules
from secondary_scheduler.leases.engine.values import LeaseOperation, Nature
from secondary_scheduler.leases.scheduling.pricing import Constant
from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import fakes

GIVE_UP = 120.0
OPTIONS = dataclasses.replace(fakes.OPTIONS, give_up=GIVE_UP)


class Case(unittest.TestCase):

    def setUp(self):
        self.world = fakes.World(self, OPTIONS)
        self.nova = self.world.nova

    def refuse(self, kind, nature, why, nodes=(0, 1)):
        self.nova.refusal = lambda order: (
            (nature, why) if order.kind is kind and order.place[1] in nodes
            else None)

    def lease(self, uuid):
        return self.world.store.get(uuid)

    def orders(self, lease):
        """Return how many passes ordered operations on a lease's servers."""
        return len({time for time, one in self.nova.ordered
                    if one.place[0] == lease})

    def assert_failed(self, uuid, *words):
        found = self.lease(uuid)
        self.assertEqual('failed', found.state)
        for word in words:
            self.assertIn(word, found.reason)
        self.assertEqual({}, self.nova.of(uuid))
        self.assertIn('failed', self.world.kinds(uuid))


class BootTest(Case):

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

    def test_transient_failure_is_tried_again(self):
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
        self.world.until(GIVE_UP + 30)
        self.assert_failed(lease, 'given up after', 'Neutron is away')

    def test_retries_become_rare(self):
        self.world.options = dataclasses.replace(OPTIONS, give_up=3600.0)
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

    def test_withdrawn_trust_ends_the_lease(self):
        self.refuse(LeaseOperation.BOOT, Nature.LOST_RIGHT,
                    '404, no such trust')
        lease = self.world.ask(1, duration=60)
        self.world.until(30)
        self.assert_failed(lease, 'right to act for its owner is lost',
                           'no such trust')

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


class OtherOperationsTest(Case):

    def test_suspension_that_always_fails_ends_the_lease(self):
        lease = self.world.ask(1, duration=600)
        self.world.until(30)
        self.refuse(LeaseOperation.SUSPEND,
                    Nature.TRANSIENT, '500, disk is full')
        self.world.store.change(lease, 'paused', {'hold': True})
        self.world.until(30 + GIVE_UP + 60)
        self.assert_failed(lease, 'suspend of server 0', 'disk is full')

    def test_resumption_that_always_fails_ends_the_lease(self):
        lease = self.world.ask(1, duration=600)
        self.world.until(30)
        self.world.store.change(lease, 'paused', {'hold': True})
        self.world.until(50)
        self.refuse(LeaseOperation.RESUME,
                    Nature.TRANSIENT, '500, file is gone')
        self.world.store.change(lease, 'unpaused', {'hold': False})
        self.world.until(60 + GIVE_UP + 60)
        self.assert_failed(lease, 'resume of server 0', 'file is gone')

    def test_server_that_cannot_be_deleted_is_told(self):
        lease = self.world.ask(1, duration=30)
        self.world.until(30)
        self.refuse(LeaseOperation.DELETE, Nature.TRANSIENT,
                    '500, database is locked')
        self.world.until(20 + GIVE_UP)
        self.assertEqual('ending', self.world.state(lease))
        self.world.until(120 + GIVE_UP)
        found = self.lease(lease)
        self.assertEqual('done', found.state)
        self.assertIn('delete of server 0', found.reason)
        self.assertIn('database is locked', found.reason)
        self.assertEqual([], found.servers)


class ServedTest(Case):

    def start(self, number=2, duration=120):
        lease = self.world.ask(number, duration=duration)
        self.world.until(20)
        self.assertEqual('active', self.world.state(lease))
        return lease

    def change(self, lease, node=0, **changes):
        self.nova.change(self.world.clock.now,
                         self.nova.of(lease)[node].uuid, **changes)

    def test_slow_boot_is_not_served_and_made_up_for(self):
        self.nova.takes[LeaseOperation.BOOT] = 60
        lease = self.world.ask(2, duration=60)
        self.world.until(50)
        self.assertEqual('starting', self.world.state(lease))
        self.assertEqual(0, self.lease(lease).served)
        self.world.until(150)
        found = self.lease(lease)
        self.assertEqual(('done', 60), (found.state, found.served))

    def test_preempted_lease_is_interrupted_and_stays_longer(self):
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

    def test_preempted_lease_without_room_is_suspended_and_goes_on(self):
        self.world = fakes.World(self, OPTIONS, hosts=('h1',))
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
        self.world.until(30 + GIVE_UP + 20)
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
            OPTIONS, settings=dataclasses.replace(
                OPTIONS.settings, pricing=Constant(2.0)))
        self.world.restart()
        lease, failed = self.start(), self.world.ask(1, duration=60)
        self.change(lease, status='SHUTOFF')
        self.refuse(LeaseOperation.BOOT, Nature.PERMANENT, 'no image')
        self.world.until(160)
        found = self.lease(lease)
        self.assertAlmostEqual(found.price * found.served / 120, found.charge)
        self.assertLess(found.charge, found.price / 2)
        self.assertEqual(0.0, self.lease(failed).charge)


class HeartbeatTest(Case):

    def beat(self):
        return schedules.heartbeat(self.world.service.database)

    def test_passes_are_told(self):
        self.assertIsNone(self.beat().looked_at)
        self.world.step()
        self.assertEqual((NOW, ''), dataclasses.astuple(self.beat()))
        self.world.until(20)
        self.assertGreaterEqual(self.beat().looked_at, NOW + 8)

    def test_cloud_that_is_down_is_told(self):
        self.world.step()
        self.nova.down = True
        self.world.until(40)
        self.assertEqual((NOW, 'nova-api is away'),
                         dataclasses.astuple(self.beat()))


class EventsTest(Case):

    def test_events_are_in_the_order_of_time(self):
        lease = self.world.ask(1, duration=30, start=NOW + 30)
        self.world.until(80)
        events = self.world.store.events(lease)
        self.assertEqual(sorted(one.time for one in events),
                         [one.time for one in events])
        running = dict(self.world.events(lease))['running']
        self.assertRegex(running, r' \d+\.\d s before its start$')


if __name__ == '__main__':
    unittest.main()
