# SPDX-License-Identifier: Apache-2.0

import dataclasses
import itertools
import json
import threading
import time
from unittest import mock

from secondary_scheduler.model.reports import InstanceReport
from tests.unit.agent import fakes
from tests.unit.agent.base import AgentTestCase


class ReportLoopTest(AgentTestCase):
    def test_news_is_reported_at_once(self):
        agent = self.make()
        sender, told = mock.Mock(), threading.Event()
        reports = []

        def send(report):
            reports.append(report)
            told.set()

        sender.send.side_effect = send
        thread = threading.Thread(target=agent.report_loop.send_reports,
                                  args=(sender,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(agent.stop)
        self.assertTrue(told.wait(5))
        told.clear()
        self.host.guest(0)
        agent.parts.domains.refresh()
        self.assertTrue(told.wait(3))
        self.assertEqual(1, len(reports[-1].instances))

    def test_long_report_is_repeated_later(self):
        agent = self.make()
        for guests, seconds in ((0, 5.0), (40, 7.5)):
            report = dataclasses.replace(
                agent.reporter.build_report(), instances=(
                    InstanceReport(fakes.UUIDS[0], 5, 1.0, 2.0),) * guests)
            self.assertEqual(seconds, agent.report_loop.pause_after(report))
        self.conf.set_override('report_stale_after', 60.0,
                               'secondary_scheduler')
        self.assertEqual(len(json.dumps(report.to_dict())) / 500,
                         agent.report_loop.pause_after(report))

    def test_loop_continues_after_an_error(self):
        agent, sender, sent = self.make(), mock.Mock(), threading.Event()
        sender.send.side_effect = lambda report: sent.set()
        build = mock.Mock(side_effect=[ValueError('a bad option'),
                                       agent.reporter.build_report()])
        with mock.patch.object(agent.reporter, 'build_report', build), \
                mock.patch.object(agent.reporter, 'news', object):
            thread = threading.Thread(target=agent.report_loop.run,
                                      args=(sender,))
            thread.start()
            self.assertTrue(sent.wait(5))
            agent.stop()
            thread.join()

    def send_for(self, seconds, news):
        """Return the times of reports with continuous news."""
        agent, sender, sent = self.make(), mock.Mock(), []
        sender.send.side_effect = lambda report: sent.append(
            time.monotonic())
        thread = threading.Thread(target=agent.report_loop.send_reports,
                                  args=(sender,))
        report = agent.reporter.build_report()
        with mock.patch.multiple(agent.reporter, news=news,
                                 build_report=lambda: report):
            thread.start()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                agent.parts.news.set()
                time.sleep(0.01)
            agent.stop()
            thread.join()
        return sent

    def test_changing_news_is_sent_at_most_five_times_a_second(self):
        sent = self.send_for(1.1, object)
        gaps = [after - before for before, after
                in itertools.pairwise(sent)]
        self.assertGreaterEqual(len(sent), 2)
        self.assertGreaterEqual(min(gaps), 0.19)

    def test_without_news_only_the_heartbeat_is_sent(self):
        self.conf.set_override('report_interval', 0.5, 'secondary_scheduler')
        sent = self.send_for(1.2, lambda: 'the same')
        self.assertIn(len(sent), (2, 3))
