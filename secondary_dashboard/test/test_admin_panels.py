# SPDX-License-Identifier: Apache-2.0

"""Panels of administrators: capacity, operations, leases, accounting."""

import copy
from unittest import mock

from django.urls import reverse
from openstack_dashboard.api import keystone
import requests

from secondary_dashboard.test import helpers

CAPACITY = reverse('horizon:admin:secondary_capacity:index')
OPERATIONS = reverse('horizon:admin:secondary_operations:index')
LEASES = reverse('horizon:admin:secondary_leases:index')
ACCOUNTING = reverse('horizon:admin:secondary_accounting:index')

SERVER = '00000000-0000-0000-0000-00000000000a'
HOST = {
    'host': 'box1', 'aggregates': ['secondary'], 'availability_zone': 'nova',
    'observed_at': '2027-01-31T08:00:00Z',
    'reported_at': '2027-01-31T08:00:00Z', 'known': True,
    'admission': 'closed', 'reason': 'no room for another secondary',
    'cpus': 4.0, 'memory_mb': 8000, 'at_floor': 1,
    'use': [{'resource': 'cpu', 'unit': '%', 'primary': 70.0,
             'secondary': 40.0, 'limit': 90.0}],
    'policies': [{'policy': 'cpu <= 90% for 10s on aggregate:secondary',
                  'resource': 'cpu', 'unit': '%', 'usage': 110.0,
                  'threshold': 90.0, 'time_limit': 10, 'failed_checks': 7,
                  'state': 'violated'}],
    'inventory': [{'resource_class': 'CUSTOM_SECONDARY_VCPU', 'unit': 'vCPU',
                   'used': 2, 'allowed': 3, 'total': 4}],
    'secondaries': [{'server_id': SERVER, 'name': 'nightly-0',
                     'project_id': '1', 'lease_id': None, 'priority': 5,
                     'cpu': 20.0, 'limit': 25.0, 'at_floor': True,
                     'paused': False, 'problem': 'its floor is unknown'}]}
PLAN = {
    'id': '00000000-0000-0000-0000-00000000000b',
    'audit_id': '00000000-0000-0000-0000-00000000000c',
    'audit_type': 'CONTINUOUS', 'request': 'preempt', 'state': 'SUCCEEDED',
    'reason': '', 'created_at': '2027-01-31T08:00:00Z', 'updated_at': None,
    'predicted': 12.34,
    'indicators': [{'name': 'preempted_instances_count', 'value': 2.0,
                    'unit': ''}],
    'operations': [{
        'id': '00000000-0000-0000-0000-00000000000d', 'kind': 'migrate',
        'server_id': SERVER, 'server_name': 'nightly-0', 'lease_id': None,
        'source': 'box1', 'target': 'box2', 'state': 'SUCCEEDED',
        'began_at': '2027-01-31T08:00:01Z',
        'ended_at': '2027-01-31T08:00:05Z', 'seconds': 3.21,
        'predicted': 3.0, 'reason': ''}]}
ACCOUNT = {'begin': '2027-01-01', 'end': '2027-02-01', 'since': '2027-01-05',
           'projects': [{'project_id': '1', 'leases': 3, 'served': 7200,
                         'node_seconds': 14400, 'charge': 12.5}]}


def changed(value, **changes):
    """Return a copy of a value of the service with some other values."""
    return {**copy.deepcopy(value), **changes}


def projects(**ids):
    """Let Keystone list projects, given as name=id."""
    found = [mock.Mock(id=one) for one in ids.values()]
    for project, name in zip(found, ids, strict=True):
        project.name = name
    return mock.patch.object(keystone, 'tenant_list',
                             return_value=(found, False))


