# SPDX-License-Identifier: Apache-2.0

"""Tests of waiting for leases, and of warnings beside results."""

import json
import time
import types
from unittest import mock

from osc_lib import exceptions

from secondary_scheduler.leases.api.db import schedules
from secondary_scheduler.leases.client import client, waiting
from secondary_scheduler.leases.client.v1 import lease as commands
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.api import services
from tests.unit.leases.client.client_case import NODES, ClientCase


class WaitingTest(ClientCase):

    def setUp(self):
        super().setUp()
        self.steps = []
        patcher = mock.patch.object(waiting, 'time', types.SimpleNamespace(
            sleep=self.sleep, monotonic=time.monotonic))
        patcher.start()
        self.addCleanup(patcher.stop)

    def sleep(self, seconds):
        """Do the next step of the scheduler while a command waits."""
        self.assertTrue(self.steps, 'the command waits without end')
        self.steps.pop(0)()

    def enter(self, state, text='', **values):
        lease, = self.leases.leases()
        self.service.store._clock.now += 1
        self.service.store.change(lease['id'], str(state), {
            'state': state, **values}, text=text)

    def wait(self, *arguments):
        return self.execute(commands.CreateLease, '-f', 'json', '--duration',
                            '60', *NODES, '--wait', *arguments, 'job')

    def test_wait_ends_when_all_servers_run(self):
        self.steps = [
            lambda: self.enter(LeaseState.PENDING),
            lambda: self.enter(LeaseState.QUEUED, 'there is no room'),
            lambda: self.enter(LeaseState.ACTIVE)]
        reported, _, shown = self.wait().partition('{')
        self.assertEqual([
            '2026-01-01T00:00:00Z new        created',
            '2026-01-01T00:00:01Z pending',
            '2026-01-01T00:00:02Z queued     there is no room',
            '2026-01-01T00:00:03Z active'], reported.splitlines())
        self.assertEqual('active', json.loads('{' + shown)['state'])
        self.assertIn('active', self.execute(commands.WaitForLease, 'job'))

    def test_wait_goes_on_while_the_state_is_unknown(self):
        self.steps = [
            lambda: self.enter(LeaseState.UNKNOWN, 'its cell is silent'),
            lambda: None,
            lambda: self.enter(LeaseState.ACTIVE)]
        reported, _, shown = self.wait().partition('{')
        self.assertEqual([], self.steps)
        self.assertIn('unknown    its cell is silent', reported)
        self.assertEqual('active', json.loads('{' + shown)['state'])

    def test_wait_ends_with_reason_of_failure(self):
        for state in (LeaseState.REJECTED, LeaseState.FAILED,
                      LeaseState.CANCELLED):
            self.steps = [lambda state=state: self.enter(
                state, reason='Nova has no such image')]
            with self.subTest(state), self.assertRaisesRegex(
                    exceptions.CommandError,
                    f'Lease job is {state}: Nova has no such image'):
                self.wait()
            self.execute(commands.DeleteLease, 'job')

    def test_wait_ends_at_the_timeout(self):
        with self.assertRaisesRegex(exceptions.CommandError,
                                    'After 0 s lease .* is new; it goes on'):
            self.wait('--timeout', '0')

    def test_silent_service_is_not_taken_for_the_state_unknown(self):
        self.execute(commands.CreateLease, '--duration', '60', *NODES, 'job')
        lease, = self.leases.leases()
        self.leases.get = mock.Mock(side_effect=[
            lease, client.LeaseError(503, 'x', 'try later')])
        with self.assertRaisesRegex(
                exceptions.CommandError,
                'After 0 s the lease service does not show lease'):
            self.execute(commands.WaitForLease, '--timeout', '0', 'job')

    def test_late_event_is_reported_once(self):
        def late():
            self.service.store._clock.now -= 7
            self.enter(LeaseState.QUEUED, 'by a slow clock')
        self.steps = [late, lambda: self.enter(LeaseState.ACTIVE)]
        self.assertEqual(1, self.wait().count('by a slow clock'))

    def test_wait_survives_an_unavailable_service(self):
        get = self.leases.get
        self.leases.get = mock.Mock(side_effect=[
            client.LeaseError(503, 'x', 'try later'),
            client.LeaseError(503, 'x', 'try later'), get])
        self.steps = [lambda: None, lambda: (
            setattr(self.leases, 'get', get), self.enter(LeaseState.DONE))]
        reported = self.wait()
        self.assertEqual(1, reported.count('does not answer: try later'))
        self.assertIn('"done"', reported)
        with self.assertRaisesRegex(client.LeaseError, 'no lease'):
            self.execute(commands.WaitForLease, services.NOBODY)

    def test_commands_warn_if_no_engine_processes_leases(self):
        self.service.store._clock.now += 1000
        for command, arguments in (
                (commands.CreateLease, ('--duration', '60', *NODES, 'job')),
                (commands.ShowLease, ('job',)), (commands.ListLease, ())):
            self.assertEqual(1, self.execute(command, *arguments).count(
                'Warning: Leases were last processed 0:16:'))
        self.steps = [lambda: self.enter(LeaseState.ACTIVE)]
        self.assertIn('an engine processes them',
                      self.execute(commands.WaitForLease, 'job'))
        schedules.record_heartbeat(self.service.database,
                                   self.service.store.now, '')
        self.assertNotIn('Warning', self.execute(commands.ListLease))
