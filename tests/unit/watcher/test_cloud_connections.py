# SPDX-License-Identifier: Apache-2.0

"""Connections to the cloud."""

from unittest import mock

from keystoneauth1 import exceptions as ks_exceptions
from nova import context as nova_context
from openstack import exceptions as sdk_exceptions

from secondary_scheduler.watcher import (
    cloud,
    cloud_connections,
    cloud_errors,
)
from tests.unit.watcher import fakes


class ConnectionTest(fakes.TestCase):

    def setUp(self):
        self.own = mock.Mock()

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
                cloud_connections._connect_by_trust(None, 'lease')
                self.assertEqual(expected,
                                 connection.call_args.kwargs['interface'])

    def act(self, *effects):
        """Act with a trust; the action has an error as its effect."""
        owner = mock.Mock(open_session=mock.Mock(side_effect=effects[:1]))
        made = mock.Mock(return_value=owner)
        with mock.patch.object(cloud_connections, '_connect_by_trust', made), \
                mock.patch.object(cloud_connections, '_connect',
                                  return_value=self.own):
            with cloud_connections.act_as_owner('trust', 'lease') as found, \
                    cloud_errors.translated_errors():
                self.assertIs(owner, found)
                if effects[1:]:
                    raise effects[1]
        made.assert_called_once_with('trust', 'lease')
        return made

    def test_trust_that_keystone_refuses_is_a_lost_right(self):
        for lost in (ks_exceptions.NotFound(), ks_exceptions.Unauthorized(),
                     ks_exceptions.Forbidden()):
            for effects in ((lost,), (None, lost)):
                with self.subTest(effects), self.assertRaises(
                        cloud_errors.Untrusted):
                    self.act(*effects)
        self.act(None)

    def test_wrong_password_of_watcher_is_no_lost_right(self):
        self.own.open_session.side_effect = cloud_errors.CloudError('401')
        for effects in ((ks_exceptions.Unauthorized(),),
                        (None, ks_exceptions.NotFound())):
            with self.subTest(effects), self.assertRaisesRegex(
                    cloud_errors.CloudError, 'own account.*401') as caught:
                self.act(*effects)
            self.assertNotIsInstance(caught.exception, cloud_errors.Untrusted)

    def test_each_lease_has_a_token_of_its_own(self):
        cloud_connections._connect_by_trust.cache_clear()
        self.addCleanup(cloud_connections._connect_by_trust.cache_clear)
        with mock.patch.object(cloud_connections, 'loading'), \
                mock.patch.object(cloud_connections, 'connection'):
            first, same, other = (
                cloud_connections._connect_by_trust('trust', lease)
                for lease in ('one', 'one', 'other'))
        self.assertIs(first, same)
        self.assertIsNot(first, other)

    def test_other_errors_are_no_lost_right(self):
        # Those of Nova are the SDK's, and Keystone may be away.
        for error in (sdk_exceptions.NotFoundException('no image'),
                      sdk_exceptions.ForbiddenException('quota'),
                      ks_exceptions.ServiceUnavailable(),
                      ks_exceptions.ConnectFailure()):
            with self.subTest(error), self.assertRaises(
                    cloud_errors.CloudError) as caught:
                self.act(None, error)
            self.assertNotIsInstance(caught.exception, cloud_errors.Untrusted)

    def test_each_connection_has_its_own_timeout(self):
        conf = cloud_connections.CONF
        conf.set_override('request_timeout', 7.0, 'secondary_watcher')
        self.addCleanup(conf.clear_override, 'request_timeout',
                        'secondary_watcher')
        patience = cloud_connections._PATIENCE_S
        self.assertGreater(patience, nova_context.CELL_TIMEOUT)
        with mock.patch.object(
                cloud_connections.clients, 'OpenStackClients',
                side_effect=lambda: mock.Mock(session=mock.Mock())), \
                mock.patch.object(cloud_connections.clients,
                                  'get_sdk_connection') as made:
            for connect in (cloud_connections.shared,
                            cloud_connections.patient):
                with mock.patch.object(connect, '_held', None):
                    connect()
        short, long = (one.kwargs['session'] for one in made.call_args_list)
        self.assertEqual((7.0, patience), (short.timeout, long.timeout))

    def test_connection_of_an_owner_waits_for_cells(self):
        with mock.patch.object(cloud_connections, 'loading') as loading, \
                mock.patch.object(cloud_connections.connection, 'Connection'):
            cloud_connections._connect_by_trust.cache_clear()
            self.addCleanup(cloud_connections._connect_by_trust.cache_clear)
            cloud_connections._connect_by_trust('trust', 'lease')
        self.assertEqual(
            cloud_connections._PATIENCE_S,
            loading.load_session_from_conf_options.return_value.timeout)

    def test_connection_uses_the_clients_auth_group(self):
        with mock.patch.object(
                cloud_connections.clients, 'OpenStackClients'), \
                mock.patch.object(cloud_connections.clients,
                                  'get_sdk_connection') as made:
            self.assertIsInstance(cloud_connections._connect(), cloud.Cloud)
        self.assertEqual('watcher_clients_auth', made.call_args[0][0])
