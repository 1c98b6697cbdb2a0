# SPDX-License-Identifier: Apache-2.0

"""Tests of the commands and methods for records of operators."""

import datetime

from secondary_scheduler.leases.api.db import (
    accounting,
    host_states,
    recorded_plans,
)
from secondary_scheduler.leases.api.db.host_states import ObservedHost
from secondary_scheduler.leases.client import client
from secondary_scheduler.leases.client.v1 import records
from tests.unit.leases.api.services import request
from tests.unit.leases.api.test_records import host, operation, plan
from tests.unit.leases.client.client_case import ClientCase


class RecordCommandTest(ClientCase):

    def setUp(self):
        super().setUp()
        self.leases = self.client_of('admin:p1')
        self.db = self.service.database
        self.now = self.service.store.now

    def test_hosts_are_listed_with_unknown_values_as_such(self):
        host_states.write_hosts(self.db, {
            'h1': ObservedHost(host(), self.now), 'h2': ObservedHost(host(
                known=False, admission='unknown', reason='no fresh report',
                use=[], policies=[], at_floor=None))}, self.now)
        first, second = self.json(records.ListCapacity)
        self.assertEqual(
            ('h1', 'open', '31.5/40/90', '2/3/4', '-',
             'cpu <= 90% for 10s: held', '0'),
            tuple(first[name] for name in (
                'host', 'admission', 'cpu', 'vcpu', 'slot', 'policies',
                'at_floor')))
        self.assertEqual(
            ('unknown', '?', '?', '?', 'never', 'no fresh report'),
            tuple(second[name] for name in (
                'admission', 'cpu', 'policies', 'at_floor', 'last_report',
                'reason')))
        self.assertEqual(['h2'], [one['host'] for one in self.json(
            records.ListCapacity, '--host', 'h2')])

    def test_operations_are_listed_by_plan(self):
        recorded_plans.write_plans(self.db, [
            plan(1, operation(1), operation(2, target='h2')),
            plan(3, operation(3, source='h3'), request='drain')])
        self.assertEqual(
            [('drain', 'h3'), ('preempt', 'h1'), ('preempt', 'h1')],
            [(one['request'], one['source'])
             for one in self.json(records.ListOperation)])
        self.assertEqual(2, len(self.json(
            records.ListOperation, '--host', 'h2')))
        self.assertEqual(1, len(self.json(
            records.ListOperation, '--limit', '1')))

    def test_accounts_say_if_earlier_time_is_missing(self):
        lease = request(1).make_lease(self.now)
        with self.db.writer() as session:
            accounting.add_served(session, [accounting.Served(
                lease.uuid, lease.project_id, 60, 120, 0.5)], self.now)
        begin = accounting.day_of(self.now) - datetime.timedelta(days=1)
        text = self.execute(records.ShowAccounting, '--begin', str(begin),
                            '--all-projects', '-f', 'value')
        self.assertIn('p1 1 60 120 0.5', text)
        self.assertIn('earlier time is missing', text)

    def test_lists_are_read_page_by_page(self):
        recorded_plans.write_plans(self.db, [plan(n) for n in range(5)])
        self.assertEqual(5, len(list(self.leases.operations(limit=2))))
        page = self.leases.operations_page(limit=2)
        self.assertEqual((2, True), (len(page.items), page.more))
        host_states.write_hosts(self.db, {
            f'h{n}': ObservedHost(host()) for n in range(3)}, self.now)
        self.assertEqual(['h0', 'h1', 'h2'], [
            one['host'] for one in self.leases.capacity(limit=1)])
        self.assertFalse(self.leases.leases_page().more)

    def test_other_users_are_refused(self):
        with self.assertRaises(client.LeaseError) as caught:
            list(self.client_of('alice:p1').capacity())
        self.assertEqual(403, caught.exception.status_code)
