# SPDX-License-Identifier: Apache-2.0

"""Tests of the Python client."""

import types

from keystoneauth1 import adapter, session, token_endpoint
import openstack
from wsgi_intercept import interceptor

from secondary_scheduler.leases.client import client, osc
from tests.unit.leases.api import services
from tests.unit.leases.client.client_case import ClientCase


class ClientTest(ClientCase):

    def test_list_yields_all_pages(self):
        made = [self.leases.create([{'number': 1, 'flavor': 'f'}], 60,
                                   name=str(number))['id']
                for number in range(5)]
        self.assertEqual(made, [
            one['id'] for one in self.leases.leases(limit=2)])
        self.assertEqual({'limit': 100, 'used': 5},
                         self.leases.quota()['leases'])

    def test_errors_have_status_and_code(self):
        with self.assertRaises(client.LeaseError) as caught:
            self.leases.get(services.NOBODY)
        self.assertEqual((404, 'secondary-lease.not-found'),
                         (caught.exception.status_code,
                          caught.exception.code))

    def test_response_of_another_service_is_an_error(self):
        intercepted = interceptor.RequestsInterceptor(
            lambda: lambda environ, start: (
                start('502 Bad Gateway', [('Content-Type', 'text/html')]),
                [b'<html>proxy</html>'])[1], host='other.example', port=80)
        with intercepted:
            other = client.Client(adapter.Adapter(
                session.Session(token_endpoint.Token(
                    'http://other.example', 't')), service_type='x'))
            with self.assertRaisesRegex(client.LeaseError,
                                        'Is this the lease service'):
                other.quota()

    def test_client_of_a_connection_of_openstacksdk(self):
        connection = openstack.connect(
            load_yaml_config=False, load_envvars=False,
            auth_type='admin_token',
            auth={'endpoint': 'http://lease.example', 'token': 'alice:p1'})
        self.addCleanup(connection.close)
        found = osc.make_client(types.SimpleNamespace(
            sdk_connection=connection))
        made = found.create([{'number': 1, 'flavor': 'f'}], 60)
        self.assertEqual([made], list(found.leases()))
