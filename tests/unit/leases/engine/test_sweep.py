# SPDX-License-Identifier: Apache-2.0

"""Servers with the label of a lease that has no record."""

import dataclasses
import unittest
from unittest import mock
import uuid

import sqlalchemy as sa

from secondary_scheduler.leases.api.db import schedules
from secondary_scheduler.leases.api.db.models import EngineRow, LeaseRow
from secondary_scheduler.leases.engine import sweep, values
from secondary_scheduler.leases.engine.values import LeaseOperation, Nature
from tests.unit.leases.api import services
from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import base, fakes

SMALL = (1, 1, 1, 1)
DAY_S = 86400
DELETING = dataclasses.replace(base.OPTIONS, delete_unknown=True)


class SweepTestCase(base.EngineTestCase):

    def stray(self, lease, node=0, **changes):
        """Create a server with a label; return its UUID."""
        return self.nova.stray(need=SMALL, lease=lease, node=node, **changes)

    def over(self, number=1):
        """Return a lease that is over at 30 s."""
        lease = self.world.ask(number, duration=10)
        self.world.until(30)
        self.assertEqual('done', self.world.state(lease))
        return lease

    def delete_unknown(self):
        self.world.options = DELETING
        self.world.restart()

    def database(self):
        return self.world.service.database

    def execute(self, statement):
        with self.database().writer() as session:
            session.execute(statement)

    def restore_from_yesterday(self):
        """Let the database be as it was a day ago, without its leases."""
        self.execute(sa.delete(LeaseRow))
        self.execute(sa.update(EngineRow).values(
            looked_at=NOW - DAY_S, complete_since=NOW - 10 * DAY_S))

    def adopted(self):
        return [one for one in self.world.store.leases()
                if one.duration is None]

    def deletions(self, key):
        return [at for at, one in self.nova.ordered if one.server == key
                and one.kind is LeaseOperation.DELETE]


class EndedLeaseTest(SweepTestCase):

    def test_server_of_an_ended_lease_is_deleted(self):
        for status in ('ACTIVE', 'SUSPENDED', 'SHUTOFF', 'ERROR', 'PAUSED'):
            with self.subTest(status):
                self.setUp()
                lease = self.over()
                before = self.world.store.get(lease)
                key = self.stray(lease, status=status)
                self.world.until(40)
                self.assertNotIn(key, self.nova.servers)
                self.assertEqual(
                    [('server-left-over', f'server {key} still existed after '
                      'the end of the lease; it is deleted')],
                    self.world.events(lease)[-1:])
                after = self.world.store.get(lease)
                self.assertEqual(
                    (before.state, before.served, before.charge,
                     before.revision),
                    (after.state, after.served, after.charge, after.revision))
                self.assertEqual([], self.adopted())

    def test_servers_that_a_cell_brings_back_are_deleted(self):
        lease = self.world.ask(2, duration=30)
        self.world.until(20)
        kept = dict(self.nova.servers)
        self.world.until(60)
        self.assertEqual(('done', {}), (
            self.world.state(lease), self.nova.servers))
        self.nova.servers.update(kept)
        self.world.until(70)
        self.assertEqual({}, self.nova.servers)
        self.assertEqual(2, self.world.kinds(lease).count('server-left-over'))

    def test_server_on_a_host_without_leases_is_deleted(self):
        key = self.stray(self.over(), host='elsewhere')
        self.world.until(40)
        self.assertNotIn(key, self.nova.servers)

    def test_unseen_server_is_deleted_when_its_cell_answers(self):
        key = self.stray(self.over())
        self.nova.silent = {'h1'}
        self.world.until(100)
        self.assertEqual([], self.deletions(key))
        self.nova.silent = set()
        self.world.until(110)
        self.assertNotIn(key, self.nova.servers)

    def test_unreachable_server_is_left_until_its_cell_answers(self):
        key = self.stray(self.over(), reachable=False)
        self.world.until(100)
        self.assertEqual([], self.deletions(key))
        self.assertEqual([], self.adopted())

    def test_failing_deletion_is_retried_rarely_and_told_once(self):
        self.refuse(LeaseOperation.DELETE, Nature.TRANSIENT, '409, locked')
        lease = self.over_with_server_left()
        key, = self.nova.servers
        before = len(self.deletions(key))
        self.world.restart()
        self.world.until(900, period=20.0)
        self.assertLessEqual(len(self.deletions(key)) - before, 10)
        self.assertEqual(1, self.world.kinds(lease).count('server-left-over'))
        self.assertEqual([], self.adopted())
        self.nova.refusal = lambda order: None
        self.world.until(1300, period=20.0)
        self.assertEqual({}, self.nova.servers)

    def over_with_server_left(self):
        lease = self.world.ask(1, duration=30)
        self.world.until(120 + base.GIVE_UP)
        self.assertEqual('done', self.world.state(lease))
        return lease

    def test_locked_server_does_not_keep_another_one_of_its_node(self):
        lease = self.over()
        locked, other = sorted(self.stray(lease) for _ in range(2))
        self.nova.refusal = lambda order: (
            (Nature.TRANSIENT, '409, locked') if order.server == locked
            else None)
        self.world.until(60)
        self.assertEqual([locked], list(self.nova.servers))
        self.assertIn(locked, self.nova.servers)
        self.assertNotIn(other, self.nova.servers)

    def test_few_deletions_are_under_way_at_once(self):
        lease = self.over(number=12)
        for node in range(12):
            self.stray(lease, node=node)
        most = []
        self.world.until(60, lambda: most.append(len(self.nova.pending)))
        self.assertEqual(8, max(most))
        self.assertEqual({}, self.nova.servers)

    def test_deletion_waits_for_an_operation_on_the_same_node(self):
        lease = self.over()
        key = self.stray(lease)
        self.nova.pending[lease, 0] = None
        self.world.until(60)
        self.assertEqual([], self.deletions(key))
        del self.nova.pending[lease, 0]
        self.world.until(70)
        self.assertNotIn(key, self.nova.servers)

    def test_two_engines_delete_a_server_once(self):
        key = self.stray(self.over())
        other = self.world.another()
        for _ in range(3):
            self.world.step(other)
            self.world.step()
        self.assertEqual(1, len(self.deletions(key)))


