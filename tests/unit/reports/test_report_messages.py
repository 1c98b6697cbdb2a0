# SPDX-License-Identifier: Apache-2.0

"""Reports of agents, and the query of host details."""

import threading
import time
from unittest import mock

import oslo_messaging as messaging

from secondary_scheduler.reports import report_messages, transport
from tests.unit.reports.broker import BrokerCase, wait_for
from tests.unit.reports.test_book import report


class ReportsTest(BrokerCase):

    def test_each_listener_gets_each_report(self):
        _, one = self.listen()
        _, two = self.listen()
        self.assertTrue(self.sender().send(report()))
        wait_for(lambda: one and two)
        self.assertEqual([report()], one)
        self.assertEqual([report()], two)

    def test_unreadable_reports_are_counted_and_dropped(self):
        listener, got = self.listen()
        client = messaging.get_rpc_client(
            transport.get_transport(self.conf),
            messaging.Target(exchange=transport.EXCHANGE,
                             topic=report_messages.TOPIC))
        for nonsense in ({'version': 99}, None, 'text', {'host': 'x'}):
            client.prepare(fanout=True).cast({}, 'report', report=nonsense)
        self.sender().send(report())
        wait_for(lambda: got)
        self.assertEqual({'received': 1, 'dropped': 4}, listener.counters)

    def test_failing_callback_does_not_stop_the_listener(self):
        got = []

        def callback(one):
            got.append(one)
            raise RuntimeError('boom')

        listener = report_messages.ReportListener(self.conf, callback, 'test')
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

    def test_missing_broker_is_reported_by_the_next_send(self):
        sender = self.sender()
        with mock.patch.object(transport, 'get_transport',
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


class DescribeTest(BrokerCase):

    def test_agent_gets_aggregates_and_totals_of_its_host(self):
        self.listen()   # a scheduler, which must not be queried
        self.listen(describe=lambda host: {'aggregates': [host + '-agg'],
                                           'total': {}})
        for _ in range(4):
            self.assertEqual({'aggregates': ['node1-agg'], 'total': {}},
                             self.sender().describe_host(timeout=5))

    def test_no_answer_is_none(self):
        self.assertIsNone(self.sender().describe_host(timeout=0.05))

    def test_failed_description_is_none(self):
        self.listen(describe=lambda host: {}['nothing'])
        self.assertIsNone(self.sender().describe_host(timeout=5))