class CapacityTest(helpers.OperatorTestCase):

    def show(self, *hosts, more=False):
        """Return the page with hosts."""
        self.answer('GET', '/capacity', {
            'hosts': hosts, 'engine': helpers.ENGINE, 'hosts_links': [
                {'rel': 'next', 'href': ''}] if more else []})
        return self.client.get(CAPACITY)

    def test_violated_policy_and_closed_admission_are_shown(self):
        page = self.show(HOST)
        self.assertContains(page, 'Closed: no room for another secondary')
        self.assertContains(page, 'class="secondary-violated">Violated')
        self.assertContains(page, 'primary 70 %, secondaries 40 %')
        self.assertContains(page, 'at the floor; its floor is unknown')

    def test_use_above_the_threshold_without_secondaries_is_explained(self):
        policy = changed(HOST['policies'][0], state='held', failed_checks=0)
        page = self.show(changed(HOST, policies=[policy], secondaries=[]))
        self.assertContains(page, 'Held: no secondaries run')
        page = self.show(changed(HOST, policies=[policy]))
        self.assertNotContains(page, 'no secondaries run')

    def test_bars_stay_within_the_host(self):
        page = self.show(HOST)
        self.assertContains(page, 'x="70.00%" width="30.00%"')

    def test_unknown_use_is_no_zero(self):
        page = self.show(changed(
            HOST, known=False, admission='unknown', reason='', cpus=None,
            memory_mb=None, at_floor=None, secondaries=[], policies=[],
            use=[{'resource': 'cpu', 'unit': '%', 'primary': None,
                  'secondary': None, 'limit': 90.0}]))
        self.assertContains(page, 'cpu: unknown, limit 90 %')
        self.assertContains(page, 'too old: use is unknown')
        self.assertNotContains(page, 'class="secondary-bar secondary-primary"'
                               ' x="0"')

    def test_cloud_without_hosts_names_the_next_step(self):
        self.assertContains(self.show(), 'secondary-scheduler host enable')

    def test_hosts_are_read_page_by_page(self):
        self.assertContains(self.show(HOST, more=True), '?marker=box1')
        self.client.get(f'{CAPACITY}?marker=box1')
        self.assertEqual(['box1'], self.query()['marker'])

    def test_missing_right_is_a_message(self):
        self.refuse('GET', '/capacity', 403, 'forbidden',
                    'The policy secondary_lease:capacity forbids it.')
        self.assertContains(self.client.get(CAPACITY),
                            'secondary_lease:capacity forbids it.')


class OperationsTest(helpers.OperatorTestCase):

    def show(self, *plans, query=''):
        """Return the page with action plans."""
        self.answer('GET', '/operations', {
            'plans': plans, 'plans_links': [], 'engine': helpers.ENGINE})
        return self.client.get(OPERATIONS + query)

    def test_operations_are_shown_with_their_plan_and_as_bars(self):
        page = self.show(PLAN)
        self.assertContains(page, 'preempted instances count')
        self.assertContains(page, 'box1 → box2')
        self.assertContains(page, '<title>migrate box1 → box2, SUCCEEDED')
        self.assertContains(page, '3.21')

    def test_operation_that_has_not_begun_has_no_bar(self):
        operation = changed(PLAN['operations'][0], state='PENDING',
                            began_at=None, ended_at=None, seconds=None)
        page = self.show(changed(PLAN, operations=[operation]))
        self.assertContains(page, 'PENDING')
        self.assertIsNone(page.context['chart'])

    def test_empty_history_says_so(self):
        self.assertContains(self.show(), 'There are no operations.')

    def test_filter_is_sent_and_kept(self):
        page = self.show(query='?host=box1&state=FAILED&server=')
        self.assertEqual((['box1'], ['failed']), (
            self.query()['host'], self.query()['state']))
        self.assertNotIn('server', self.query())
        self.assertContains(page, 'value="box1"')

    def test_silent_service_is_a_message(self):
        self.service.register_uri(
            'GET', f'{helpers.URL}/operations', exc=requests.ConnectTimeout)
        self.assertContains(self.client.get(OPERATIONS), 'does not answer')


