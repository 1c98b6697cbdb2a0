# SPDX-License-Identifier: Apache-2.0

"""Leases on a cloud in memory, with one pass of the engine each 2 seconds."""

import dataclasses
import os
import unittest

from secondary_scheduler.leases.api.db import schedules
from secondary_scheduler.leases.api.db.models import EngineRow
from secondary_scheduler.leases.engine import values
from secondary_scheduler.leases.engine.values import (
    RUNNING,
    LeaseOperation,
    Postponed,
)
from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import base, fakes

#: Seconds between the times at which the engine or Nova is interrupted.
#: LEASE_ENGINE_STEP makes them denser.
STEP = int(os.environ.get('LEASE_ENGINE_STEP', '14'))


class BestEffortTest(unittest.TestCase):

    def test_servers_boot_run_and_are_deleted(self):
        world = fakes.World(self)
        lease = world.ask(2, duration=60)
        world.until(12)
        self.assertEqual('active', world.state(lease))
        self.assertEqual(['ACTIVE', 'ACTIVE'], world.nova.statuses(lease))
        self.assertEqual(
            sorted(world.nova.servers),
            sorted(one.uuid for one in world.store.get(lease).servers))
        self.assertEqual(
            [(0, 10, 'prepare', {'h1': 2}), (10, 70, 'run', {'h1': 2}),
             (70, 72, 'shut-down', {'h1': 2})], world.plan(lease))
        world.until(90)
        self.assertEqual('done', world.state(lease))
        self.assertEqual({}, world.nova.servers)
        self.assertEqual([], world.plan(lease))
        self.assertEqual(['created', 'pending', 'starting', 'active',
                          'running', 'ending', 'done'], world.kinds(lease))

    def test_lease_without_room_waits(self):
        world = fakes.World(self)
        first = world.ask(12, duration=30)
        second = world.ask(1, duration=30)
        world.until(20)
        self.assertEqual('active', world.state(first))
        self.assertEqual('scheduled', world.state(second))
        world.until(64)
        self.assertEqual(['ACTIVE'], world.nova.statuses(second))
        self.assertEqual([], world.overloads)

    def test_operations_that_are_not_free_wait_in_order(self):
        world = fakes.World(self)
        world.nova.most_pending = 3
        first, second = world.ask(6, duration=60), world.ask(2, duration=60)
        world.until(40)
        ordered = [one.place for _, one in world.nova.ordered]
        self.assertEqual([
            *((first, node) for node in range(6)),
            *((second, node) for node in range(2))], ordered)
        self.assertEqual(['ACTIVE'] * 6, world.nova.statuses(first))
        self.assertEqual(['ACTIVE'] * 2, world.nova.statuses(second))
        self.assertNotIn('operation-failed', world.kinds(first))

    def test_quotes_are_answered_and_nothing_is_booked(self):
        world = fakes.World(self)
        world.ask(12, duration=30)
        world.until(4)
        late, unknown = world.quote(1, duration=30), world.quote(
            1, 'primary', duration=30)
        soon = world.quote(1, duration=30, start=NOW + 20)
        world.until(6)
        answers = [world.service.quotes.get(one)
                   for one in (late, unknown, soon)]
        self.assertEqual([True, False, False],
                         [one.accepted for one in answers])
        # The first lease boots, runs and is shut down; then this one boots.
        self.assertEqual(NOW + 10 + 30 + 2 + 10, answers[0].begin)
        self.assertIn('no flavor', answers[1].reason)
        # A reservation waits for the suspend of the first lease only.
        self.assertTrue(NOW + 20 < answers[2].begin < answers[0].begin)
        world.until(20)
        self.assertEqual(12, len(world.nova.servers))

    def test_rejected_lease_reports_next_possible_start(self):
        world = fakes.World(self)
        world.ask(12, duration=30)
        world.until(4)
        refused = world.ask(1, duration=30, start=NOW + 20)
        world.until(8)
        self.assertEqual('rejected', world.state(refused))
        self.assertGreater(world.store.get(refused).next_start, NOW + 20)

    def test_impossible_lease_is_rejected(self):
        world = fakes.World(self)
        large = world.ask(13, duration=30)
        near = world.ask(1, duration=30, start=NOW + 5)
        unknown = world.ask(1, 'primary', duration=30)
        world.until(4)
        self.assertEqual('rejected', world.state(large))
        self.assertIn('do not fit', world.store.get(large).reason)
        self.assertEqual('rejected', world.state(near))
        self.assertIn('10 s ahead', world.store.get(near).reason)
        # The flavor may be new, so all flavors are read once more.
        self.assertEqual('rejected', world.state(unknown))
        self.assertEqual('rejected', world.state(unknown))
        self.assertIn('primary is no flavor', world.store.get(unknown).reason)

    def test_owners_pause_and_cancel(self):
        world = fakes.World(self)
        lease = world.ask(2, duration=200)
        world.until(20)
        world.store.change(lease, 'paused', {'hold': True})
        world.until(40)
        self.assertEqual('suspended-queued', world.state(lease))
        self.assertEqual(['SUSPENDED'] * 2, world.nova.statuses(lease))
        world.store.change(lease, 'unpaused', {'hold': False})
        world.until(60)
        self.assertEqual('active', world.state(lease))
        self.assertEqual(['ACTIVE'] * 2, world.nova.statuses(lease))
        world.store.change(lease, 'cancel-asked', {'wanted_end': True})
        world.until(70)
        self.assertEqual('cancelled', world.state(lease))
        self.assertEqual({}, world.nova.servers)

    def test_lease_with_guaranteed_start_is_not_paused(self):
        world = fakes.World(self)
        lease = world.ask(1, duration=30, start=NOW + 60)
        world.until(4)
        world.store.change(lease, 'paused', {'hold': True})
        world.until(80)
        self.assertIn('not-paused', world.kinds(lease))
        self.assertEqual(1, world.kinds(lease).count('not-paused'))
        self.assertEqual('active', world.state(lease))

    def test_server_deleted_by_its_owner_is_not_created_again(self):
        world = fakes.World(self)
        lease = world.ask(2, duration=60)
        world.until(20)
        world.nova.servers.pop(world.nova.of(lease)[0].uuid)
        world.until(40)
        self.assertEqual(['ACTIVE'], world.nova.statuses(lease))
        self.assertIn('server-deleted', world.kinds(lease))
        world.nova.servers.clear()
        world.until(44)
        self.assertEqual('done', world.state(lease))

    def test_lease_ends_when_its_servers_shut_down(self):
        world = fakes.World(self)
        lease = world.ask(2, duration=600)
        world.until(20)
        for one in list(world.nova.servers):
            world.nova.change(0, one, status='SHUTOFF')
        world.until(30)
        self.assertEqual('done', world.state(lease))
        self.assertEqual({}, world.nova.servers)


