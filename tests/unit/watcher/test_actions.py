"""Actions and the poller, on a cloud that is a dictionary."""

import threading
import time
from unittest import TestCase, mock

import jsonschema
from watcher import objects
from watcher.common import exception

from secondary_scheduler.reports import agent_rpc
from secondary_scheduler.watcher import (
    actions,
    cloud_connections,
    cloud_errors,
    cloud_snapshot,
    poller,
    secondary_action,
    settings,
    stages,
)
from tests.unit.watcher import fakes

ONE = fakes.uid(1)


class ActionCase(fakes.WatcherTestCase):
    def setUp(self):
        super().setUp()
        self.cloud = fakes.FakeCloud([fakes.server(1, 'h1')])
        self.agents = mock.Mock()
        self.agents.hand_over.return_value = {'ok': True}
        waiting = poller.Poller(lambda: self.cloud, lambda: 0.01)
        for target, value in ((cloud_connections, 'shared'),
                              (secondary_action, '_agents'),
                              (secondary_action, '_poller')):
            patcher = mock.patch.object(target, value, {
                'shared': lambda: self.cloud,
                '_agents': lambda: self.agents,
                '_poller': lambda: waiting}[value])
            patcher.start()
            self.addCleanup(patcher.stop)
        settings.CONF.set_override('operation_timeout', 10,
                                   'secondary_watcher')
        self.addCleanup(settings.CONF.clear_override, 'operation_timeout',
                        'secondary_watcher')

    def make(self, cls, **parameters):
        made = cls({})
        made.input_parameters = {
            'resource_id': ONE, 'source': 'h1', 'batch': 'b',
            'operation_id': 1, 'after': [], 'request': 'preempt',
            'lease': 'l', **parameters}
        self.assertTrue(made.validate_parameters())
        return made

    def run_action(self, cls, **parameters):
        made = self.make(cls, **parameters)
        made.pre_condition()
        self.assertTrue(made.execute())
        made.post_condition()
        return self.cloud.known.get(ONE)

    def assert_skipped(self, cls, why, **parameters):
        with self.assertRaises(exception.ActionSkipped) as caught:
            self.make(cls, **parameters).pre_condition()
        self.assertIn(why, str(caught.exception))
        self.assertEqual([], self.cloud.calls)

    def assert_fails(self, cls, why, **parameters):
        made = self.make(cls, **parameters)
        with self.assertRaises(exception.ActionExecutionFailure) as caught:
            made.execute()
        self.assertIn(why, str(caught.exception))


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

    def test_nobody_is_saved_to_a_full_disk(self):
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
        # Who is stopped needs no room.
        self.cloud.change(1, status='ACTIVE')
        self.agents.hand_over.return_value = {'ok': True, 'save_free_mb': 0}
        self.assertEqual('SHUTOFF', self.run_action(actions.Stop).status)

    def test_its_duration_is_noted(self):
        noted = self.action(self.plan(self.audit(1)))
        with mock.patch.object(objects.Action, 'get_by_uuid',
                               side_effect=objects.Action.get_by_uuid) as got:
            self.run_action(actions.Suspend, action=noted.uuid)
        # Saving it sends a notification with its plan.
        self.assertTrue(got.call_args.kwargs['eager'])
        noted.refresh()
        self.assertRegex(noted.status_message,
                         r'^Took \d\.\d\d s until 2.* for 512 MiB$')

    def test_what_it_wrote_to_its_memory_is_noted(self):
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

    def test_a_duration_that_cannot_be_noted_is_no_failure(self):
        server = self.run_action(actions.Suspend, action=fakes.uid(99))
        self.assertEqual('SUSPENDED', server.status)

    def test_resume_unmarks_last(self):
        self.cloud.change(1, status='SUSPENDED',
                          metadata={cloud_snapshot.PREEMPTED: 'x'})
        server = self.run_action(actions.Resume, target='h1')
        self.assertEqual(('ACTIVE', {}), (server.status, server.metadata))
        self.assertEqual(['resume', 'delete'],
                         [c[0] for c in self.cloud.calls])
        self.agents.hand_over.assert_not_called()
        self.agents.thaw_hint.assert_called_once_with('h1', ONE)

    def test_migrate_there_and_back(self):
        server = self.run_action(actions.Migrate, target='h2')
        self.assertEqual(('h2', {cloud_snapshot.ORIGIN: 'h1'}),
                         (server.host, server.metadata))
        server = self.run_action(actions.Migrate, source='h2', target='h3')
        self.assertEqual({cloud_snapshot.ORIGIN: 'h1'}, server.metadata)
        server = self.run_action(actions.Migrate, source='h3', target='h1')
        self.assertEqual({}, server.metadata)

    def test_stop_start_shelve_unshelve(self):
        for cls, status in ((actions.Stop, 'SHUTOFF'),
                            (actions.Start, 'ACTIVE'),
                            (actions.Shelve, 'SHELVED_OFFLOADED'),
                            (actions.Unshelve, 'ACTIVE')):
            self.assertEqual(status, self.run_action(cls).status)

    def test_shelve_offloads_where_nova_does_not(self):
        self.cloud.during['shelve'] = lambda: self.cloud.change(
            1, status='SHELVED')
        self.assertEqual('SHELVED_OFFLOADED',
                         self.run_action(actions.Shelve).status)

    def test_what_is_down_but_not_offloaded_keeps_its_mark(self):
        self.cloud.during['shelve'] = lambda: self.cloud.change(
            1, status='SHELVED')
        self.cloud.during['shelve_offload'] = lambda: None
        self.assert_fails(actions.Shelve, 'SHELVED on h1')
        self.assertIn(cloud_snapshot.PREEMPTED,
                      self.cloud.known[ONE].metadata)

    def test_waits_until_nova_has_ended(self):
        def begin():
            self.cloud.change(1, task_state='suspending')
            threading.Timer(0.1, lambda: self.cloud.change(
                1, task_state=None, status='SUSPENDED')).start()
        self.cloud.during['suspend'] = begin
        self.assertEqual('SUSPENDED', self.run_action(actions.Suspend).status)

    def test_shows_signs_of_life(self):
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

    def test_who_was_ended_is_left_alone(self):
        """Nova, which has not noticed yet, would put it in ERROR."""
        self.agents.hand_over.return_value = {
            'ok': False, 'killed': True, 'reason': 'memory: 6 MiB left'}
        for kind, more in ((actions.Suspend, {}),
                           (actions.Migrate, {'target': 'h2'})):
            self.assert_fails(kind, 'the agent has ended it (memory: 6 MiB',
                              **more)
        self.assertEqual([], self.cloud.calls)

    def test_silent_agent_is_no_obstacle(self):
        self.agents.hand_over.side_effect = agent_rpc.AgentUnreachable('gone')
        self.assertEqual('SUSPENDED', self.run_action(actions.Suspend).status)

    def test_one_that_fails_is_let_run_again(self):
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


