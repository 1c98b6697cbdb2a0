# SPDX-License-Identifier: Apache-2.0

"""Flow of an action."""

import threading
from unittest import mock

import jsonschema
from watcher import objects
from watcher.common import exception

from secondary_scheduler.reports import agent_rpc
from secondary_scheduler.watcher import (
    actions,
    cloud_errors,
    secondary_action,
    stages,
)
from tests.unit.watcher import fakes
from tests.unit.watcher.action_case import ONE, ActionCase


class FlowTest(ActionCase):

    def test_duration_is_recorded(self):
        noted = self.action(self.plan(self.audit(1)))
        with mock.patch.object(objects.Action, 'get_by_uuid',
                               side_effect=objects.Action.get_by_uuid) as got:
            self.run_action(actions.Suspend, action=noted.uuid)
        # Eager: saving it sends a notification with its plan.
        self.assertTrue(got.call_args.kwargs['eager'])
        noted.refresh()
        self.assertRegex(noted.status_message,
                         r'^Took \d\.\d\d s until 2.* for 512 MiB$')

    def test_dirty_memory_is_recorded(self):
        noted = self.action(self.plan(self.audit(1)))
        self.agents.hand_over.return_value = {
            'ok': True, 'dirty_mb': [12.0, 30]}
        self.run_action(actions.Migrate, action=noted.uuid, target='h2')
        self.agents.hand_over.assert_called_once_with('h1', ONE, 1.0,
                                                      migrates=True)
        noted.refresh()
        self.assertRegex(
            noted.status_message,
            r' for 512 MiB, 12\.0 MiB written in 1 s, 30\.0 in 5 s$')

    def test_failed_record_of_the_duration_is_no_failure(self):
        server = self.run_action(actions.Suspend, action=fakes.uid(99))
        self.assertEqual('SUSPENDED', server.status)

    def test_action_waits_for_the_task_of_nova(self):
        def begin():
            self.cloud.change(1, task_state='suspending')
            threading.Timer(0.1, lambda: self.cloud.change(
                1, task_state=None, status='SUSPENDED')).start()
        self.cloud.during['suspend'] = begin
        self.assertEqual('SUSPENDED', self.run_action(actions.Suspend).status)

    def test_running_action_has_a_heartbeat(self):
        heart, seen = mock.MagicMock(), []
        inside = heart.hold.return_value.__exit__
        self.cloud.during['suspend'] = lambda: (
            seen.append(inside.called),
            self.cloud.change(1, status='SUSPENDED'))
        with mock.patch.object(secondary_action, '_heartbeat', lambda: heart):
            self.run_action(actions.Suspend, action=fakes.uid(9))
        heart.hold.assert_called_once_with(fakes.uid(9))
        self.assertEqual([False], seen)
        self.assertTrue(inside.called)

    def test_instance_killed_by_its_agent_is_not_operated_on(self):
        """Nova has not noticed the kill yet, and would put it in ERROR."""
        self.agents.hand_over.return_value = {
            'ok': False, 'killed': True, 'reason': 'memory: 6 MiB left'}
        for kind, more in ((actions.Suspend, {}),
                           (actions.Migrate, {'target': 'h2'})):
            self.assert_fails(kind, 'the agent has killed it (memory: 6 MiB',
                              **more)
        self.assertEqual([], self.cloud.calls)

    def test_silent_agent_does_not_stop_the_action(self):
        self.agents.hand_over.side_effect = agent_rpc.AgentUnreachable('gone')
        self.assertEqual('SUSPENDED', self.run_action(actions.Suspend).status)

    def test_failed_action_sends_a_thaw_hint(self):
        with mock.patch.object(self.cloud, 'live_migrate',
                               side_effect=cloud_errors.CloudError('no')):
            self.assert_fails(actions.Migrate, 'no', target='h2')
        self.agents.thaw_hint.assert_called_once_with('h1', ONE)

    def test_first_call_is_logged_once_a_batch(self):
        with self.assertLogs(stages.LOG.logger, 'INFO') as logs:
            self.run_action(actions.Suspend, batch='only')
            self.run_action(actions.Resume, batch='only')
        self.assertEqual(1, len([line for line in logs.output if
                                 'batch=only stage=first_api_call' in line]))

    def test_instance_deleted_meanwhile_is_a_success(self):
        def delete():
            del self.cloud.known[ONE]
        for verb, cls in (('suspend', actions.Suspend),
                          ('migrate', actions.Migrate)):
            self.cloud.known[ONE] = fakes.server(1, 'h1')
            self.cloud.during[verb] = delete
            self.assertIsNone(self.run_action(cls, target='h2'))

    def test_instance_deleted_before_the_call_is_a_success(self):
        self.cloud.known.clear()
        self.assertTrue(self.make(actions.Suspend).execute())

    def test_conflict_with_the_same_result_is_a_success(self):
        def done():
            self.cloud.change(1, status='SUSPENDED')
            raise cloud_errors.Conflict('409')
        self.cloud.during['suspend'] = done
        self.assertEqual('SUSPENDED', self.run_action(actions.Suspend).status)