class ForgedLabelTest(SweepTestCase):

    def test_server_that_the_lease_cannot_have_is_adopted(self):
        lease = self.over()
        keys = [self.stray(lease, **changes) for changes in (
            {'project': 'p2'}, {'user': 'eve'}, {'node': 1},
            {'node': 10 ** 200}, {'created': float(NOW - 3600)})]
        self.world.until(200)
        self.assertLessEqual(set(keys), self.nova.servers.keys())
        self.assertEqual(len(keys), len(self.adopted()))
        self.assertNotIn('server-left-over', self.world.kinds(lease))

    def test_label_of_a_running_lease_deletes_nothing(self):
        lease = self.world.ask(1, duration=600)
        self.world.until(30)
        key = self.stray(lease)
        self.world.until(100)
        self.assertIn(key, self.nova.servers)
        self.assertEqual(1, len(self.adopted()))

    def test_label_of_an_adopted_lease_that_is_over_deletes_nothing(self):
        first = self.nova.stray(need=SMALL)
        self.world.until(10)
        lease, = self.adopted()
        self.nova.servers.pop(first)
        self.world.until(20)
        key = self.stray(lease.uuid)
        self.world.until(60)
        self.assertIn(key, self.nova.servers)
        self.assertEqual(2, len(self.adopted()))

    def test_label_of_a_lease_that_waits_to_be_taken_deletes_nothing(self):
        self.world.until(10)
        lease = self.world.ask(1, flavor='unknown', duration=60)
        key = self.stray(lease)
        self.world.step()
        self.assertIn(lease, {row.uuid for row in self.world.engine._waiting})
        self.assertEqual(([], []), (self.deletions(key), self.adopted()))


