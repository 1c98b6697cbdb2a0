# SPDX-License-Identifier: Apache-2.0

"""Tests of records for operators: capacity, operations and accounting."""

import datetime
import time
import unittest

from secondary_scheduler.leases.api.db import (
    accounting,
    host_states,
    recorded_plans,
    schedules,
)
from secondary_scheduler.leases.api.db.changes import Change
from secondary_scheduler.leases.api.db.host_states import ObservedHost
from secondary_scheduler.leases.api.db.models import EngineRow, LeaseRow
from secondary_scheduler.leases.api.db.recorded_plans import (
    OperationRecord,
    PlanRecord,
)
from tests.unit.leases.api import services
from tests.unit.leases.api.services import NOW, request

DAY = 86_400
SERVER = f'{services.NOBODY[:-1]}7'


def host(**changes):
    """Return the document of a host, as the decision engine records it."""
    return {
        'aggregates': ['secondary'], 'availability_zone': 'nova',
        'known': True, 'admission': 'open', 'reason': '', 'cpus': 4.0,
        'memory_mb': 8000, 'at_floor': 0,
        'use': [{'resource': 'cpu', 'unit': '%', 'primary': 31.5,
                 'secondary': 40.0, 'limit': 90.0}],
        'policies': [{'policy': 'cpu <= 90% for 10s', 'resource': 'cpu',
                      'unit': '%', 'usage': 71.5, 'threshold': 90.0,
                      'time_limit': 10, 'failed_checks': 0,
                      'state': 'held'}],
        'inventory': [{'resource_class': 'CUSTOM_SECONDARY_VCPU',
                       'unit': 'vCPU', 'used': 2, 'allowed': 3, 'total': 4}],
        'secondaries': [{'server_id': SERVER, 'name': 'x', 'project_id': 'p1',
                         'lease_id': None, 'priority': 5, 'cpu': 40.0,
                         'limit': 50.0, 'at_floor': False, 'paused': False,
                         'problem': ''}], **changes}


def operation(number, **changes):
    """Return a record of an operation; its UUID ends in a number."""
    document = {'kind': 'suspend', 'server_name': 'x', 'lease_id': None,
                'state': 'ONGOING', 'seconds': None, 'predicted': 3.0,
                'reason': '', **changes.pop('document', {})}
    return OperationRecord(**{
        'id': request(number).uuid, 'server_id': SERVER, 'source': 'h1',
        'target': None, 'began_at': NOW + 1, 'ended_at': None,
        'document': document, **changes})


def plan(number, *operations, **changes):
    """Return a record of a plan; its UUID ends in a number."""
    return PlanRecord(**{
        'uuid': request(number).uuid, 'request': 'preempt',
        'state': 'ONGOING', 'created_at': NOW + number, 'updated_at': None,
        'document': {'audit_id': request(99).uuid, 'audit_type': 'ONESHOT',
                     'reason': '', 'predicted': 3.0, 'indicators': [
                         {'name': 'duration_predicted', 'value': 3.0,
                          'unit': 's'}]},
        'operations': operations or (operation(number),), **changes})