class LearningTest(unittest.TestCase):
    """An engine that does not know the capacity of its hosts yet."""

    def setUp(self):
        super().setUp()
        self.world = fakes.World(self, dataclasses.replace(
            fakes.OPTIONS, learning=60.0))

    def ask_without_room(self):
        """Return a lease for which another one leaves no room."""
        self.world.ask(12, duration=3600, start=NOW + 200)
        return self.world.ask(1, duration=30, start=NOW + 3600)

    def test_lease_waits_for_hosts_that_are_closed_for_a_moment(self):
        world, hosts = self.world, dict(self.world.nova.hosts)
        for name, host in hosts.items():
            world.nova.hosts[name] = dataclasses.replace(
                host, lendable=(0,) * 4)
        lease = world.ask(1, duration=30, start=NOW + 3600)
        never = world.ask(13, duration=30, start=NOW + 3600)
        world.until(10)
        self.assertEqual('pending', world.state(lease))
        self.assertEqual('rejected', world.state(never))
        world.nova.hosts.update(hosts)
        world.until(30)
        self.assertEqual('scheduled', world.state(lease))

    def test_lease_is_rejected_when_the_engine_has_observed_long_enough(self):
        lease = self.ask_without_room()
        self.world.until(50)
        self.assertEqual('pending', self.world.state(lease))
        quote = self.world.quote(1, duration=30, start=NOW + 3600)
        self.world.until(54)
        self.assertIn('has just started',
                      self.world.service.quotes.get(quote).reason)
        self.world.until(64)
        self.assertEqual('rejected', self.world.state(lease))

    def test_lease_that_waits_survives_a_restart(self):
        lease = self.ask_without_room()
        self.world.until(30)
        self.world.restart()
        self.world.until(80)
        self.assertEqual('pending', self.world.state(lease))
        self.world.until(94)
        self.assertEqual('rejected', self.world.state(lease))

    def test_cancelled_lease_does_not_wait_for_room(self):
        lease = self.ask_without_room()
        self.world.until(10)
        self.world.store.change(lease, 'cancel-asked', {'wanted_end': True})
        self.world.until(20)
        self.assertEqual('cancelled', self.world.state(lease))


