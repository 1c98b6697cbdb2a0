# SPDX-License-Identifier: Apache-2.0

"""Collector plug-in."""

import os
import time
from unittest import mock

from secondary_scheduler.estimation import durations, learning
from secondary_scheduler.model import cluster
from secondary_scheduler.watcher import (
    cloud_errors,
    cluster_collector,
)
from tests.unit.watcher import fakes


class CollectorTest(fakes.WatcherTestCase):
    def setUp(self):
        super().setUp()
        for name in ('report_messages', 'policy_watch', 'leader', 'recorder',
                     'runner'):
            patcher = mock.patch.object(cluster_collector, name)
            setattr(self, name, patcher.start())
            self.addCleanup(patcher.stop)
        self.collector = cluster_collector.SecondaryCollector({}, mock.Mock())

    def test_no_thread_starts_before_the_fork(self):
        self.assertIs(self.collector,
                      cluster_collector.SecondaryCollector({}, mock.Mock()))
        self.report_messages.ReportListener.assert_not_called()
        self.policy_watch.PolicyWatch.assert_not_called()

    def test_threads_start_once_in_each_process(self):
        with mock.patch.object(self.collector.cluster_state, 'refresh'):
            self.collector.synchronize()
            self.collector.synchronize()
        self.report_messages.ReportListener.assert_called_once()
        for started in (self.policy_watch.PolicyWatch,
                        self.runner.LeaseRunner,
                        self.recorder.Recorder):
            started.return_value.start.assert_called_once_with()
        server = self.report_messages.ReportListener.call_args[0][2]
        self.assertIn(str(os.getpid()), server)
        with mock.patch.object(
            cluster_collector.os, 'getpid', return_value=-1
        ):
            self.collector.start()
        self.assertEqual(2, self.report_messages.ReportListener.call_count)

    def test_failed_refresh_is_no_error(self):
        with mock.patch.object(self.collector.cluster_state, 'refresh',
                               side_effect=cloud_errors.CloudError('away')):
            self.collector.synchronize()
        self.assertFalse(self.collector.cluster_data_model.stale)

    def test_failed_learning_is_no_error(self):
        observer = self.collector.cluster_state
        with mock.patch.object(observer, 'refresh'), mock.patch.object(
                observer.history, 'observed', side_effect=OSError('away')):
            self.collector.synchronize()
        self.assertEqual({}, observer.durations.lines)

    def test_durations_are_learned(self):
        observer = self.collector.cluster_state
        seen = [learning.Observed(durations.DurationInput('suspend', 'h1'),
                                  10.0 * n, 10.0 * n + 4) for n in range(9)]
        with mock.patch.object(observer, 'refresh'), mock.patch.object(
                observer.history, 'observed', return_value=seen):
            self.collector.synchronize()
        self.assertEqual(4.0, observer.durations.predict('suspend'))

    def test_migration_bandwidth_is_the_median_of_hosts(self):
        observer = self.collector.cluster_state
        for name, rate in (('h1', 50.0), ('h2', None), ('h3', 200.0),
                           ('h4', 80.0)):
            observer.book.accept(fakes.report(name, time=time.time(),
                                              migration_mb_s=rate))
        job = durations.DurationInput('migrate', 'h1', 'h2', 800,
                                      cluster.DirtyMemory(40.0, 200.0))
        with mock.patch.object(observer, 'refresh'):
            self.collector.synchronize()
        self.assertEqual(80.0, observer.durations.bandwidth_mb_s)
        # 800 MiB, half as much in each round, until 3.6 may be left.
        self.assertAlmostEqual(
            (800 - 3.125) / 80, observer.durations.predict_all([job])[0]
            - observer.durations.predict('migrate'))

    def test_plug_in_has_the_methods_of_watcher(self):
        self.assertEqual([], self.collector.notification_endpoints)
        period, = cluster_collector.SecondaryCollector.get_config_opts()
        self.assertEqual(('period', 30), (period.name, period.default))
        self.assertEqual([], self.collector.get_audit_scope_handler(
            []).scope)