class PreconditionTest(ActionCase):
    def test_gone(self):
        self.cloud.known.clear()
        self.assert_skipped(actions.Suspend, 'does not exist')

    def test_a_primary_is_never_touched(self):
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
        # Watcher puts "Action failed in execute: " in front.
        self.assertLessEqual(len(str(caught.exception)) + 40, 255)

    def test_state_and_place(self):
        self.assert_skipped(actions.Resume, 'ACTIVE already')
        self.assert_skipped(actions.Migrate, 'ACTIVE already', target='h1')
        self.assert_skipped(actions.Suspend, 'on h1 now', source='h2')
        self.assert_skipped(actions.Migrate, 'on h1 now', source='h2',
                            target='h3')
        self.cloud.change(1, status='PAUSED')
        self.assert_skipped(actions.Suspend, 'PAUSED')
        self.cloud.change(1, status='ACTIVE', task_state='rebooting')
        self.assert_skipped(actions.Suspend, 'rebooting')

    def test_parents(self):
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

    def test_schema(self):
        made = self.make(actions.Suspend)
        made.input_parameters = {'resource_id': 'short'}
        self.assertRaises(jsonschema.ValidationError,
                          made.validate_parameters)

    def test_each_kind_is_described(self):
        for cls in actions.OPPOSITES.values():
            text = cls({}).get_description()
            self.assertIn(cls.KIND.value, text.lower())
            self.assertNotIn('\n', text)