class Reserved:
    """Two servers of best effort, and a reservation that needs all hosts."""

    START, OVER = 70, 210

    def begin(self, world):
        self.patient = world.ask(2, duration=100)
        world.until(20)
        self.exact = world.ask(3, 'large', project='p2', duration=30,
                               start=NOW + self.START)

    def times(self, world, lease, status):
        """Return the first times of a state of each server of a lease."""
        first = {}
        for time, key, state in world.nova.story:
            if state == status and key in self.keys[lease]:
                first.setdefault(key, time - NOW)
        return sorted(first.values())

    def follow(self, world):
        """Return a function that collects the servers of both leases."""
        self.keys = {self.patient: set(), self.exact: set()}

        def each():
            for lease, keys in self.keys.items():
                keys |= {one.uuid for one in world.nova.of(lease).values()}
        return each


class ReservationTest(Reserved, unittest.TestCase):

    def test_reservation_preempts_in_time_and_preempted_lease_resumes(self):
        world = fakes.World(self)
        self.begin(world)
        world.until(self.OVER, self.follow(world))
        saved = self.times(world, self.patient, 'SUSPENDED')
        came = self.times(world, self.exact, 'ACTIVE')
        self.assertEqual(2, len(saved))
        self.assertLessEqual(max(saved), self.START - 10)
        self.assertEqual(3, len(came))
        self.assertLess(max(abs(one - self.START) for one in came), 5)
        self.assertLessEqual(max(came), self.START)
        self.assertEqual('done', world.state(self.exact))
        self.assertEqual('done', world.state(self.patient))
        self.assertEqual([], world.overloads)
        # It ran for its duration, and booted only once.
        self.assertEqual(2, len(self.keys[self.patient]))
        ran = sum(self.times(world, self.patient, 'DELETED'))
        self.assertGreater(ran, 0)
        self.assertIn('running', world.kinds(self.exact))
        self.assertNotIn('late', world.kinds(self.exact))

    def test_boots_begin_as_late_as_measured_times_allow(self):
        world = fakes.World(self)
        world.nova.takes[LeaseOperation.BOOT] = 6
        for _ in range(5):
            world.nova.took.append(
                fakes.Point(LeaseOperation.BOOT, 1, 6.0, 128))
        self.begin(world)
        world.until(self.START + 20, self.follow(world))
        for one in self.times(world, self.exact, 'ACTIVE'):
            self.assertAlmostEqual(self.START, one, delta=0.5)

    def test_engine_can_be_killed_at_any_time(self):
        for kill in range(22, self.START + 60, STEP):
            with self.subTest(kill):
                world = fakes.World(self)
                self.begin(world)
                each = self.follow(world)
                world.until(kill, each)
                world.restart()
                world.until(self.OVER, each)
                self.check(world)
                came = self.times(world, self.exact, 'ACTIVE')
                self.assertLessEqual(max(came), self.START + 0.5)

    def check(self, world):
        self.assertEqual('done', world.state(self.exact))
        self.assertEqual('done', world.state(self.patient))
        self.assertEqual(3, len(self.keys[self.exact]))
        self.assertEqual(2, len(self.keys[self.patient]))
        self.assertEqual([], world.overloads)
        self.assertEqual({}, world.nova.servers)

    def test_engine_can_be_away_for_a_while(self):
        for away in range(24, self.START + 60, 2 * STEP):
            with self.subTest(away):
                world = fakes.World(self)
                self.begin(world)
                each = self.follow(world)
                world.until(away, each)
                world.clock.now += 15
                world.nova.run(world.clock.now)
                world.restart()
                world.until(self.OVER + 20, each)
                self.check(world)

    def test_nova_can_be_down_for_20_s(self):
        for down in range(20, self.START + 60, STEP):
            with self.subTest(down):
                world = fakes.World(self)
                self.begin(world)
                each = self.follow(world)
                world.until(down, each)
                world.nova.down = True
                world.until(down + 20, each)
                world.nova.down = False
                world.until(self.OVER + 40, each)
                self.check(world)
                late = max(self.times(world, self.exact, 'ACTIVE')
                           ) - self.START
                if down + 20 < self.START - 25:
                    self.assertLessEqual(late, 0.5)
                if late > 5:
                    self.assertIn('late', world.kinds(self.exact))

    def test_server_resumed_by_its_owner_is_suspended_again(self):
        world = fakes.World(self)
        self.begin(world)
        each = self.follow(world)
        world.until(self.START + 10, each)
        for one in world.nova.of(self.patient).values():
            world.nova.change(0, one.uuid, status='ACTIVE')
        world.until(self.START + 24, each)
        self.assertEqual(['SUSPENDED'] * 2,
                         world.nova.statuses(self.patient))

    def test_deletion_of_suspended_servers_cancels_the_lease(self):
        world = fakes.World(self)
        self.begin(world)
        world.until(self.START + 10)
        for one in world.nova.of(self.patient).values():
            world.nova.servers.pop(one.uuid)
        world.until(self.START + 20)
        self.assertEqual('cancelled', world.state(self.patient))

    def test_slow_suspend_does_not_delay_the_reservation(self):
        world = fakes.World(self)
        world.nova.takes[LeaseOperation.SUSPEND] = 12
        self.begin(world)
        world.until(self.OVER + 20, self.follow(world))
        # The reservation begins in time; for a moment both use the hosts.
        self.assertLessEqual(max(self.times(world, self.exact, 'ACTIVE')),
                             self.START)
        self.assertLess(len(world.overloads), 4)
        world.overloads.clear()
        self.check(world)

    def test_lease_is_relocated_from_a_host_that_refuses_servers(self):
        world = fakes.World(self, hosts=('h1', 'h2', 'h3', 'h4'))
        world.nova.refuses.add('h3')
        self.begin(world)
        world.until(self.OVER, self.follow(world))
        self.assertEqual('done', world.state(self.exact))
        self.assertIn('late', world.kinds(self.exact))

    def test_servers_are_notified_of_a_preemption(self):
        world = fakes.World(self, options=dataclasses.replace(
            fakes.OPTIONS, notice=20.0))
        self.begin(world)
        world.until(self.OVER)
        self.assertEqual(1, world.kinds(self.patient).count(
            'preemption-notice'))
        notices = [(time - NOW, one) for time, one in world.nova.ordered
                   if one.kind is LeaseOperation.NOTICE]
        self.assertEqual(2, len(notices))
        for time, one in notices:
            self.assertLess(time, self.START - 20)
            self.assertRegex(one.text, r'^2027-01-31T08:00:\d\dZ$')


