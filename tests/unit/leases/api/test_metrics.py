# SPDX-License-Identifier: Apache-2.0

"""Metrics of the lease service."""

import socket
import unittest
from unittest import mock
import urllib.request

from oslo_db import exception as db_exception

from secondary_scheduler.leases.api import metrics
from secondary_scheduler.leases.api.db import schedules
from tests.unit.leases.api import services


class MetricsTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.service = services.on(self)
        self.api = services.Api(self.service)
        self.requests = metrics.MeasuredRequests(self.api.application)
        self.api.application = self.requests

    def samples(self):
        return {(one.name, *one.labels.values()): one.value
                for family in metrics.metric_families(
                    self.service, self.requests) for one in family.samples}

    def test_requests_are_counted_by_operation_and_status(self):
        self.api.create()
        self.api.bad(404, 'GET', f'/leases/{services.NOBODY}')
        self.api.bad(401, 'GET', '/leases', user=None)
        self.api.ask('GET', '/nowhere')
        found = self.samples()
        name = 'secondary_lease_api_requests_total'
        self.assertEqual({
            (name, 'create_lease', '202'): 1, (name, 'show_lease', '404'): 1,
            (name, 'list_leases', '401'): 1, (name, 'other', '404'): 1},
            {key: value for key, value in found.items() if key[0] == name})
        self.assertEqual(1, found[
            'secondary_lease_api_request_seconds_count', 'create_lease'])

    def test_leases_quotes_and_engines_are_shown(self):
        self.api.create()
        self.api.good('POST', '/quotes', services.QUOTE)
        found = self.samples()
        self.assertEqual((1, 0, 1, 1, 1), tuple(found[
            f'secondary_lease_api_{key}', *labels] for key, *labels in (
                ('leases', 'new'), ('leases', 'active'),
                ('unanswered_quotes',), ('engine_stale',),
                ('database_answers',))))
        self.assertNotIn(
            ('secondary_lease_api_engine_last_pass_timestamp_seconds',),
            found)
        schedules.record_heartbeat(self.service.database, services.NOW, '')
        found = self.samples()
        self.assertEqual(0, found['secondary_lease_api_engine_stale',])
        self.assertEqual(services.NOW, found[
            'secondary_lease_api_engine_last_pass_timestamp_seconds',])

    def test_metrics_outlive_the_database(self):
        with mock.patch.object(schedules, 'read_heartbeat',
                               side_effect=db_exception.DBConnectionError(
                                   'away')):
            found = self.samples()
        self.assertEqual(0, found['secondary_lease_api_database_answers',])
        self.assertNotIn(('secondary_lease_api_unanswered_quotes',), found)

    def test_each_process_takes_a_port(self):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        service = services.on(self, metrics_port=port)
        for _ in range(2):
            metrics.start_metrics(service, self.requests)
        for each in (port, port + 1):
            with urllib.request.urlopen(
                    f'http://127.0.0.1:{each}/metrics', timeout=10) as answer:
                self.assertIn('secondary_lease_api_database_answers 1.0',
                              answer.read().decode())

    def test_address_of_another_machine_is_named(self):
        service = services.on(self, metrics_port=9930,
                              metrics_address='192.0.2.1')
        with self.assertLogs(level='ERROR') as logs:
            metrics.start_metrics(service, self.requests)
        self.assertIn('192.0.2.1', logs.output[0])
