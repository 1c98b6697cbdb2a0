# SPDX-License-Identifier: Apache-2.0

"""A lease service whose responses a test chooses, and Horizon's helpers."""

import copy
import json
import re

from openstack_dashboard.test import helpers
import requests_mock

URL = 'http://leases.example'
LEASE_ID = '7d0e4a53-9c8e-4c27-8f5c-21b0f9a3f001'
LEASE = {
    'id': LEASE_ID, 'project_id': '1', 'user_id': '1', 'name': 'nightly',
    'kind': 'best-effort', 'state': 'active', 'paused': False,
    'cancelling': False, 'reason': '', 'price': 7200.0, 'charge': 12.5,
    'nodes': [{'number': 2, 'flavor': 'secondary', 'image': 'worker',
               'has_user_data': True}],
    'duration': 5400, 'start': None, 'deadline': None, 'immediate': False,
    'preemptible': True, 'max_rate': None, 'served': 61, 'servers': [],
    'created_at': '2027-01-31T08:00:00Z',
    'updated_at': '2027-01-31T08:00:00Z', 'revision': 3, 'next_start': None,
    'unverified': []}
ENGINE = {'last_pass': '2027-01-31T08:00:00Z', 'stale': False, 'message': ''}


def lease(**changes):
    """Return a lease of the service with some other values."""
    return {**copy.deepcopy(LEASE), **changes}


class LeaseServiceMixin:
    """Puts the lease service into the user's catalogue, and mocks HTTP.

    No other service can be reached.
    """

    def setUp(self):
        super().setUp()
        self.service = requests_mock.Mocker()
        self.service.start()
        self.addCleanup(self.service.stop)

    def _setup_test_data(self):
        super()._setup_test_data()
        self.service_catalog.append({
            'type': 'secondary-lease', 'name': 'secondary-lease',
            'endpoints_links': [], 'endpoints': [{
                'region': 'RegionOne', 'interface': 'public',
                'url': URL}]})

    def answer(self, method, path, body=None, status=200):
        """Let the service answer requests for a path."""
        self.service.register_uri(
            method, re.compile(f'^{URL}{path}([?].*)?$'), json=body,
            status_code=status)

    def refuse(self, method, path, status, code, detail):
        """Let the service refuse requests for a path."""
        self.answer(method, path, {'errors': [{
            'status': status, 'code': f'secondary-lease.{code}',
            'title': 'Refused', 'detail': detail, 'request_id': 'req-1'}]},
            status)

    def list_leases(self, leases, more=False, engine=ENGINE):
        """Let the service list leases."""
        self.answer('GET', '/leases', {
            'leases': leases, 'engine': engine, 'leases_links': [
                {'rel': 'next', 'href': ''}] if more else []})

    def sent(self, method='POST'):
        """Return the body of the last request of a method."""
        return json.loads([one for one in self.service.request_history
                           if one.method == method][-1].text)

    def query(self):
        """Return the query of the last request, {name: [values]}."""
        return self.service.request_history[-1].qs

    def texts(self, response):
        """Return the messages on a page."""
        return [str(one) for one in response.context['messages']]


class LeaseTestCase(LeaseServiceMixin, helpers.TestCase):
    """Test of a tenant's panel."""


class OperatorTestCase(LeaseServiceMixin, helpers.BaseAdminViewTests):
    """Test of an administrator's panel."""
