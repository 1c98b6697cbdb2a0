# SPDX-License-Identifier: Apache-2.0

"""Connections to the cloud."""

from unittest import mock

from secondary_scheduler.watcher import (
    cloud,
    cloud_connections,
)
from tests.unit.watcher import fakes


class ConnectionTest(fakes.TestCase):

    def test_interface_option_is_read_in_every_spelling(self):
        # DevStack sets interface, Kolla's watcher.conf has no [nova] at all.
        for options, expected in (
                ({'interface': 'public'}, ['public']),
                ({'interface': 'internalURL'}, ['internal']),
                ({'valid_interfaces': ['internal', 'public']},
                 ['internal', 'public']),
                ({'valid_interfaces': ['internal'], 'interface': 'public'},
                 ['internal']),
                ({}, None)):
            for name in ('interface', 'valid_interfaces'):
                conf = cloud_connections.CONF
                conf.set_override(name, options.get(name), 'nova')
                self.addCleanup(conf.clear_override, name, 'nova')
            with self.subTest(options), mock.patch.object(
                    cloud_connections, 'loading'), mock.patch.object(
                    cloud_connections.connection, 'Connection') as connection:
                cloud_connections._connect_by_trust.cache_clear()
                self.addCleanup(cloud_connections._connect_by_trust.cache_clear)
                cloud_connections._connect_by_trust(None)
                self.assertEqual(expected,
                                 connection.call_args.kwargs['interface'])

    def test_connection_uses_the_clients_auth_group(self):
        with mock.patch.object(
                cloud_connections.clients, 'OpenStackClients'), \
                mock.patch.object(cloud_connections.clients,
                                  'get_sdk_connection') as made:
            self.assertIsInstance(cloud_connections._connect(), cloud.Cloud)
        self.assertEqual('watcher_clients_auth', made.call_args[0][0])