class AllLeasesTest(helpers.OperatorTestCase):

    def test_leases_of_all_projects_have_the_names_of_these(self):
        self.list_leases([helpers.lease(), helpers.lease(
            id='00000000-0000-0000-0000-000000000002', project_id='gone')])
        with projects(research='1'):
            page = self.client.get(LEASES)
        self.assertContains(page, 'research')
        self.assertContains(page, 'gone')
        self.assertEqual(['true'], self.query()['all_projects'])

    def test_ids_are_shown_without_keystone(self):
        self.list_leases([helpers.lease(project_id='some-project')])
        with mock.patch.object(keystone, 'tenant_list',
                               side_effect=requests.ConnectionError):
            page = self.client.get(LEASES)
        self.assertContains(page, 'some-project')


    def test_row_that_changes_is_read_again_with_its_project(self):
        self.list_leases([helpers.lease(state='preparing')])
        self.answer('GET', f'/leases/{helpers.LEASE_ID}', {
            'lease': helpers.lease(state='active'),
            'engine': helpers.ENGINE})
        with projects(research='1'):
            page = self.client.get(LEASES)
            self.assertContains(page, 'class="ajax-update warning"')
            row = self.client.get(LEASES, {
                'action': 'row_update', 'table': 'all_leases',
                'obj_id': helpers.LEASE_ID},
                HTTP_X_REQUESTED_WITH='XMLHttpRequest')
        self.assertContains(row, 'Active')
        self.assertContains(row, 'research')

    def test_leases_are_filtered_by_project(self):
        self.list_leases([])
        self.client.post(LEASES, {
            'all_leases__filter__q': 'some-project',
            'all_leases__filter__q_field': 'project_id'}, follow=True)
        self.assertEqual(['some-project'], self.query()['project_id'])

    def test_timeline_has_the_slots_of_all_projects(self):
        self.list_leases([helpers.lease()])
        self.answer('GET', '/timeline', {'slots': [
            {'lease_id': helpers.LEASE_ID, 'begin': '2027-01-31T08:00:00Z',
             'end': None, 'what': 'run', 'nodes': 1, 'hosts': None}]})
        with projects(research='1'):
            page = self.client.get(f'{LEASES}timeline/')
        self.assertContains(page, 'research: nightly</a>')
        self.assertContains(page, f'{LEASES}{helpers.LEASE_ID}/')
        for one in self.service.request_history:
            self.assertEqual(['true'], one.qs['all_projects'])


class AccountingTest(helpers.OperatorTestCase):

    def show(self, query='', **changes):
        """Return the page of an account."""
        self.answer('GET', '/accounting', changed(
            ACCOUNT, engine=helpers.ENGINE, **changes))
        with mock.patch.object(keystone, 'tenant_list',
                               return_value=([], False)):
            return self.client.get(ACCOUNTING + query)

    def test_account_has_node_hours_and_charge(self):
        page = self.show()
        for text in ('2027-01-01 to 2027-01-31', '<td>2 h</td>',
                     '<td>4</td>', '<td>12.5</td>',
                     'Accounts begin on 2027-01-05.'):
            self.assertContains(page, text)

    def test_last_day_is_inclusive(self):
        self.show('?first=2027-01-01&last=2027-01-31')
        self.assertEqual((['2027-01-01'], ['2027-02-01']), (
            self.query()['begin'], self.query()['end']))

    def test_wrong_interval_is_not_sent(self):
        page = self.show('?first=2027-02-01&last=2027-01-01')
        self.assertContains(page, 'The last day is before the first.')
        self.assertEqual([], self.service.request_history)
        for query in ('first=0001-01-01', 'first=9999-12-31',
                      'last=9999-12-31', 'last=2099-12-31',
                      'last=1999-12-31'):
            with self.subTest(query):
                page = self.show(f'?{query}')
                self.assertContains(page, 'Choose a day from 2000 to 2099.')
                self.assertEqual([], self.service.request_history)

    def test_empty_account_says_so(self):
        page = self.show(projects=[], since=None)
        self.assertContains(page, 'No lease was served in this interval.')
        self.assertContains(page, 'There are no accounts yet')


class RightsTest(helpers.LeaseTestCase):

    def test_tenant_sees_no_panel_of_administrators(self):
        self.list_leases([])
        page = self.client.get(reverse(
            'horizon:project:secondary_leases:index'))
        for url in (CAPACITY, OPERATIONS, LEASES, ACCOUNTING):
            self.assertNotContains(page, url)

    def test_panels_of_administrators_refuse_a_tenant(self):
        for url in (CAPACITY, OPERATIONS, LEASES, ACCOUNTING):
            with self.subTest(url):
                page = self.client.get(url)
                self.assertIn(page.status_code, (302, 403))
                self.assertEqual([], self.service.request_history)