class PreconditionTest(ActionCase):
    def test_deleted_instance_is_skipped(self):
        self.cloud.known.clear()
        self.assert_skipped(actions.Suspend, 'does not exist')

    def test_primary_is_never_touched(self):
        with mock.patch.object(self.cloud, 'server', return_value=None):
            for cls in actions.OPPOSITES.values():
                self.assert_skipped(cls, 'not a secondary', target='h2')

    def test_nova_away(self):
        self.cloud.down = True
        made = self.make(actions.Suspend)
        with self.assertRaises(exception.ActionExecutionFailure) as caught:
            made.pre_condition()
        self.assertIn('nova is away', str(caught.exception))

    def test_messages_fit_watchers_column(self):
        with mock.patch.object(self.cloud, 'act', side_effect=(
                cloud_errors.CloudError('long ' * 100))):
            with self.assertRaises(
                    exception.ActionExecutionFailure) as caught:
                self.make(actions.Suspend).execute()
        # Watcher prepends "Action failed in execute: ".
        self.assertLessEqual(len(str(caught.exception)) + 40, 255)

    def test_instance_in_another_state_or_place_is_skipped(self):
        self.assert_skipped(actions.Resume, 'ACTIVE already')
        self.assert_skipped(actions.Migrate, 'ACTIVE already', target='h1')
        self.assert_skipped(actions.Suspend, 'on h1 now', source='h2')
        self.assert_skipped(actions.Migrate, 'on h1 now', source='h2',
                            target='h3')
        self.cloud.change(1, status='RESCUE')
        self.assert_skipped(actions.Suspend, 'RESCUE')
        self.cloud.change(1, status='ACTIVE', task_state='rebooting')
        self.assert_skipped(actions.Suspend, 'rebooting')

    def test_action_with_a_failed_parent_is_skipped(self):
        plan = self.plan(self.audit(1))
        for state, runs in (('SUCCEEDED', True), ('SKIPPED', True),
                            ('FAILED', False), ('CANCELLED', False)):
            parent = self.action(plan, state=state)
            if runs:
                self.make(actions.Suspend,
                          parents=[parent.uuid]).pre_condition()
            else:
                self.assert_skipped(actions.Suspend, state,
                                    parents=[parent.uuid])

    def test_action_runs_after_one_that_was_not_needed_only(self):
        plan = self.plan(self.audit(1))
        automatic = 'Action was skipped automatically: suspend of x: '
        for message, runs in (
                (automatic + 'not needed: it is SUSPENDED already', True),
                ('Action skipped by user. Reason: repaired by hand', True),
                (automatic + 'the instance is RESCUE', False)):
            parent = self.action(plan, state='SKIPPED')
            parent.status_message = message
            parent.save()
            with self.subTest(message):
                if runs:
                    self.make(actions.Suspend,
                              parents=[parent.uuid]).pre_condition()
                else:
                    self.assert_skipped(actions.Suspend, 'SKIPPED',
                                        parents=[parent.uuid])

    def test_parameters_are_validated(self):
        made = self.make(actions.Suspend)
        made.input_parameters = {'resource_id': 'short'}
        self.assertRaises(jsonschema.ValidationError,
                          made.validate_parameters)

    def test_each_kind_has_a_description(self):
        for cls in actions.OPPOSITES.values():
            text = cls({}).get_description()
            self.assertIn(cls.KIND.value, text.lower())
            self.assertNotIn('\n', text)
