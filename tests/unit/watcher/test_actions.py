# SPDX-License-Identifier: Apache-2.0

"""Actions that preempt, return and migrate."""

from unittest import mock

from watcher.common import exception

from secondary_scheduler.watcher import (
    actions,
    cloud_errors,
    cloud_snapshot,
    poller,
    settings,
)
from tests.unit.watcher.action_case import ONE, ActionCase


class OperationsTest(ActionCase):
    def test_suspend_marks_first(self):
        server = self.run_action(actions.Suspend)
        self.assertEqual('SUSPENDED', server.status)
        self.assertRegex(server.metadata[cloud_snapshot.PREEMPTED],
                         r'^preempt@\d{4}-.*Z$')
        self.assertEqual(['set', 'suspend'],
                         [c[0] for c in self.cloud.calls])
        self.agents.hand_over.assert_called_once_with('h1', ONE, 1.0,
                                                      migrates=False)

    def test_paused_instance_is_unpaused_and_suspended(self):
        self.cloud.change(1, status='PAUSED')
        self.assertEqual('SUSPENDED', self.run_action(actions.Suspend).status)
        self.assertEqual(['set', 'unpause', 'suspend'],
                         [call[0] for call in self.cloud.calls])

    def test_suspend_fails_if_the_disk_is_full(self):
        for free, fits in ((512, False), (563, False), (564, True),
                           (None, True), ('nonsense', True)):
            self.cloud.change(1, status='ACTIVE')
            self.cloud.calls.clear()
            self.agents.thaw_hint.reset_mock()
            self.agents.hand_over.return_value = {
                'ok': True, 'save_free_mb': free}
            made = self.make(actions.Suspend)
            made.pre_condition()
            if fits:
                self.assertTrue(made.execute())
                continue
            with self.assertRaises(exception.ActionExecutionFailure) as one:
                made.execute()
            self.assertIn(f'512 MiB do not fit on the disk of h1, where '
                          f'{free} are free', str(one.exception))
            self.assertEqual([], self.cloud.calls)
            self.agents.thaw_hint.assert_called_once_with('h1', ONE)
        # A stop needs no disk.
        self.cloud.change(1, status='ACTIVE')
        self.agents.hand_over.return_value = {'ok': True, 'save_free_mb': 0}
        self.assertEqual('SHUTOFF', self.run_action(actions.Stop).status)

    def test_resume_removes_the_mark_last(self):
        self.cloud.change(1, status='SUSPENDED',
                          metadata={cloud_snapshot.PREEMPTED: 'x'})
        server = self.run_action(actions.Resume, target='h1')
        self.assertEqual(('ACTIVE', {}), (server.status, server.metadata))
        self.assertEqual(['resume', 'delete'],
                         [c[0] for c in self.cloud.calls])
        self.agents.hand_over.assert_not_called()
        self.agents.thaw_hint.assert_called_once_with('h1', ONE)

    def test_migration_notes_the_origin_and_return_removes_it(self):
        server = self.run_action(actions.Migrate, target='h2')
        self.assertEqual(('h2', {cloud_snapshot.ORIGIN: 'h1'}),
                         (server.host, server.metadata))
        server = self.run_action(actions.Migrate, source='h2', target='h3')
        self.assertEqual({cloud_snapshot.ORIGIN: 'h1'}, server.metadata)
        server = self.run_action(actions.Migrate, source='h3', target='h1')
        self.assertEqual({}, server.metadata)

    def test_stop_start_shelve(self):
        for cls, status in ((actions.Stop, 'SHUTOFF'),
                            (actions.Start, 'ACTIVE'),
                            (actions.Shelve, 'SHELVED_OFFLOADED')):
            self.assertEqual(status, self.run_action(cls).status)

    def test_unshelve_requests_the_host_of_an_offloaded_instance_only(self):
        for status, host, target, requested in (
                ('SHELVED_OFFLOADED', None, 'h2', 'h2'),
                ('SHELVED', 'h1', 'h1', None)):
            self.cloud.change(1, status=status, host=host)
            self.cloud.calls.clear()
            server = self.run_action(actions.Unshelve, target=target)
            self.assertEqual(('ACTIVE', target), (server.status, server.host))
            self.assertIn(('unshelve', ONE, requested), self.cloud.calls)

    def test_shelve_offloads_where_nova_does_not(self):
        self.cloud.during['shelve'] = lambda: self.cloud.change(
            1, status='SHELVED')
        self.assertEqual('SHELVED_OFFLOADED',
                         self.run_action(actions.Shelve).status)

    def test_shelved_instance_that_is_not_offloaded_keeps_its_mark(self):
        self.cloud.during['shelve'] = lambda: self.cloud.change(
            1, status='SHELVED')
        self.cloud.during['shelve_offload'] = lambda: None
        self.assert_fails(actions.Shelve, 'SHELVED on h1')
        self.assertIn(cloud_snapshot.PREEMPTED,
                      self.cloud.known[ONE].metadata)


class FailureTest(ActionCase):
    def conflict(self):
        raise cloud_errors.Conflict('409')

    def test_conflict_removes_the_mark(self):
        self.cloud.during['suspend'] = self.conflict
        self.assert_fails(actions.Suspend, '409')
        self.assertEqual({}, self.cloud.known[ONE].metadata)

    def test_migration_without_effect_fails(self):
        self.cloud.during['migrate'] = lambda: None
        self.assert_fails(actions.Migrate, 'ACTIVE on h1', target='h2')
        self.assertEqual({}, self.cloud.known[ONE].metadata)

    def test_migration_without_target_fails(self):
        self.assert_fails(actions.Migrate, 'no target')

    def test_migration_that_takes_too_long_is_aborted(self):
        settings.CONF.set_override('operation_timeout', 10,
                                   'secondary_watcher')
        with mock.patch.object(poller.threading.Event, 'wait',
                               return_value=False):
            self.cloud.during['migrate'] = lambda: self.cloud.change(
                1, task_state='migrating')
            self.assert_fails(actions.Migrate, 'not done after 10 s',
                              target='h2')
        self.assertIn(('abort', ONE), self.cloud.calls)

    def test_nova_away(self):
        def away():
            raise cloud_errors.CloudError('503')
        self.cloud.during['suspend'] = away
        self.assert_fails(actions.Suspend, '503')
        # Nova may have begun: the mark stays, so that the instance returns.
        self.assertIn(cloud_snapshot.PREEMPTED,
                      self.cloud.known[ONE].metadata)

    def test_running_migration_is_aborted(self):
        self.assertTrue(self.make(actions.Migrate).abort())
        self.assertTrue(self.make(actions.Migrate).check_abort())
        self.assertFalse(self.make(actions.Suspend).abort())
        with mock.patch.object(self.cloud, 'abort_migration',
                               side_effect=cloud_errors.CloudError('no')):
            self.assertFalse(self.make(actions.Migrate).abort())

    def test_revert_does_the_opposite(self):
        for cls, parameters in ((actions.Suspend, {}),
                                (actions.Stop, {}),
                                (actions.Migrate, {'target': 'h2'})):
            self.run_action(cls, **parameters)
            self.make(cls, **parameters).revert()
            server = self.cloud.known[ONE]
            self.assertEqual(('ACTIVE', 'h1'), (server.status, server.host))

    def test_operation_without_effect_is_not_reverted(self):
        self.make(actions.Suspend).revert()
        self.assertEqual([], self.cloud.calls)
