# SPDX-License-Identifier: Apache-2.0

"""Texts of users and of other services are shown as text on all pages."""

from unittest import mock

from openstack_dashboard.api import glance, nova

from secondary_dashboard.test import helpers
from secondary_dashboard.test import test_admin_panels as operator
from secondary_dashboard.test import test_project_leases as tenant

MARKUP = '\'"><script>alert(1)</script>{{ 6|add:60 }}'
EVENT = {'time': '2027-01-31T08:00:00Z', 'kind': MARKUP, 'state': MARKUP,
         'text': MARKUP}
SLOT = {'lease_id': helpers.LEASE_ID, 'begin': '2027-01-31T08:00:00Z',
        'end': None, 'what': MARKUP, 'nodes': 1}


def marked():
    """Return a lease whose texts are all markup."""
    return helpers.lease(
        name=MARKUP, reason=MARKUP, kind=MARKUP, servers=[operator.SERVER],
        nodes=[{'number': 1, 'flavor': MARKUP, 'image': MARKUP,
                'key_name': MARKUP, 'has_user_data': True}],
        unverified=[{'field': MARKUP, 'reason': MARKUP}])


class MarkupMixin:

    def assert_text(self, page):
        """Assert that a page shows the markup as a text."""
        self.assertContains(page, '&lt;script&gt;alert(1)&lt;/script&gt;')
        self.assertNotContains(page, '<script>alert(1)')
        self.assertNotContains(page, '"><script')
        self.assertContains(page, '{{ 6|add:60 }}')


class TenantMarkupTest(MarkupMixin, helpers.LeaseTestCase):

    def setUp(self):
        super().setUp()
        lease = f'/leases/{helpers.LEASE_ID}'
        self.list_leases([marked()])
        for path, body in ((lease, {'lease': marked()}),
                           (f'{lease}/events', {'events': [EVENT]}),
                           (f'{lease}/timeline', {'slots': [SLOT]}),
                           ('/timeline', {'slots': [SLOT]})):
            self.answer('GET', path, {**body, 'engine': helpers.ENGINE})

    def test_lists_show_texts(self):
        self.assert_text(self.client.get(tenant.INDEX))
        self.assert_text(self.client.get(tenant.TIMELINE))

    def test_row_that_is_read_again_shows_texts(self):
        self.assert_text(self.client.get(
            tenant.INDEX, {'action': 'row_update', 'table': 'leases',
                           'obj_id': helpers.LEASE_ID},
            HTTP_X_REQUESTED_WITH='XMLHttpRequest'))

    def test_details_show_texts(self):
        server = mock.Mock(id=operator.SERVER, status=MARKUP)
        server.name = MARKUP
        with mock.patch.object(nova, 'server_list',
                               return_value=([server], False)), \
                mock.patch.object(glance, 'image_get') as image:
            image.return_value.name = MARKUP
            for tab in ('overview', 'servers', 'events', 'timeline'):
                with self.subTest(tab):
                    self.assert_text(self.client.get(
                        f'{tenant.DETAIL}?tab=lease_details__{tab}'))

    def test_reason_of_a_refusal_is_a_text(self):
        self.refuse('POST', f'/leases/{helpers.LEASE_ID}/action', 409,
                    'wrong-state', MARKUP)
        self.assert_text(self.client.post(tenant.INDEX, {
            'action': f'leases__pause__{helpers.LEASE_ID}'}, follow=True))
        self.refuse('POST', '/leases', 400, 'invalid-request', MARKUP)
        self.answer('GET', '/quota', tenant.QUOTA)
        with tenant.cloud():
            self.assert_text(self.client.post(tenant.CREATE, tenant.FORM))


class OperatorMarkupTest(MarkupMixin, helpers.OperatorTestCase):

    def test_all_leases_show_texts(self):
        self.list_leases([marked()])
        with operator.projects(**{MARKUP: '1'}):
            self.assert_text(self.client.get(operator.LEASES))

    def test_capacity_and_operations_show_texts(self):
        host = operator.changed(
            operator.HOST, host=MARKUP, reason=MARKUP, aggregates=[MARKUP])
        host['policies'][0]['policy'] = MARKUP
        host['secondaries'][0].update(name=MARKUP, problem=MARKUP)
        self.answer('GET', '/capacity', {
            'hosts': [host], 'engine': helpers.ENGINE,
            'hosts_links': [{'rel': 'next', 'href': ''}]})
        self.assert_text(self.client.get(operator.CAPACITY))
        plan = operator.changed(operator.PLAN, request=MARKUP, reason=MARKUP)
        plan['operations'][0].update(
            server_name=MARKUP, source=MARKUP, target=MARKUP, reason=MARKUP)
        self.answer('GET', '/operations', {
            'plans': [plan], 'engine': helpers.ENGINE, 'plans_links': []})
        self.assert_text(self.client.get(operator.OPERATIONS,
                                         {'host': MARKUP}))

    def test_accounts_show_texts(self):
        self.answer('GET', '/accounting', operator.ACCOUNT)
        with operator.projects(**{MARKUP: '1'}):
            self.assert_text(self.client.get(operator.ACCOUNTING))
