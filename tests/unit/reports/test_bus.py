"""The channel, over oslo.messaging's in-memory driver."""

import threading
import time
import unittest
from unittest import mock

from oslo_config import cfg
from oslo_config import fixture as config_fixture
import oslo_messaging as messaging

from secondary_scheduler.conf import policy
from secondary_scheduler.reports import bus
from tests.unit.model.test_holds import HOLDS
from tests.unit.reports.test_book import report


def make_conf(case, url='fake://'):
    fixture = config_fixture.Config(cfg.CONF)
    fixture.setUp()
    case.addCleanup(fixture.cleanUp)
    policy.register_opts(cfg.CONF)
    cfg.CONF([], default_config_files=[])
    fixture.config(transport_url=url, group='secondary_scheduler')
    return cfg.CONF


def wait_for(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError('nothing happened')
        time.sleep(0.01)


class BusCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = make_conf(self)

    def listen(self, **kwargs):
        got = []
        # The in-memory driver has one fanout queue for each server's name.
        listener = bus.ReportListener(self.conf, got.append, str(id(got)),
                                      **kwargs)
        listener.start()
        self.addCleanup(listener.stop)
        wait_for(lambda: listener.listening)
        return listener, got

    def sender(self, host='node1'):
        sender = bus.ReportSender(self.conf, host)
        self.addCleanup(sender.stop)
        return sender

    def serve(self, endpoint, host='node1'):
        server = bus.AgentServer(self.conf, host, endpoint)
        server.start()
        self.addCleanup(server.stop)
        wait_for(lambda: server.listening)
        return server


class TransportTest(unittest.TestCase):

    def test_abandoned_queues_expire(self):
        with mock.patch.object(messaging, 'get_rpc_transport') as get:
            bus.get_transport(make_conf(self, 'rabbit://a:b@host:1/vhost'))
        url = get.call_args.args[1]
        self.assertEqual('10', url.query['rabbit_transient_queues_ttl'])
        self.assertEqual('true', url.query['amqp_auto_delete'])

    def test_operators_may_say_otherwise(self):
        with mock.patch.object(messaging, 'get_rpc_transport') as get:
            bus.get_transport(make_conf(
                self, 'rabbit://a:b@host:1/?rabbit_transient_queues_ttl=99'))
        self.assertEqual('99', get.call_args.args[1].query[
            'rabbit_transient_queues_ttl'])

    def test_the_rabbit_driver_takes_the_settings(self):
        transport = bus.get_transport(
            make_conf(self, 'rabbit://a:b@127.0.0.1:1/'))
        settings = transport._driver.conf.oslo_messaging_rabbit
        self.assertEqual(10, settings.rabbit_transient_queues_ttl)
        self.assertTrue(settings.amqp_auto_delete)

    def test_the_services_own_broker_is_the_default(self):
        conf = make_conf(self, None)
        messaging.TransportURL.parse(conf, None)
        conf.set_override('transport_url', 'fake://own/')
        with mock.patch.object(messaging, 'get_rpc_transport') as get:
            bus.get_transport(conf)
        self.assertEqual('own', get.call_args.args[1].hosts[0].hostname)


class ReportsTest(BusCase):

    def test_each_listener_gets_each_report(self):
        _, one = self.listen()
        _, two = self.listen()
        self.assertTrue(self.sender().send(report()))
        wait_for(lambda: one and two)
        self.assertEqual([report()], one)
        self.assertEqual([report()], two)

    def test_what_is_no_report_is_counted_and_dropped(self):
        listener, got = self.listen()
        client = messaging.get_rpc_client(
            bus.get_transport(self.conf),
            messaging.Target(exchange=bus.EXCHANGE, topic=bus.TOPIC))
        for nonsense in ({'version': 99}, None, 'text', {'host': 'x'}):
            client.prepare(fanout=True).cast({}, 'report', report=nonsense)
        self.sender().send(report())
        wait_for(lambda: got)
        self.assertEqual({'received': 1, 'dropped': 4}, listener.counters)

    def test_what_is_held_for_leases(self):
        held = []
        listener, reports = self.listen(hold=held.append)
        self.listen()   # who wants to know nothing of that
        sender = bus.HoldSender(self.conf)
        self.addCleanup(sender.stop)
        self.assertTrue(sender.send(HOLDS))
        wait_for(lambda: held)
        self.assertEqual([HOLDS], held)
        self.assertEqual([], reports)
        self.assertEqual({'received': 0, 'dropped': 0}, listener.counters)

    def test_a_failing_callback_does_not_end_the_listener(self):
        got = []

        def callback(one):
            got.append(one)
            raise RuntimeError('boom')

        listener = bus.ReportListener(self.conf, callback, 'test')
        listener.start()
        self.addCleanup(listener.stop)
        wait_for(lambda: listener.listening)
        sender = self.sender()
        for seq in (1, 2):
            sender.send(report(seq=seq))
            wait_for(lambda seq=seq: len(got) == seq)

    def test_only_the_newest_report_waits(self):
        sender = self.sender()
        busy, go_on, sent = threading.Event(), threading.Event(), []

        def slow_cast(one):
            sent.append(one.seq)
            busy.set()
            go_on.wait(5)
            return True

        with mock.patch.object(sender, '_cast', side_effect=slow_cast):
            sender.send(report(seq=1))
            self.assertTrue(busy.wait(5))
            before = time.monotonic()
            for seq in range(2, 100):
                sender.send(report(seq=seq))
            self.assertLess(time.monotonic() - before, 1.0)
            go_on.set()
            wait_for(lambda: len(sent) == 2)
        self.assertEqual([1, 99], sent)

    def test_a_broker_that_is_away_is_ignored_and_told(self):
        sender = self.sender()
        with mock.patch.object(bus, 'get_transport',
                               side_effect=OSError('away')):
            self.assertTrue(sender.send(report(seq=1)))
            wait_for(lambda: sender.failed == 1)
            wait_for(lambda: not sender.send(report(seq=2)))
        wait_for(lambda: sender.send(report(seq=3)))
        self.assertGreaterEqual(sender.sent, 1)

    def test_nothing_is_sent_after_stop(self):
        sender = self.sender()
        sender.send(report())
        sender.stop()
        self.assertFalse(sender.send(report(seq=2)))


class ListenerStartTest(BusCase):

    def test_start_neither_blocks_nor_raises_and_is_retried(self):
        tries = []

        def connect(conf):
            tries.append(1)
            if len(tries) < 3:
                raise OSError('away')
            return messaging.get_rpc_transport(conf, 'fake://')

        with mock.patch.object(bus, 'get_transport', side_effect=connect), \
                mock.patch.object(bus, '_LONGEST_PAUSE', 0.01):
            listener = bus.ReportListener(self.conf, print, 'test')
            listener.start()
            self.addCleanup(listener.stop)
            wait_for(lambda: listener.listening)
        self.assertEqual(3, len(tries))

    def test_stop_while_it_cannot_connect(self):
        with mock.patch.object(bus, 'get_transport',
                               side_effect=OSError('away')):
            listener = bus.ReportListener(self.conf, print, 'test')
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
            listener = bus.ReportListener(self.conf, print, 'test')
            listener.start()
            self.assertTrue(connecting.wait(5))
            listener.stop()
            go_on.set()
            wait_for(lambda: server.wait.called)
        self.assertFalse(listener.listening)

    def test_a_server_that_does_not_stop_in_order(self):
        server = mock.Mock()
        server.stop.side_effect = RuntimeError('boom')
        bus._close(server)
        server.stop.assert_called_once_with()


class DescribeTest(BusCase):

    def test_an_agent_learns_who_it_is(self):
        self.listen()   # a scheduler: it must not be asked
        self.listen(describe=lambda host: {'aggregates': [host + '-agg'],
                                           'total': {}})
        for _ in range(4):
            self.assertEqual({'aggregates': ['node1-agg'], 'total': {}},
                             self.sender().describe_host(timeout=5))

    def test_no_answer_is_none(self):
        self.assertIsNone(self.sender().describe_host(timeout=0.05))

    def test_an_answer_that_fails_is_none(self):
        self.listen(describe=lambda host: {}['nothing'])
        self.assertIsNone(self.sender().describe_host(timeout=5))


class Endpoint:

    def __init__(self):
        self.hints = []

    def hand_over(self, uuid, migrates):
        if uuid == 'foreign':
            raise ValueError('not a secondary')
        return {'uuid': uuid, 'migrates': migrates}

    def thaw_hint(self, uuid):
        self.hints.append(uuid)

    def get_status(self):
        return {'priority': 'effective'}

    def destroy(self, uuid):
        self.hints.append('destroyed')


class AgentTest(BusCase):

    def setUp(self):
        super().setUp()
        self.endpoint = Endpoint()
        self.serve(self.endpoint)
        self.client = bus.AgentClient(self.conf)

    def test_calls(self):
        for migrates in (False, True):
            self.assertEqual(
                {'uuid': 'u1', 'migrates': migrates},
                self.client.hand_over('node1', 'u1', migrates=migrates))
        self.assertEqual({'priority': 'effective'},
                         self.client.get_status('node1'))
        self.client.thaw_hint('node1', 'u2')
        wait_for(lambda: self.endpoint.hints == ['u2'])

    def test_refusal_silence_and_nonsense(self):
        with self.assertRaisesRegex(bus.AgentUnreachable, 'node1'):
            self.client.hand_over('node1', 'foreign')
        with self.assertRaises(bus.AgentUnreachable):
            self.client.hand_over('node9', 'u1', timeout=0.05)
        with mock.patch.object(self.client._client, 'prepare') as prepare:
            prepare.return_value.call.return_value = None
            with self.assertRaisesRegex(bus.AgentUnreachable, 'nonsense'):
                self.client.get_status('node1')

    def test_nothing_else_can_be_reached(self):
        with self.assertRaises(bus.AgentUnreachable):
            self.client._call('node1', 'destroy', 5, uuid='u1')
        self.assertEqual([], self.endpoint.hints)

    def test_a_hint_never_raises(self):
        with mock.patch.object(self.client._client, 'prepare',
                               side_effect=OSError('away')):
            self.client.thaw_hint('node1', 'u1')
