# SPDX-License-Identifier: Apache-2.0

"""Metrics of a decision engine."""

import pathlib
import re
import socket
import time
from unittest import mock
import urllib.request

import secondary_scheduler
from secondary_scheduler.watcher import (
    decision_measures,
    metrics,
    settings,
)
from tests.unit.watcher import fakes, report_case

PAGE = pathlib.Path(__file__).parents[3] / 'doc/source/admin/monitoring.rst'


class DecisionMetricsTest(report_case.ReportCase):

    def setUp(self):
        super().setUp()
        self.measures = decision_measures.DecisionMeasures()

    def families(self, term=7):
        return list(metrics.metric_families(self.seen, self.measures, term))

    def samples(self):
        return {(one.name, *one.labels.values()): one.value
                for family in self.families() for one in family.samples}

    def test_all_metrics_are_documented(self):
        names = {family.name + ('_total' if family.type == 'counter' else '')
                 for family in self.families()}
        self.assertEqual(names, set(re.findall(
            r'^``(secondary_(?:decision|lease_engine)_\w+)``',
            PAGE.read_text(), re.M)))

    def test_state_of_hosts_is_counted(self):
        self.assertNotIn(('secondary_decision_hosts', 'unknown'),
                         self.samples())    # there is no snapshot yet
        self.seen.refresh()
        self.report('h1', violated=True, floored=True)
        self.seen.book.accept(fakes.report('h1', time=time.time() - 3600))
        found = self.samples()
        for key, value in (
                (('secondary_decision_leading',), 1),
                (('secondary_decision_hosts', 'open'), 1),
                (('secondary_decision_hosts', 'unknown'), 1),
                (('secondary_decision_violated_hosts',), 1),
                (('secondary_decision_floored_instances',), 1),
                (('secondary_decision_reports_total', 'accepted'), 1),
                (('secondary_decision_reports_total', 'stale'), 1)):
            self.assertEqual(value, found[key])

    def test_unreachable_hosts_and_unseen_servers_are_counted(self):
        names = [(f'secondary_decision_{name}',)
                 for name in ('unreachable_hosts', 'unseen_servers')]
        self.assertTrue(self.samples().keys().isdisjoint(names))
        self.seen.refresh()
        self.assertEqual([0, 0], [self.samples()[one] for one in names])
        self.servers.append(fakes.server(3, 'h2'))
        self.cloud.known[fakes.uid(3)] = self.servers[-1]
        self.seen.refresh()
        self.cloud.refused = {'h2'}
        self.seen.refresh()
        found = self.samples()
        self.assertEqual([1, 2], [found[one] for one in names])
        self.assertEqual(1, found['secondary_decision_hosts', 'unknown'] - 1)

    def test_decisions_operations_and_passes_are_counted(self):
        noted = self.measures
        noted.note_decision('preempt', 0.3, ['migrate', 'migrate'], 1)
        noted.note_decision('none', 0.02, [], 0)
        noted.note_breaker(2)
        noted.note_operation('suspend', 'succeeded', 3.0)
        noted.note_operation('suspend', 'failed', None)
        noted.note_pass(0.2, None, 0, 0)
        noted.note_pass(0.2, {'active': 2}, 3, 1)
        found = self.samples()
        for key, value in (
                (('secondary_decision_decisions_total', 'preempt'), 1),
                (('secondary_decision_decision_seconds_count',), 2),
                (('secondary_decision_decision_seconds_bucket', '0.25'), 1),
                (('secondary_decision_planned_operations_total', 'migrate'),
                 2),
                (('secondary_decision_unresolved_total',), 1),
                (('secondary_decision_breaker_stopped_operations_total',), 2),
                (('secondary_decision_ended_operations_total', 'suspend',
                  'failed'), 1),
                (('secondary_decision_operation_seconds_sum', 'suspend'),
                 3.0),
                (('secondary_lease_engine_passes_total', 'failed'), 1),
                (('secondary_lease_engine_leases', 'active'), 2),
                (('secondary_lease_engine_unknown_servers',), 3)):
            self.assertEqual(value, found[key])
        noted.forget_leases()
        self.assertNotIn(('secondary_lease_engine_leases', 'active'),
                         self.samples())

    def test_further_engine_takes_the_next_port(self):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        settings.CONF.set_override('metrics_port', port, 'secondary_watcher')
        self.addCleanup(settings.CONF.clear_override, 'metrics_port',
                        'secondary_watcher')
        for _ in range(2):
            metrics.start_metrics(settings.CONF, self.seen, self.measures,
                                  self.leading)
        for each in (port, port + 1):
            with urllib.request.urlopen(
                    f'http://127.0.0.1:{each}/metrics', timeout=10) as answer:
                self.assertIn('secondary_decision_leading 1.0',
                              answer.read().decode())

    def test_missing_library_is_named(self):
        settings.CONF.set_override('metrics_port', 9920, 'secondary_watcher')
        self.addCleanup(settings.CONF.clear_override, 'metrics_port',
                        'secondary_watcher')
        with mock.patch.dict('sys.modules', {
                'secondary_scheduler.exposition': None}), mock.patch.dict(
                    vars(secondary_scheduler)), self.assertLogs(
                        level='ERROR') as logs:
            vars(secondary_scheduler).pop('exposition', None)
            metrics.start_metrics(settings.CONF, self.seen, self.measures,
                                  self.leading)
        self.assertIn('secondary-scheduler[metrics]', logs.output[0])