class FailureTest(ActionCase):
    def conflict(self):
        raise cloud_errors.Conflict('409')

    def test_deleted_meanwhile(self):
        def delete():
            del self.cloud.known[ONE]
        for verb, cls in (('suspend', actions.Suspend),
                          ('migrate', actions.Migrate)):
            self.cloud.known[ONE] = fakes.server(1, 'h1')
            self.cloud.during[verb] = delete
            self.assertIsNone(self.run_action(cls, target='h2'))

    def test_gone_at_the_call(self):
        self.cloud.known.clear()
        self.assertTrue(self.make(actions.Suspend).execute())

    def test_conflict_takes_the_mark_back(self):
        self.cloud.during['suspend'] = self.conflict
        self.assert_fails(actions.Suspend, '409')
        self.assertEqual({}, self.cloud.known[ONE].metadata)

    def test_somebody_did_it_first(self):
        def done():
            self.cloud.change(1, status='SUSPENDED')
            raise cloud_errors.Conflict('409')
        self.cloud.during['suspend'] = done
        self.assertEqual('SUSPENDED', self.run_action(actions.Suspend).status)

    def test_migration_that_stays(self):
        self.cloud.during['migrate'] = lambda: None
        self.assert_fails(actions.Migrate, 'ACTIVE on h1', target='h2')
        self.assertEqual({}, self.cloud.known[ONE].metadata)

    def test_migration_without_target(self):
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
        # Nova may have begun: the mark stays so that it is not forgotten.
        self.assertIn(cloud_snapshot.PREEMPTED,
                      self.cloud.known[ONE].metadata)

    def test_abort(self):
        self.assertTrue(self.make(actions.Migrate).abort())
        self.assertTrue(self.make(actions.Migrate).check_abort())
        self.assertFalse(self.make(actions.Suspend).abort())
        with mock.patch.object(self.cloud, 'abort_migration',
                               side_effect=cloud_errors.CloudError('no')):
            self.assertFalse(self.make(actions.Migrate).abort())

    def test_revert(self):
        for cls, parameters in ((actions.Suspend, {}),
                                (actions.Stop, {}),
                                (actions.Migrate, {'target': 'h2'})):
            self.run_action(cls, **parameters)
            self.make(cls, **parameters).revert()
            server = self.cloud.known[ONE]
            self.assertEqual(('ACTIVE', 'h1'), (server.status, server.host))

    def test_nothing_to_revert(self):
        self.make(actions.Suspend).revert()
        self.assertEqual([], self.cloud.calls)


class PollerTest(TestCase):
    def setUp(self):
        self.cloud = fakes.FakeCloud(
            [fakes.server(i, task_state='busy') for i in range(1, 9)])
        self.poller = poller.Poller(lambda: self.cloud, lambda: 0.01)

    def test_many_at_once_with_one_list_query(self):
        done = []

        def wait(number):
            done.append(self.poller.wait(
                fakes.uid(number), lambda s: s.task_state is None, 10).uuid)
        threads = [threading.Thread(target=wait, args=(i,))
                   for i in range(1, 9)]
        with mock.patch.object(self.cloud, 'servers',
                               wraps=self.cloud.servers) as listed:
            for thread in threads:
                thread.start()
            while not listed.called:
                time.sleep(0.01)
            for i in range(1, 9):
                self.cloud.change(i, task_state=None)
            for thread in threads:
                thread.join(10)
        self.assertEqual(8, len(done))

    def test_problems_only_take_time(self):
        self.cloud.down = True
        threading.Timer(0.1, lambda: setattr(
            self.cloud, 'down', False)).start()
        self.assertEqual(fakes.uid(1), self.poller.wait(
            fakes.uid(1), lambda s: True, 10).uuid)

    def test_gone_and_too_late(self):
        self.assertRaises(poller.Gone, self.poller.wait, fakes.uid(99),
                          lambda s: True, 10)
        self.assertRaises(TimeoutError, self.poller.wait, fakes.uid(1),
                          lambda s: False, 0.05)

    def test_who_has_waited_long_is_looked_at_less_often(self):
        with mock.patch.object(poller.time, 'monotonic') as now:
            now.return_value = 1000.0
            waiter = poller._Waiter(fakes.uid(1), lambda s: False)
            self.assertEqual(1000, waiter.due)
            for waited, later in (1, 0.3), (20, 1), (600, 30):
                now.return_value = 1000.0 + waited
                waiter.reschedule(interval=0.3)
                self.assertAlmostEqual(1000 + waited + later, waiter.due)