class UnknownLeaseTest(SweepTestCase):

    def test_server_of_an_unknown_lease_is_reported_and_left(self):
        with mock.patch.object(sweep, 'LOG') as log:
            key = self.stray(services.NOBODY)
            self.world.until(300, period=10.0)
        self.assertEqual(1, log.warning.call_count)
        self.assertEqual(
            {'server': key, 'project': 'p1', 'lease': services.NOBODY},
            log.warning.call_args.args[1])
        self.assertEqual(1, self.world.engine.count_unknown_servers())
        self.assertEqual(([], [key]), (
            self.world.store.leases(), list(self.nova.servers)))
        self.assertEqual([], self.nova.ordered)
        self.nova.servers.clear()
        self.world.until(320)
        self.assertEqual(0, self.world.engine.count_unknown_servers())

    def test_option_deletes_servers_that_are_newer_than_the_database(self):
        self.delete_unknown()
        self.world.until(100)
        key = self.stray(services.NOBODY)
        self.world.until(110)
        self.assertNotIn(key, self.nova.servers)

    def test_empty_database_deletes_nothing(self):
        self.delete_unknown()
        keys = {self.stray(str(uuid.uuid4()), created=created)
                for created in (None, 0.0, NOW - 3600.0, float(NOW))}
        self.world.until(300, period=10.0)
        self.assertEqual(keys, self.nova.servers.keys())

    def test_restored_database_deletes_nothing(self):
        for keeps_engine in (False, True):
            with self.subTest(keeps_engine):
                self.setUp()
                self.delete_unknown()
                self.world.until(100)
                self.world.ask(3, duration=3600)
                self.world.until(200)
                keys = set(self.nova.servers)
                self.assertEqual(3, len(keys))
                self.restore_from_yesterday()
                self.world.engine.drop_state()
                if not keeps_engine:
                    self.world.restart()
                self.world.until(600, period=10.0)
                self.assertEqual(keys, self.nova.servers.keys())
                self.assertEqual(3, self.world.engine.count_unknown_servers())
                key = self.stray(services.NOBODY)
                self.world.until(630, period=10.0)
                self.assertEqual(keys, self.nova.servers.keys() - {key})
                self.assertNotIn(key, self.nova.servers)

    def test_state_that_the_same_engine_has_left_behind_deletes_nothing(self):
        self.delete_unknown()
        self.world.until(100)
        self.world.ask(1, duration=3600)
        self.world.until(120)
        self.execute(sa.delete(LeaseRow))
        self.execute(sa.update(EngineRow).values(looked_at=NOW + 90))
        self.world.engine.drop_state()
        self.world.until(400)
        self.assertEqual(1, len(self.nova.servers))

    def test_server_created_while_no_engine_ran_is_left(self):
        self.delete_unknown()
        self.world.until(100)
        self.world.clock.now += 3600
        key = self.stray(services.NOBODY, created=self.world.clock.now - 60)
        self.world.restart()
        self.world.until(4000, period=20.0)
        self.assertIn(key, self.nova.servers)

    def test_1000_unknown_servers_bound_the_work_of_a_pass(self):
        world = fakes.World(self, DELETING, hosts=('h1',))
        world.nova.hosts['h1'] = values.LeaseHost(
            'h1', (2000,) * 4, (2000,) * 4)
        for _ in range(1000):
            world.nova.stray(need=SMALL, lease=str(uuid.uuid4()), node=0,
                             created=0.0)
        find = schedules.find_leases
        with mock.patch.object(sweep, 'LOG') as log, mock.patch.object(
                schedules, 'find_leases', side_effect=find) as asked:
            world.step()
            self.assertEqual(20, log.warning.call_count)
            for _ in range(60):
                world.clock.now += 1
                world.step()
        self.assertEqual(1000, log.warning.call_count)
        self.assertEqual({500}, {
            len(call.args[1]) for call in asked.call_args_list})
        self.assertLessEqual(asked.call_count, 4)
        self.assertEqual(1000, world.engine.count_unknown_servers())
        self.assertEqual(1000, len(world.nova.servers))
        self.assertEqual([], world.store.leases())


class HeartbeatTest(SweepTestCase):

    def since(self, at, looked_at=0):
        """Write a heartbeat; return since when the database is complete."""
        schedules.record_heartbeat(self.database(), NOW + at, '', looked_at)
        return schedules.find_leases(
            self.database(), [], NOW + at, looked_at).complete_since - NOW

    def test_gap_of_heartbeats_begins_anew(self):
        for at, expected in ((0, 0), (100, 0), (220, 0), (341, 341),
                             (400, 341)):
            self.assertEqual(expected, self.since(at))
        self.assertEqual(410, self.since(410, looked_at=NOW + 401))

    def test_trouble_is_no_heartbeat(self):
        self.since(0)
        schedules.record_heartbeat(self.database(), None, 'Nova is away')
        self.assertEqual(130, self.since(130))


if __name__ == '__main__':
    unittest.main()