class TwoEnginesTest(Reserved, unittest.TestCase):

    def test_second_engine_to_write_orders_nothing(self):
        world = fakes.World(self)
        self.begin(world)
        world.until(24)
        other = world.another()
        other.run_pass()
        world.store.change(self.patient, 'paused', {'hold': True})
        world.until(26)
        before = len(world.nova.ordered)
        with self.assertRaises(Postponed):
            other.run_pass()     # its state is older than the database
        self.assertEqual(before, len(world.nova.ordered))
        other.run_pass()

    def test_engine_of_an_earlier_term_stores_nothing(self):
        world = fakes.World(self)
        self.begin(world)
        world.until(24)
        world.engine.run_pass(1)
        world.another().run_pass(2)
        world.store.change(self.patient, 'paused', {'hold': True})
        world.clock.now += 4
        before = self.passes(world)
        for _ in range(2):      # with the state that it knows, and without
            with self.assertRaises(Postponed):
                world.engine.run_pass(1)
        self.assertEqual(before, self.passes(world))
        world.engine.run_pass(3)
        self.assertGreater(self.passes(world), before)

    def passes(self, world):
        with world.service.database.reader() as session:
            return session.get(EngineRow, 1).passes

    def test_two_engines_have_the_effect_of_one(self):
        world = fakes.World(self)
        self.begin(world)
        other = world.another()
        each = self.follow(world)

        def both():
            each()
            world.step(other)
        world.until(self.OVER + 20, both)
        self.assertEqual('done', world.state(self.exact))
        self.assertEqual('done', world.state(self.patient))
        self.assertEqual(3, len(self.keys[self.exact]))
        self.assertEqual(2, len(self.keys[self.patient]))


