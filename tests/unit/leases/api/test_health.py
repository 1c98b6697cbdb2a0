# SPDX-License-Identifier: Apache-2.0

"""Tests of the state of engines for users and load balancers."""

import threading
import unittest
from unittest import mock

from oslo_db import exception as db_exception

from secondary_scheduler.leases.api import health
from secondary_scheduler.leases.api.db import schedules
from tests.unit.leases.api import services
from tests.unit.leases.api.services import NOW


class EngineTest(unittest.TestCase):

    def setUp(self):
        self.service = services.on(self)
        self.api = services.Api(self.service)

    def engine_state(self):
        """Return the state of engines, which is equal in all responses."""
        made = self.api.good('POST', '/leases', services.LEASE)
        shown = self.api.good('GET', f'/leases/{made["lease"]["id"]}')
        listed = self.api.good('GET', '/leases')
        self.assertEqual(made['engine'], shown['engine'])
        self.assertEqual(made['engine'], listed['engine'])
        return made['engine']

    def test_state_is_stale_before_the_first_pass(self):
        found = self.engine_state()
        self.assertEqual((None, True), (found['last_pass'], found['stale']))
        self.assertIn('leases=true', found['message'])

    def test_state_is_good_after_a_recent_pass(self):
        schedules.record_heartbeat(self.service.database, NOW - 10, '')
        self.assertEqual({'last_pass': '2027-01-31T07:59:50Z',
                          'stale': False, 'message': ''}, self.engine_state())

    def test_state_is_stale_long_after_the_last_pass(self):
        schedules.record_heartbeat(self.service.database, NOW - 3700, '')
        schedules.record_heartbeat(self.service.database, None,
                                   'Nova does not answer')
        found = self.engine_state()
        self.assertEqual(('2027-01-31T06:58:20Z', True),
                         (found['last_pass'], found['stale']))
        self.assertIn('1:01:40 ago', found['message'])
        self.assertIn('Nova does not answer', found['message'])

    def test_healthcheck_reads_the_database_once_a_second(self):
        checked = health.LeaseEngine(self.service.conf, {})
        with mock.patch.object(
                schedules, 'read_heartbeat_once', side_effect=[
                    db_exception.DBConnectionError('no'),
                    schedules.EngineHeartbeat(NOW, '')]) as read, \
                mock.patch.object(health, 'time', mock.Mock(
                    time=lambda: NOW)) as clock:
            clock.monotonic.return_value = 10.0
            for _ in range(3):
                found = checked.healthcheck(80)
                self.assertEqual('leases: the database does not answer',
                                 found.reason)
            clock.monotonic.return_value = 11.1
            self.assertEqual('leases: OK', checked.healthcheck(80).reason)
        self.assertEqual(2, read.call_count)

    def test_healthcheck_does_not_wait_for_a_silent_database(self):
        checked = health.LeaseEngine(self.service.conf, {})
        answers = threading.Event()
        self.addCleanup(answers.set)
        with mock.patch.object(
                schedules, 'read_heartbeat_once',
                side_effect=lambda database: answers.wait(30)) as read, \
                mock.patch.object(health, '_WAIT_S', 0.1):
            for _ in range(3):
                found = checked.healthcheck(80)
        self.assertIn('no answer within', found.details)
        self.assertEqual(1, read.call_count)

    def test_older_versions_lack_the_state_of_engines(self):
        found = self.api.good('GET', '/leases', headers={
            'OpenStack-API-Version': 'secondary-lease 1.3'})
        self.assertNotIn('engine', found)

    def test_healthcheck_is_healthy_without_engine_and_gives_details(self):
        checked = health.LeaseEngine(self.service.conf, {})
        checked._database = self.service.database
        schedules.record_heartbeat(self.service.database, NOW - 3700, '')
        with mock.patch.object(health, 'time', mock.Mock(
                time=lambda: NOW, monotonic=lambda: 0.0)):
            found = checked.healthcheck(80)
        self.assertTrue(found.available)
        self.assertIn('no engine', found.reason)
        self.assertIn('1:01:40 ago', found.details)
