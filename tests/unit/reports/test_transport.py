# SPDX-License-Identifier: Apache-2.0

"""RPC transport, and servers that start in the background."""

import threading
import unittest
from unittest import mock

import oslo_messaging as messaging

from secondary_scheduler.reports import report_messages, transport
from tests.unit.reports.broker import BrokerCase, make_conf, wait_for


class TransportTest(unittest.TestCase):

    def test_abandoned_queues_expire(self):
        with mock.patch.object(messaging, 'get_rpc_transport') as get:
            transport.get_transport(make_conf(self, 'rabbit://a:b@host:1/vhost'))
        url = get.call_args.args[1]
        self.assertEqual('10', url.query['rabbit_transient_queues_ttl'])
        self.assertEqual('true', url.query['amqp_auto_delete'])

    def test_operators_can_override_the_expiry(self):
        with mock.patch.object(messaging, 'get_rpc_transport') as get:
            transport.get_transport(make_conf(
                self, 'rabbit://a:b@host:1/?rabbit_transient_queues_ttl=99'))
        self.assertEqual('99', get.call_args.args[1].query[
            'rabbit_transient_queues_ttl'])

    def test_rabbit_driver_takes_the_settings(self):
        made = transport.get_transport(
            make_conf(self, 'rabbit://a:b@127.0.0.1:1/'))
        settings = made._driver.conf.oslo_messaging_rabbit
        self.assertEqual(10, settings.rabbit_transient_queues_ttl)
        self.assertTrue(settings.amqp_auto_delete)

    def test_broker_of_the_service_is_the_default(self):
        conf = make_conf(self, None)
        messaging.TransportURL.parse(conf, None)
        conf.set_override('transport_url', 'fake://own/')
        with mock.patch.object(messaging, 'get_rpc_transport') as get:
            transport.get_transport(conf)
        self.assertEqual('own', get.call_args.args[1].hosts[0].hostname)


class ListenerStartTest(BrokerCase):

    def test_start_neither_blocks_nor_raises_and_is_retried(self):
        tries = []

        def connect(conf):
            tries.append(1)
            if len(tries) < 3:
                raise OSError('away')
            return messaging.get_rpc_transport(conf, 'fake://')

        with mock.patch.object(
                transport, 'get_transport', side_effect=connect), \
                mock.patch.object(transport, '_LONGEST_PAUSE', 0.01):
            listener = report_messages.ReportListener(self.conf, print, 'test')
            listener.start()
            self.addCleanup(listener.stop)
            wait_for(lambda: listener.listening)
        self.assertEqual(3, len(tries))

    def test_stop_while_it_cannot_connect(self):
        with mock.patch.object(transport, 'get_transport',
                               side_effect=OSError('away')):
            listener = report_messages.ReportListener(self.conf, print, 'test')
            listener.start()
            listener.stop()
            wait_for(lambda: not any(
                t.name.startswith('secondary-secondary')
                for t in threading.enumerate()))
        self.assertFalse(listener.listening)

    def test_stop_while_it_connects(self):
        connecting, go_on = threading.Event(), threading.Event()
        server = mock.Mock()

        def connect(*args):
            connecting.set()
            go_on.wait(5)
            return server

        with mock.patch.object(messaging, 'get_rpc_server',
                               side_effect=connect):
            listener = report_messages.ReportListener(self.conf, print, 'test')
            listener.start()
            self.assertTrue(connecting.wait(5))
            listener.stop()
            go_on.set()
            wait_for(lambda: server.wait.called)
        self.assertFalse(listener.listening)

    def test_exception_of_a_stopping_server_is_logged(self):
        server = mock.Mock()
        server.stop.side_effect = RuntimeError('boom')
        transport._close(server)
        server.stop.assert_called_once_with()
