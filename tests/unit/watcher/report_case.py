# SPDX-License-Identifier: Apache-2.0

"""Test case with a cloud of two hosts, reports and a leader."""

import datetime
import time
from unittest import mock

from oslo_utils import timeutils

from secondary_scheduler.watcher import (
    cluster_state,
    policy_watch,
    settings,
)
from tests.unit.watcher import fakes


class ReportCase(fakes.WatcherTestCase):
    def setUp(self):
        super().setUp()
        self.servers = [fakes.server(1, 'h1'), fakes.server(2, 'h2')]
        self.cloud = fakes.FakeCloud(
            self.servers, [fakes.host('h1'), fakes.host('h2')])
        self.now = 985.0
        self.seen = cluster_state.ClusterState(
            settings.CONF, lambda: self.cloud, self.history,
            clock=lambda: self.now)
        self.leading = mock.Mock(term=7)
        self.leading.am_i_leader.return_value = True
        self.watch = policy_watch.PolicyWatch(
            settings.CONF, self.seen, self.leading)
        self.now = 1000.0       # each host has had the time to report
        self.seq = 0

    def report(self, name, **changes):
        self.seq += 1
        servers = [s for s in self.servers if s.host == name]
        self.seen.accept(fakes.report(
            name, servers, time=time.time(), seq=self.seq, **changes))

    def tick(self, seconds=1.0):
        self.now += seconds
        return self.watch.tick()

    def later(self, seconds):
        self.addCleanup(timeutils.clear_time_override)
        timeutils.set_time_override(
            timeutils.utcnow() + datetime.timedelta(seconds=seconds))

    def preempts(self):
        return [a for a in self.audits()
                if a.parameters['request'] == 'preempt']
