# SPDX-License-Identifier: Apache-2.0

"""Tests of trusts, against a Keystone in memory."""

import unittest
from unittest import mock

from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import session
from keystonemiddleware import opts

from secondary_scheduler.leases.api import trusts
from tests.unit.leases.api import services


class TrustTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        service = services.on(self, trustee_user_id='engine')
        for group, options in opts.list_auth_token_opts():
            service.conf.register_opts(options, group)
        service.conf.set_override('www_authenticate_uri',
                                  'http://keystone.example/identity/',
                                  'keystone_authtoken')
        self.addCleanup(service.conf.clear_override, 'www_authenticate_uri',
                        'keystone_authtoken')
        self.store, self.conf = service.store, service.conf
        self.api = services.Api(service)
        self.heard, self.trust, self.refusal = [], 'trust1', None

        def request(session, path, method, endpoint_override, **more):
            self.verify = session.verify
            self.heard.append((method, endpoint_override + path,
                               session.auth.token, more.get('json')))
            if self.refusal:
                raise self.refusal
            return mock.Mock(json=lambda: {'trust': {'id': self.trust}})
        patcher = mock.patch.object(session.Session, 'request', request)
        patcher.start()
        self.addCleanup(patcher.stop)

    def asked(self, method):
        return [one for one in self.heard if one[0] == method]

    def test_trust_is_created_with_lease_and_deleted_with_it(self):
        lease = self.api.create()
        self.assertEqual('trust1', self.store.get(lease['id']).trust_id)
        ((_, url, token, given),) = self.asked('POST')
        self.assertEqual(
            ('http://keystone.example/identity/v3/OS-TRUST/trusts',
             'alice:p1'), (url, token))
        self.assertEqual(
            {'trustor_user_id': 'alice', 'trustee_user_id': 'engine',
             'project_id': 'p1', 'impersonation': True,
             'allow_redelegation': False, 'roles': [{'name': 'member'}]},
            given['trust'])
        self.api.good('DELETE', f'/leases/{lease["id"]}')
        self.assertEqual(1, len(self.asked('DELETE')))

    def test_requests_use_certificates_of_the_middleware(self):
        for name, value in (('cafile', '/ca.pem'), ('insecure', True)):
            with self.subTest(name):
                self.conf.set_override(name, value, 'keystone_authtoken')
                self.addCleanup(self.conf.clear_override, name,
                                'keystone_authtoken')
                self.api.create()
                self.assertEqual(False if name == 'insecure' else value,
                                 self.verify)

    def test_missing_url_of_keystone_is_logged(self):
        self.conf.set_override('www_authenticate_uri', None,
                               'keystone_authtoken')
        with self.assertLogs(trusts.LOG.logger, 'ERROR') as logs:
            self.api.bad(503, 'POST', '/leases', services.LEASE)
        self.assertIn('auth_url', logs.output[0])

    def test_trust_without_a_lease_is_deleted(self):
        self.api.create(client_token='once')
        self.trust = 'trust2'
        self.api.create(client_token='once')
        self.assertEqual(1, len(self.asked('POST')))
        # Two attempts at once both find no lease before they make one.
        with mock.patch.object(self.store, 'repeated', return_value=None):
            self.api.create(client_token='once')
        (taken,) = self.asked('DELETE')
        self.assertTrue(taken[1].endswith('/trust2'))

    def test_refused_trust_names_required_roles(self):
        self.refusal = ks_exceptions.Forbidden()
        self.assertIn('member', self.api.bad(
            403, 'POST', '/leases', services.LEASE)['detail'])
        for self.refusal in (ks_exceptions.ServiceUnavailable(),
                             ks_exceptions.ConnectFailure()):
            self.api.bad(503, 'POST', '/leases', services.LEASE)
