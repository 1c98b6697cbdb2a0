# SPDX-License-Identifier: Apache-2.0

"""Passes of the lease engine in the leader."""

import unittest
from unittest import mock

from oslo_db import exception as db_exception

from secondary_scheduler.leases.engine.holds import ExpectedClaims
from secondary_scheduler.leases.engine.values import CloudDown
from secondary_scheduler.model import holds, vocabulary
from secondary_scheduler.watcher import settings
from secondary_scheduler.watcher.leases import runner
from tests.unit.watcher.leases import base


class LeaseRunnerTest(base.LeaseTestCase):

    def setUp(self):
        super().setUp()
        seen = mock.Mock()
        seen.history = self.history
        self.coordination = mock.Mock(term=7)
        self.coordination.am_i_leader.return_value = True
        self.runner = runner.LeaseRunner(
            settings.CONF, seen, self.coordination)
        self.seen = seen
        self.engine, self.lease_cloud = mock.Mock(
            holds={}, expected={}), mock.Mock()
        self.patch(self.runner, '_sender', mock.Mock())
        self.patch(self.runner, '_build',
                   lambda: (self.engine, self.lease_cloud))

    def test_leader_runs_leases_of_audits_that_enable_them(self):
        self.audit(801)
        self.runner.tick()
        self.engine.run_pass.assert_called_once_with(7)
        (switches, term), _ = self.lease_cloud.lead.call_args
        self.assertEqual(([self.switch.uuid], 7),
                         ([one.uuid for one in switches], term))

    def test_holds_are_sent_and_their_end_once(self):
        hold = holds.Hold({}, ())
        for held in ({}, {'h1': hold}, {'h1': hold}, {}, {}):
            self.engine.holds = held
            self.runner.tick()
        said = [call.args[0] for call
                in self.runner._sender.send.call_args_list]
        self.assertEqual([{'h1': hold}, {'h1': hold}, {}],
                         [one.hosts for one in said])
        self.assertEqual([1, 2, 3], [one.seq for one in said])

    def test_decisions_know_expected_claims_and_guaranteed_leases(self):
        self.engine.expected = {'h1': ExpectedClaims(
            {vocabulary.VCPU: 3}, frozenset())}
        self.engine.guaranteed_leases.return_value = frozenset({'p:l'})
        self.runner.tick()
        self.coordination.am_i_leader.return_value = False
        self.runner.tick()
        first, second = [call.args[0] for call
                         in self.seen.note_schedule.call_args_list]
        self.assertEqual(({'h1': {vocabulary.VCPU: 3}}, {'p:l'}),
                         (first.expected_claims, first.guaranteed))
        self.assertIsNone(second)   # the schedule is another engine's now

    def test_other_engines_run_no_leases(self):
        self.coordination.am_i_leader.return_value = False
        self.runner.tick()
        self.engine.run_pass.assert_not_called()

    def test_state_is_dropped_when_the_audit_is_suspended(self):
        self.runner.tick()
        self.switch.state = 'SUSPENDED'
        self.switch.save()
        self.runner.tick()
        self.engine.run_pass.assert_called_once_with(7)
        self.engine.drop_state.assert_called_once_with()

    def test_trouble_is_logged_once(self):
        for trouble in (CloudDown('no answer'), db_exception.DBConnectionError(
                'no connection\n(Background on this error at ...)')):
            self.engine.run_pass.side_effect = trouble
            with self.subTest(str(trouble)), self.assertLogs(
                    runner.__name__, 'WARNING') as logs:
                self.runner.tick()
                self.runner.tick()
                line, = logs.output
                self.assertNotIn('\n', line)


if __name__ == '__main__':
    unittest.main()
