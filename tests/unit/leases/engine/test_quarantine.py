# SPDX-License-Identifier: Apache-2.0

"""Leases that cannot be read stop no other lease."""

import json
import unittest

import sqlalchemy as sa

from secondary_scheduler.leases.api.db import models
from tests.unit.leases.engine import fakes

#: Keys that documents of earlier releases lack.
OPTIONAL = {'served_time', 'failing_since', 'cause', 'changed',
            'unreachable_since'}


class QuarantineTest(unittest.TestCase):

    def setUp(self):
        self.world = fakes.World(self)
        self.bad = self.world.ask(2, duration=200)
        self.good = self.world.ask(1, duration=60)
        self.world.until(30)

    def document(self, text=None):
        """Return the document of the bad lease; replace it by a text."""
        with self.world.service.database.writer() as session:
            lease = sa.select(models.LeaseRow.id).where(
                models.LeaseRow.uuid == self.bad).scalar_subquery()
            if text is not None:
                session.execute(sa.update(models.Schedule).where(
                    models.Schedule.lease_id == lease).values(document=text))
            return session.scalar(sa.select(models.Schedule.document).where(
                models.Schedule.lease_id == lease))

    def spoil(self, text='{'):
        before = self.document()
        self.document(text)
        self.world.restart()
        return before

    def test_other_leases_go_on(self):
        known = json.loads(self.document())
        spoilt = [self.document()[:-1], '[1]', *(json.dumps(one) for one in (
            *({name: value for name, value in known.items() if name != gone}
              for gone in known.keys() - OPTIONAL),
            *(known | {name: 7}
              for name in ('terms', 'stay', 'home', 'nodes', 'state'))))]
        good = self.document()
        for text in spoilt:
            with self.subTest(text):
                self.spoil(text)
                self.world.step()
                self.assertEqual(
                    ('error', 'active'), (self.world.state(self.bad),
                                          self.world.state(self.good)))
                self.spoil(good)
                self.world.step()
                self.assertEqual('active', self.world.state(self.bad))
        self.world.until(300)
        self.assertEqual(['done', 'done'], [
            self.world.state(one) for one in (self.bad, self.good)])

    def test_lease_keeps_its_servers_and_its_hosts(self):
        self.spoil()
        other = self.world.ask(11, duration=60)
        self.world.until(150)
        self.assertEqual(['ACTIVE'] * 2, self.world.nova.statuses(self.bad))
        self.assertEqual('done', self.world.state(self.good))
        self.assertNotIn(self.world.state(other), ('active', 'done'))
        self.assertEqual([], self.world.overloads)
        found = self.world.store.get(self.bad)
        self.assertIn('cannot read', found.reason)
        self.assertEqual(1, self.world.kinds(self.bad).count('error'))
        self.assertEqual(1, self.world.engine.count_unreadable_leases())

    def test_plan_is_withheld_without_its_servers(self):
        later = self.world.ask(12, duration=60, start=fakes.NOW + 400)
        self.world.until(40)
        self.bad = later
        self.spoil()
        other = self.world.ask(1, duration=60, start=fakes.NOW + 400)
        self.world.until(60)
        self.assertEqual(('error', 'rejected'), (
            self.world.state(later), self.world.state(other)))

    def test_owner_cancels_it_and_its_servers_go(self):
        self.spoil()
        self.world.until(34)
        self.world.store.change(self.bad, 'asked', {'wanted_end': True})
        self.world.until(180)
        self.assertEqual('cancelled', self.world.state(self.bad))
        self.assertEqual([], self.world.nova.statuses(self.bad))
        self.assertEqual(0, self.world.engine.count_unreadable_leases())

    def test_row_that_cannot_be_read_is_left_out(self):
        for table, column in (('leases', 'unverified'),
                              ('node_sets', 'server')):
            with self.subTest(column):
                where = ('uuid = :uuid' if table == 'leases' else
                         'lease_id = (SELECT id FROM leases '
                         'WHERE uuid = :uuid)')
                self.write(table, column, '{', where)
                self.world.restart()
                self.world.step()
                self.assertEqual(1,
                                 self.world.engine.count_unreadable_leases())
                self.write(table, column, None, where)
                self.assertEqual('error', self.world.state(self.bad))
                self.world.restart()
                self.world.step()
                self.assertEqual('active', self.world.state(self.bad))

    def write(self, table, column, value, where):
        with self.world.service.database.writer() as session:
            session.execute(sa.text(
                f'UPDATE {table} SET {column} = :value WHERE {where}'), {
                    'value': value, 'uuid': self.bad})


if __name__ == '__main__':
    unittest.main()
