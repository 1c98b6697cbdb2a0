# SPDX-License-Identifier: Apache-2.0

"""Servers without a lease become best-effort leases of one."""

import dataclasses
import unittest

from secondary_scheduler.leases.api.db import quotas
from secondary_scheduler.leases.engine import values
from secondary_scheduler.leases.engine.values import LeaseOperation
from secondary_scheduler.leases.scheduling.policies import NoPreemption
from tests.unit.leases.api import services
from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import fakes
from tests.unit.leases.engine.test_engine import STEP


class Case(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.world = fakes.World(self)
        self.nova = self.world.nova

    def tearDown(self):
        # The engine never deletes a server that its owner has created.
        strays = {one.server for _, one in self.nova.ordered
                  if one.kind is LeaseOperation.DELETE} & self.kept
        self.assertEqual(set(), strays)
        super().tearDown()

    kept: set[str] = set()

    def stray(self, *arguments, **changes):
        """Create a server of an owner that must not be deleted."""
        key = self.nova.stray(*arguments, **changes)
        self.kept = self.kept | {key}
        return key

    def leases(self, project='p1'):
        return self.world.store.leases(project)

    def of(self, key):
        """Return the leases to which a server belongs."""
        return [one for one in self.leases(None)
                if key in [server.uuid for server in one.servers]]

    def reserve(self, start=70):
        """Reserve three of four vCPUs on each host."""
        return self.world.ask(3, 'large', project='p2', duration=30,
                              start=NOW + start)

    def statuses(self, *keys):
        return [self.nova.servers[key].status for key in keys]

    def change(self, key, **changes):
        self.nova.change(self.world.clock.now, key, **changes)


class AdoptedTest(Case):

    def test_adopted_server_is_a_best_effort_lease_without_end(self):
        key = self.stray()
        self.world.until(10)
        (lease,) = self.leases()
        self.assertEqual(
            ('active', None, 'best-effort', 'mine', 'alice', None),
            (lease.state, lease.duration, lease.kind, lease.name,
             lease.user_id, lease.price))
        self.assertEqual([(1, 'medium')], [
            (one.number, one.flavor) for one in lease.nodes])
        self.assertEqual([lease.uuid], [one.uuid for one in self.of(key)])
        self.assertEqual([(0, None, 'run', {'h1': 1})],
                         self.world.plan(lease.uuid))
        self.assertEqual(
            [('active', 'as long as its owner likes'),
             ('adopted', f'server {key} runs without a lease'),
             ('running', 'all 1 servers run')],
            self.world.events(lease.uuid))
        self.assertEqual([], self.nova.ordered)
        # It was adopted, not requested, so it counts against no quota.
        usage = quotas.read_usage(self.world.service.database, 'p1',
                             quotas.QuotaLimits(0, 0))
        self.assertEqual((0, 0), (usage.leases, usage.nodes))

    def test_api_shows_an_adopted_lease_in_each_version(self):
        self.stray()
        self.world.until(4)
        api = services.Api(self.world.service)
        for version, duration, end in (
                ('1.0', 315_360_000, '2099-12-31T23:59:59Z'),
                ('1.2', None, None)):
            headers = {
                'OpenStack-API-Version': f'secondary-lease {version}'}
            (lease,) = api.good('GET', '/leases', headers=headers)['leases']
            self.assertEqual((duration, 'active'), (lease['duration'],
                                                    lease['state']))
            (slot,) = api.good('GET', '/timeline', headers=headers)['slots']
            self.assertEqual(end, slot['end'])
        window = '/timeline?begin=2050-01-01T00:00:00Z'
        self.assertEqual(1, len(api.good('GET', window)['slots']))
        path = f'/leases/{lease["id"]}'
        self.assertEqual('secondary-lease.wrong-state', api.bad(
            409, 'PATCH', path, {'deadline': '2050-01-01T00:00:00Z'})['code'])
        self.assertEqual('worker', api.good(
            'PATCH', path, {'name': 'worker'})['lease']['name'])

    def test_adopted_server_is_preempted_for_a_reservation_and_returns(self):
        keys = [self.stray(host) for host in ('h1', 'h2')]
        self.world.until(10)
        exact = self.reserve()
        self.world.until(61)
        self.assertEqual(['SUSPENDED'] * 2, self.statuses(*keys))
        self.world.until(75)
        self.assertEqual(['ACTIVE'] * 3, self.nova.statuses(exact))
        self.world.until(130)
        self.assertEqual('done', self.world.state(exact))
        self.assertEqual(['ACTIVE'] * 2, self.statuses(*keys))
        self.assertEqual(['active'] * 2, [one.state for one in self.leases()])
        self.assertEqual([], self.world.overloads)
        self.assertNotIn('late', self.world.kinds(exact))

    def test_engine_can_be_killed_at_any_time(self):
        for kill in range(12, 120, 2 * STEP):
            with self.subTest(kill):
                self.setUp()
                key = self.stray()
                self.world.until(10)
                exact = self.reserve()
                self.world.until(kill)
                self.world.clock.now += 6
                self.nova.run(self.world.clock.now)
                self.world.restart()
                self.world.until(170)
                self.assertEqual('done', self.world.state(exact))
                self.assertEqual(['ACTIVE'], self.statuses(key))
                self.assertEqual(1, len(self.leases()))
                self.assertEqual([], self.world.overloads)
                self.tearDown()

    def test_server_started_before_a_reservation_is_suspended_at_once(self):
        exact = self.reserve()
        self.world.until(58)
        key = self.stray()
        self.world.until(68)
        self.assertEqual(['SUSPENDED'], self.statuses(key))
        self.world.until(130)
        self.assertEqual('done', self.world.state(exact))
        self.assertEqual(['ACTIVE'], self.statuses(key))

    def test_only_the_latest_server_is_suspended_on_an_overfull_host(self):
        crowd = [self.stray() for _ in range(2)]
        beside = self.stray('h2')
        self.world.until(6)
        late = self.stray(need=(1, 128, 1, 1))
        self.world.until(20)
        self.assertEqual(['ACTIVE'] * 3 + ['SUSPENDED'],
                         self.statuses(*crowd, beside, late))
        self.nova.servers.pop(crowd[0])
        self.world.until(40)
        self.assertEqual(['ACTIVE'], self.statuses(late))

    def test_pausing_suspends_an_adopted_server(self):
        key = self.stray()
        self.world.until(4)
        (lease,) = self.leases()
        self.world.store.change(lease.uuid, 'paused', {'hold': True})
        self.world.until(20)
        self.assertEqual(['SUSPENDED'], self.statuses(key))
        self.world.store.change(lease.uuid, 'unpaused', {'hold': False})
        self.world.until(40)
        self.assertEqual(['ACTIVE'], self.statuses(key))

    def test_cancelling_an_adopted_lease_deletes_its_server(self):
        key = self.nova.stray()
        self.world.until(4)
        (lease,) = self.leases()
        self.world.store.change(lease.uuid, 'cancel-asked',
                                {'wanted_end': True})
        self.world.until(14)
        self.assertNotIn(key, self.nova.servers)
        self.assertEqual('cancelled', self.world.state(lease.uuid))

    def test_lease_without_end_has_no_planned_successor(self):
        world = fakes.World(self, dataclasses.replace(
            fakes.OPTIONS, settings=dataclasses.replace(
                fakes.OPTIONS.settings, preemption=NoPreemption())))
        for host in world.nova.hosts:
            world.nova.stray(host, fakes.HOST)
        world.until(4)
        quote = world.quote(1, duration=30)
        refused = world.ask(1, duration=30, start=NOW + 60)
        patient = world.ask(1, duration=30)
        world.until(10)
        self.assertIsNone(world.service.quotes.get(quote).begin)
        self.assertEqual(('rejected', None), (
            world.state(refused), world.store.get(refused).next_start))
        self.assertEqual('queued', world.state(patient))

    def test_next_possible_start_includes_suspends_of_adopted_servers(self):
        for host in self.nova.hosts:
            self.stray(host, fakes.HOST)
        self.world.until(4)
        refused = self.world.ask(3, 'large', duration=30, start=NOW + 16)
        self.world.until(6)
        self.assertEqual('rejected', self.world.state(refused))
        self.assertLess(self.world.store.get(refused).next_start, NOW + 60)

    def test_two_engines_adopt_a_server_once(self):
        other = self.world.another()
        self.stray()
        for _ in range(3):
            self.world.step(other)
            self.world.step()
        self.assertEqual(1, len(self.leases()))

    def test_one_pass_adopts_at_most_100_servers(self):
        world = fakes.World(self, hosts=('h1',))
        world.nova.hosts['h1'] = values.LeaseHost('h1', (500,) * 4, (500,) * 4)
        for _ in range(101):
            world.nova.stray(need=(1, 1, 1, 1))
        world.step()
        self.assertEqual(100, len(world.store.leases('p1')))
        world.step()
        self.assertEqual(101, len(world.store.leases('p1')))


class OwnerTest(Case):

    def test_stopped_or_suspended_server_is_left_to_its_owner(self):
        for status in ('SHUTOFF', 'SUSPENDED', 'SHELVED_OFFLOADED', 'PAUSED',
                       'ERROR', 'VERIFY_RESIZE'):
            with self.subTest(status):
                self.setUp()
                key = self.stray()
                self.world.until(10)
                self.change(key, status=status)
                self.world.until(30)
                (lease,) = self.leases()
                self.assertEqual('done', lease.state)
                self.assertIn(status, lease.reason)
                self.assertEqual([], self.of(key))
                self.assertEqual([], self.nova.ordered)
                # When it runs again it gets a new lease.
                self.change(key, status='ACTIVE')
                self.world.until(40)
                self.assertEqual(['done', 'active'], [
                    one.state for one in self.leases()])
                self.tearDown()

    def test_resized_server_gets_a_new_lease(self):
        key = self.stray()
        self.world.until(10)
        self.change(key, need=(1, 128, 1, 1))
        self.world.until(20)
        self.assertEqual(['done', 'active'], [
            one.state for one in self.leases()])
        self.assertEqual(1, len(self.of(key)))

    def test_lease_of_a_deleted_server_is_done(self):
        key = self.nova.stray()
        self.world.until(10)
        self.nova.servers.pop(key)
        self.world.until(14)
        (lease,) = self.leases()
        self.assertEqual('done', lease.state)

    def test_server_resumed_during_its_preemption_is_suspended_again(self):
        key = self.stray()
        self.world.until(10)
        self.reserve()
        self.world.until(80)
        self.change(key, status='ACTIVE')
        self.world.until(94)
        self.assertEqual(['SUSPENDED'], self.statuses(key))

    def test_server_shelved_during_its_preemption_ends_the_lease(self):
        key = self.stray()
        self.world.until(10)
        self.reserve()
        self.world.until(80)
        self.change(key, status='SHELVED_OFFLOADED')
        self.world.until(140)
        (lease,) = self.leases()
        self.assertEqual('cancelled', lease.state)
        self.assertIn('SHELVED_OFFLOADED', lease.reason)
        self.assertEqual(['SHELVED_OFFLOADED'], self.statuses(key))

    def test_server_preempted_for_a_primary_is_left_alone(self):
        key = self.stray()
        self.world.until(10)
        self.change(key, status='SUSPENDED', preempted=True)
        self.world.until(40)
        (lease,) = self.leases()
        self.assertEqual('interrupted', lease.state)
        self.assertIn('was preempted', lease.reason)
        self.assertEqual([], self.nova.ordered)

    def test_lease_ends_when_its_server_may_not_be_suspended_any_more(self):
        key = self.stray()
        self.world.until(10)
        self.change(key, suspendable=False)
        self.world.until(14)
        (lease,) = self.leases()
        self.assertEqual('done', lease.state)
        self.assertEqual([], self.nova.ordered)


class UnsuitableServerTest(Case):

    def test_unsuitable_servers_are_not_adopted(self):
        for changes in ({'suspendable': False}, {'host': 'elsewhere'},
                        {'busy': True}, {'status': 'SHUTOFF'},
                        {'status': 'SUSPENDED', 'preempted': True}):
            self.stray(**changes)
        self.world.until(10)
        self.assertEqual([], self.leases())

    def test_no_server_is_adopted_where_leases_are_not_suspended(self):
        world = fakes.World(self, dataclasses.replace(
            fakes.OPTIONS, settings=dataclasses.replace(
                fakes.OPTIONS.settings, suspension=False)))
        world.nova.stray()
        world.until(10)
        self.assertEqual([], world.store.leases('p1'))

    def test_server_with_an_invalid_label_is_adopted(self):
        theirs = self.world.ask(1, project='p2', duration=300)
        over = self.world.ask(1, duration=10)
        taken = self.world.ask(1, duration=300)
        self.world.until(40)
        self.assertEqual('done', self.world.state(over))
        before = len(self.leases())
        keys = [self.stray(need=(1, 1, 1, 1), **label) for label in (
            {'lease': services.NOBODY}, {'lease': 'mine', 'node': 0},
            {'lease': theirs, 'node': 0}, {'lease': over, 'node': 1},
            {'lease': taken, 'node': 0})]
        self.world.until(50)
        self.assertEqual([1] * 5, [len(self.of(key)) for key in keys])
        self.assertEqual(before + 5, len(self.leases()))

    def test_server_relabelled_for_another_lease_keeps_its_own(
            self):
        soon = self.world.ask(1, duration=60, start=NOW + 60)
        key = self.stray(need=(1, 1, 1, 1))
        first = self.world.ask(1, duration=300)
        self.world.until(20)
        (server,) = self.nova.of(first).values()
        for one in (key, server.uuid):
            self.change(one, lease=soon, node=0)
        self.world.until(80)
        # No server is created for a node while another one has its label.
        self.assertEqual('starting', self.world.state(soon))
        self.assertEqual([first], [one.uuid for one in self.of(server.uuid)])
        self.assertEqual(['active'], [one.state for one in self.of(key)])

    def test_server_that_a_boot_has_replaced_belongs_to_the_lease(self):
        lease = self.world.ask(1, duration=60)
        self.world.until(4)
        (old,) = self.nova.of(lease).values()
        self.world.step()
        new = self.nova.stray(old.host, old.need, lease=lease, node=0)
        self.nova.servers.pop(old.uuid)
        self.assertIn((lease, 0), self.nova.pending)
        self.world.until(20)
        self.assertEqual([lease], [one.uuid for one in self.leases()])
        self.assertEqual([lease], [one.uuid for one in self.of(new)])

    def test_server_with_the_label_of_an_ending_lease_is_not_deleted(self):
        lease = self.world.ask(1, duration=30)
        self.world.until(20)
        self.nova.takes[LeaseOperation.DELETE] = 8
        self.world.until(42)
        self.assertEqual(1, len(self.nova.of(lease)))
        while self.world.state(lease) == 'ending':
            self.stray(need=(1, 1, 1, 1), lease=lease, node=0)
            self.world.until(self.world.clock.now - NOW + 2)
        self.world.until(60)
        self.assertEqual('done', self.world.state(lease))
        self.assertGreater(len(self.kept), 2)
        self.assertEqual(self.kept, self.nova.servers.keys())



if __name__ == '__main__':
    unittest.main()
