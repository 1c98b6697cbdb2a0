# SPDX-License-Identifier: Apache-2.0

"""Tests of authentication by KeystoneTest's middleware."""

from keystonemiddleware import fixture, opts
import testtools

from tests.unit.leases.api import clouds, services


class KeystoneTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        service = services.on(self, auth_strategy='keystone')
        for group, options in opts.list_auth_token_opts():
            service.conf.register_opts(options, group)
        for name, value in (
                ('www_authenticate_uri', 'http://keystone.example'),
                ('service_token_roles_required', True)):
            service.conf.set_override(name, value, 'keystone_authtoken')
            self.addCleanup(service.conf.clear_override, name,
                            'keystone_authtoken')
        self.tokens = self.useFixture(fixture.AuthTokenFixture())
        self.api = services.Api(service)

    def test_token_determines_user_and_project(self):
        self.tokens.add_token_data(
            'carols', project_id='p7', user_id='carol',
            role_list=['member', 'reader'])
        made = self.api.good('POST', '/leases', services.LEASE, user=None,
                             headers={'X-Auth-Token': 'carols',
                                      'X-Project-Id': 'p1'})['lease']
        self.assertEqual(('p7', 'carol'),
                         (made['project_id'], made['user_id']))

    def test_look_ups_use_the_token(self):
        cloud = clouds.Cloud(self)
        token = clouds.token(cloud.services)
        token.add_role(name='member')
        self.tokens.add_token(token, 'alices')

        def ask(flavor):
            return self.api.ask(
                'POST', '/leases', {**services.LEASE, 'nodes': [
                    {**services.NODES[0], 'flavor': flavor}]}, user=None,
                headers={'X-Auth-Token': 'alices'})
        status, answer = ask('secondary.small')
        self.assertEqual((202, []), (status, answer['lease']['unverified']))
        self.assertEqual(400, ask('m1.small')[0])
        self.assertEqual({'alices'}, cloud.tokens)

    def test_invalid_token_and_forged_headers_are_refused(self):
        api = self.api
        api.good('GET', '/', user=None)
        api.bad(401, 'GET', '/leases', user=None, headers={
            'X-Auth-Token': 'nonsense'})
        # Identity headers of the client are ignored.
        api.bad(401, 'GET', '/leases', user=None, headers={
            'X-User-Id': 'mallory', 'X-Project-Id': 'p1',
            'X-Roles': 'admin', 'X-Identity-Status': 'Confirmed'})