class OthersTest(unittest.TestCase):

    def test_secondaries_without_a_lease_use_capacity(self):
        world = fakes.World(self, hosts=('h1',))
        for number in range(3):
            key = f'other-{number}'
            world.nova.servers[key] = values.LeaseServer(
                key, 'p9', 'h1', RUNNING, (1, 128, 1, 1))
        lease = world.ask(2, duration=30)
        world.until(10)
        self.assertEqual('queued', world.state(lease))
        world.nova.servers.pop('other-0')
        world.until(20)
        self.assertEqual('active', world.state(lease))

    def test_capacity_that_hosts_cannot_lend_is_not_booked(self):
        world = fakes.World(self, hosts=('h1',))
        world.nova.hosts['h1'] = values.LeaseHost(
            'h1', fakes.HOST, (1, 256, 3, 1))
        lease = world.ask(2, duration=30)
        world.until(10)
        self.assertEqual('queued', world.state(lease))
        world.nova.hosts['h1'] = values.LeaseHost('h1', fakes.HOST, fakes.HOST)
        world.until(30)
        self.assertEqual('active', world.state(lease))

    def test_label_counts_within_the_project_of_the_lease_only(self):
        world = fakes.World(self)
        lease = world.ask(1, duration=60, start=NOW + 30)
        world.nova.servers['forged'] = values.LeaseServer(
            'forged', 'p9', 'h1', RUNNING, (1, 128, 1, 1), lease, 0)
        world.until(40)
        self.assertIn('forged', world.nova.servers)
        self.assertNotIn('forged', [
            one.uuid for one in world.store.get(lease).servers])
        self.assertEqual('active', world.state(lease))


class HeartbeatTest(base.EngineTestCase):

    def beat(self):
        return schedules.read_heartbeat(self.world.service.database)

    def test_heartbeat_has_the_time_of_the_last_pass(self):
        self.assertIsNone(self.beat().looked_at)
        self.world.step()
        self.assertEqual((NOW, ''), dataclasses.astuple(self.beat()))
        self.world.until(20)
        self.assertGreaterEqual(self.beat().looked_at, NOW + 8)

    def test_heartbeat_reports_a_cloud_that_is_down(self):
        self.world.step()
        self.nova.down = True
        self.world.until(40)
        self.assertEqual((NOW, 'nova-api is away'),
                         dataclasses.astuple(self.beat()))


if __name__ == '__main__':
    unittest.main()