class RecordCases:
    """Tests for each database."""

    database = ''

    def setUp(self):
        super().setUp()
        self.service = services.on(self, self.database)
        self.db = self.service.database
        self.api = services.Api(self.service)
        with self.db.writer() as session:   # missing in an emptied database
            session.merge(EngineRow(id=1, passes=0))

    def pass_time(self, seconds):
        self.service.store._clock.now += seconds

    # -- capacity

    def write_hosts(self, **hosts):
        host_states.write_hosts(self.db, hosts, self.service.store.now)

    def capacity(self, query=''):
        return self.api.good('GET', f'/capacity{query}',
                             user='admin')['hosts']

    def test_hosts_are_shown_as_observed(self):
        self.write_hosts(h2=ObservedHost(host(admission='closed')),
                         h1=ObservedHost(host(), NOW - 1))
        first, second = self.capacity()
        self.assertEqual({
            'host': 'h1', 'observed_at': '2027-01-31T08:00:00Z',
            'reported_at': '2027-01-31T07:59:59Z', **host()}, first)
        self.assertEqual(('h2', None, 'closed'), tuple(
            second[name] for name in ('host', 'reported_at', 'admission')))

    def test_time_of_the_last_report_outlives_an_engine(self):
        self.write_hosts(h1=ObservedHost(host(), NOW - 1),
                         h2=ObservedHost(host()))
        self.write_hosts(h1=ObservedHost(host(known=False)),
                         h3=ObservedHost(host(), NOW))
        first, second = self.capacity()
        self.assertEqual(('2027-01-31T07:59:59Z', False),
                         (first['reported_at'], first['known']))
        self.assertEqual('h3', second['host'])      # h2 is disabled now

    def test_old_observation_is_not_shown_as_the_present_state(self):
        self.write_hosts(h1=ObservedHost(host(), NOW))
        self.pass_time(61)
        found, = self.capacity()
        self.assertEqual((False, 'unknown', None), tuple(
            found[name] for name in ('known', 'admission', 'at_floor')))
        self.assertIn('61 s', found['reason'])
        self.assertEqual(['unknown'], [one['state']
                                       for one in found['policies']])
        self.assertEqual([None], [one['primary'] for one in found['use']])
        self.assertEqual([None], [one['cpu'] for one in found['secondaries']])
        self.assertEqual('2027-01-31T08:00:00Z', found['reported_at'])

    def test_hosts_are_listed_page_by_page(self):
        self.write_hosts(**{f'h{n}': ObservedHost(host()) for n in range(5)})
        self.assertEqual(['h0', 'h1'], [
            one['host'] for one in self.capacity('?limit=2')])
        answer = self.api.good('GET', '/capacity?limit=2&marker=h1',
                               user='admin')
        self.assertEqual('http://localhost/capacity?limit=2&marker=h3',
                         answer['hosts_links'][0]['href'])
        self.assertEqual([], self.api.good(
            'GET', '/capacity?marker=h3', user='admin')['hosts_links'])
        self.assertEqual(['h3'], [
            one['host'] for one in self.capacity('?host=h3')])
        self.write_hosts()
        self.assertEqual([], self.capacity())

    # -- operations

    def plans(self, query=''):
        return self.api.good('GET', f'/operations{query}',
                             user='admin')['plans']

    def test_plans_are_listed_with_operations_the_newest_first(self):
        recorded_plans.write_plans(self.db, [plan(1), plan(2)])
        second, first = self.plans()
        self.assertEqual({
            'id': request(1).uuid, 'audit_id': request(99).uuid,
            'audit_type': 'ONESHOT', 'request': 'preempt',
            'state': 'ONGOING', 'reason': '', 'predicted': 3.0,
            'created_at': '2027-01-31T08:00:01Z', 'updated_at': None,
            'indicators': [{'name': 'duration_predicted', 'value': 3.0,
                            'unit': 's'}],
            'operations': [{
                'id': request(1).uuid, 'kind': 'suspend',
                'server_id': SERVER, 'server_name': 'x', 'lease_id': None,
                'source': 'h1', 'target': None, 'state': 'ONGOING',
                'began_at': '2027-01-31T08:00:01Z', 'ended_at': None,
                'seconds': None, 'predicted': 3.0, 'reason': ''}]}, first)
        self.assertEqual(request(2).uuid, second['id'])

    def test_changed_plan_replaces_its_record(self):
        recorded_plans.write_plans(self.db, [plan(1)])
        # The begin was observed, and the server is deleted meanwhile.
        recorded_plans.write_plans(self.db, [plan(1, operation(
            1, began_at=NOW + 9, ended_at=NOW + 9, document={
                'state': 'FAILED', 'server_name': None, 'reason': 'no room'}),
            state='FAILED', updated_at=NOW + 9)])
        found, = self.plans()
        one, = found['operations']
        self.assertEqual(
            ('FAILED', 'x', '2027-01-31T08:00:01Z', '2027-01-31T08:00:09Z'),
            tuple(one[name] for name in (
                'state', 'server_name', 'began_at', 'ended_at')))
        # A measured duration counts more than an observed begin.
        recorded_plans.write_plans(self.db, [plan(1, operation(
            1, began_at=NOW + 2, ended_at=NOW + 5,
            document={'state': 'SUCCEEDED', 'seconds': 3.1}))])
        self.assertEqual('2027-01-31T08:00:02Z',
                         self.plans()[0]['operations'][0]['began_at'])

    def test_plans_are_found_by_host_server_request_state_and_time(self):
        other = f'{services.NOBODY[:-1]}8'
        recorded_plans.write_plans(self.db, [
            plan(1), plan(2, operation(2, target='h2'), operation(
                3, server_id=other)),
            plan(4, operation(4, source='h3', server_id=other),
                 request='drain', state='SUCCEEDED')])
        for query, numbers in (
                ('host=h1', [2, 1]), ('host=h2', [2]), ('host=h9', []),
                (f'server={other}', [4, 2]), ('request=drain', [4]),
                ('state=ONGOING&state=FAILED', [2, 1]),
                ('since=2027-01-31T08:00:02Z', [4, 2]),
                ('until=2027-01-31T08:00:02Z', [1]),
                (f'host=h2&server={other}', [])):
            with self.subTest(query):
                self.assertEqual([request(number).uuid for number in numbers],
                                 [one['id'] for one in
                                  self.plans(f'?{query}')])

    def test_plans_are_listed_page_by_page(self):
        # Two have the same time.
        recorded_plans.write_plans(self.db, [
            plan(number, created_at=NOW + number // 2)
            for number in range(1, 6)])
        seen, query = [], '?limit=2'
        while query:
            answer = self.api.good('GET', f'/operations{query}', user='admin')
            seen += [int(one['id'][-1]) for one in answer['plans']]
            query = ''.join(f'?{one["href"].partition("?")[2]}'
                            for one in answer['plans_links'])
        self.assertEqual([5, 4, 3, 2, 1], seen)
        self.assertIn('without a marker', self.api.bad(
            400, 'GET', f'/operations?marker={services.NOBODY}',
            user='admin')['detail'])

    def test_old_plans_are_deleted(self):
        recorded_plans.write_plans(self.db, [plan(1), plan(2)])
        self.assertEqual(NOW + 2, recorded_plans.last_change(self.db))
        recorded_plans.delete_plans(self.db, NOW + 2)
        self.assertEqual([request(2).uuid],
                         [one['id'] for one in self.plans()])

    # -- accounting

    def serve(self, lease, served, charge, **values):
        """Record the seconds and the charge of a lease, as the engine does."""
        passes = schedules.read_pass(self.db, 0).passes
        schedules.write_pass(self.db, passes, 0, [Change(
            lease['id'], None, values, served=served, charge=charge)],
            self.service.store.now)

    def accounts(self, query='', **more):
        return {one['project_id']: tuple(one[name] for name in (
            'leases', 'served', 'node_seconds', 'charge'))
            for one in self.api.good('GET', f'/accounting{query}', **more)[
                'projects']}

    def test_served_time_is_accounted_for_on_its_day(self):
        mine, other = self.api.create(), self.api.create()
        theirs = self.api.create(user='bob', project='p2')
        self.serve(mine, 60, 0.5)
        self.serve(mine, 120, 1.0)
        self.serve(other, 60, None)
        self.serve(theirs, 30, 0.25)
        self.pass_time(DAY)         # the first of the next month
        self.serve(mine, 180, 1.5)
        self.assertEqual({'p1': (1, 60, 120, 0.5)}, self.accounts())
        january = '?begin=2027-01-01&end=2027-02-01'
        self.assertEqual({'p1': (2, 180, 360, 1.0)}, self.accounts(january))
        self.assertEqual(
            {'p1': (2, 180, 360, 1.0), 'p2': (1, 30, 60, 0.25)},
            self.accounts(f'{january}&all_projects=true', user='admin'))
        answer = self.api.good('GET', '/accounting')
        self.assertEqual(('2027-02-01', '2027-02-02', '2027-01-31'), tuple(
            answer[name] for name in ('begin', 'end', 'since')))
        self.assertEqual('secondary-lease.forbidden', self.api.bad(
            403, 'GET', '/accounting?all_projects=true')['code'])

    def test_failed_lease_gives_its_charge_back(self):
        lease = self.api.create()
        self.serve(lease, 60, 0.5)
        self.pass_time(DAY)
        self.serve(lease, 60, 0.0, state='failed')
        self.assertEqual({'p1': (1, 0, 0, -0.5)}, self.accounts())

    def test_accounts_outlive_their_leases(self):
        lease = self.api.create()
        self.serve(lease, 60, 0.5, state='done')
        self.api.good('DELETE', f'/leases/{lease["id"]}')
        self.assertEqual({'p1': (1, 60, 120, 0.5)}, self.accounts())

    def test_intervals_without_a_day_are_refused(self):
        for query, says in (('begin=2027-02-30', 'no such day'),
                            ('begin=2027-03-01', 'no day'),
                            ('begin=2027-3-1', 'begin'),
                            ('end=2027-01-01', 'no day')):
            with self.subTest(query):
                self.assertIn(says, self.api.bad(
                    400, 'GET', f'/accounting?{query}')['detail'])

    def test_without_accounts_there_is_no_first_day(self):
        answer = self.api.good('GET', '/accounting')
        self.assertEqual(([], None), (answer['projects'], answer['since']))
        self.assertIsNone(accounting.first_day(self.db))
        self.assertEqual(datetime.date(2027, 1, 31), accounting.day_of(NOW))

    # -- lists of leases

    def test_lists_of_leases_have_an_order(self):
        for name in ('b', 'a', 'b', 'c'):
            self.api.create(name=name)
        for query, names in (
                ('sort_dir=desc', 'cbab'), ('sort_key=name', 'abbc'),
                ('sort_key=name&sort_dir=desc', 'cbba'),
                ('sort_key=state', 'babc')):
            seen, page = '', f'?limit=1&{query}'
            while page:
                answer = self.api.good('GET', f'/leases{page}')
                seen += ''.join(one['name'] for one in answer['leases'])
                page = ''.join(f'?{one["href"].partition("?")[2]}'
                               for one in answer['leases_links'])
            with self.subTest(query):
                self.assertEqual(names, seen)


class RecordsInMemoryTest(RecordCases, unittest.TestCase):

    database = 'memory'

    def test_only_operators_see_hosts_and_operations(self):
        for path in ('/capacity', '/operations'):
            for user in ('alice', 'reader'):
                self.assertEqual('secondary-lease.forbidden', self.api.bad(
                    403, 'GET', path, user=user)['code'])
            self.assertEqual(404, self.api.ask('GET', path, headers={
                'OpenStack-API-Version': 'secondary-lease 1.4'})[0])

    def test_leases_of_one_project_are_listed_for_operators(self):
        self.api.create(name='a')
        self.api.create(name='b', user='bob', project='p2')
        found = self.api.good('GET', '/leases?all_projects=true&'
                              'project_id=p2', user='admin', project='p3')
        self.assertEqual(['b'], [one['name'] for one in found['leases']])
        self.assertEqual(['a'], [one['name'] for one in self.api.good(
            'GET', '/leases?project_id=p1')['leases']])
        self.assertIn('all_projects', self.api.bad(
            400, 'GET', '/leases?project_id=p2')['detail'])

    def test_older_versions_have_no_order(self):
        self.assertIn('sort_key', self.api.bad(
            400, 'GET', '/leases?sort_key=name', headers={
                'OpenStack-API-Version': 'secondary-lease 1.4'})['detail'])

    def test_page_of_ten_thousand_leases_is_fast(self):
        with self.db.writer() as session:
            session.add_all(
                LeaseRow(**vars_of(request(number).make_lease(NOW)))
                for number in range(10_000))
        for query in ('', '&sort_key=name&sort_dir=desc'):
            path = f'/leases?all_projects=true&limit=100{query}'
            self.api.good('GET', path, user='admin')
            began = time.process_time()
            answer = self.api.good('GET', path, user='admin')
            self.assertEqual(100, len(answer['leases']))
            self.assertLess(time.process_time() - began, 0.3)


def vars_of(lease):
    """Return the columns of a lease, without its nodes."""
    return {name: value for name, value in vars(lease).items()
            if not name.startswith('_') and name not in ('nodes', 'servers')}


@services.needs('MariaDB')
class RecordsOnMariaDBTest(RecordCases, unittest.TestCase):

    database = 'MariaDB'


@services.needs('PostgreSQL')
class RecordsOnPostgreSQLTest(RecordCases, unittest.TestCase):

    database = 'PostgreSQL'
