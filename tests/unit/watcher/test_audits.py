# SPDX-License-Identifier: Apache-2.0

"""Creation and cancellation of audits and plans."""

import datetime

from oslo_utils import timeutils
from watcher import objects
from watcher.common import exception

from secondary_scheduler.watcher import heartbeat
from tests.unit.watcher import fakes


class AuditManagerTest(fakes.WatcherTestCase):

    def test_submitted_audit_is_created_and_triggered(self):
        self.audit(1, scope=[{'compute': []}],
                   parameters={'decision': 'other'})
        switch = self.history.switches()[0]
        uuid = self.audit_manager.submit_audit(
            'preempt', ['h2', 'h1'], switch, 'b1')
        audit = objects.Audit.get_by_uuid(self.context, uuid)
        self.assertEqual(
            ('ONESHOT', 'PENDING', True, True, [{'compute': []}]),
            (audit.audit_type, audit.state, audit.auto_trigger, audit.force,
             audit.scope))
        self.assertEqual({
            'request': 'preempt', 'hosts': ['h1', 'h2'], 'batch': 'b1',
            'decision': 'other',
            'switch': fakes.uid(1)}, audit.parameters)
        self.assertEqual(uuid, self.engine.trigger_audit.call_args[0][1])
        child, = self.history.one_shot_audits(60)
        self.assertEqual(('preempt', fakes.uid(1), frozenset({'h1', 'h2'}),
                          False), (child.request, child.switch, child.hosts,
                                   child.adopted))
        self.assertLess(child.age, 30)
        self.audit_manager.retrigger_audit(child)
        self.assertEqual(2, self.engine.trigger_audit.call_count)
        self.audit_manager.cancel_audit(child)
        self.assertEqual('CANCELLED',
                         self.history.one_shot_audits(60)[0].state)

    def test_a_batch_has_one_audit(self):
        self.audit_manager.submit_audit('preempt', ['h1'], None, 'b1')
        with self.assertRaises(exception.AuditAlreadyExists):
            self.audit_manager.submit_audit('preempt', ['h1'], None, 'b1')

    def test_failed_switch_is_set_to_pending(self):
        self.audit(1, state='FAILED', hostname='dead')
        self.audit_manager.revive_switch(self.history.switches()[0])
        audit, = self.audits('CONTINUOUS')
        self.assertEqual(('PENDING', None), (audit.state, audit.hostname))

    def state(self, thing):
        return thing.get_by_uuid(self.context, thing.uuid).state

    def later(self, seconds):
        self.addCleanup(timeutils.clear_time_override)
        timeutils.set_time_override(
            timeutils.utcnow() + datetime.timedelta(seconds=seconds))

    def test_plan_that_no_applier_begins_is_given_up(self):
        plan = self.plan(self.audit(1), 'PENDING')
        waiting = self.action(plan)
        self.later(80)
        self.audit_manager.cancel_silent_plans()
        self.assertEqual('PENDING', self.state(plan))
        self.later(20)
        self.audit_manager.cancel_silent_plans()
        self.assertEqual(['CANCELLED', 'CANCELLED'],
                         [self.state(one) for one in (plan, waiting)])

    def test_plan_waits_for_busy_appliers(self):
        plan = self.plan(self.audit(1), 'PENDING')
        self.action(plan)
        busy = self.action(self.plan(self.audit(2)), state='ONGOING',
                           instance=2)
        for _ in range(6):
            self.assertEqual('PENDING', self.state(plan))
            self.later(99)
            heartbeat.renew_actions([busy.uuid])
            self.audit_manager.cancel_silent_plans()
        self.later(20)      # its message is lost: others were begun
        heartbeat.renew_actions([busy.uuid])
        self.audit_manager.cancel_silent_plans()
        self.assertEqual('CANCELLED', self.state(plan))

    def test_plan_of_a_dead_applier_is_cancelled(self):
        dead, alive, other, unbegun = (
            self.plan(self.audit(number), state) for number, state in (
                (1, 'ONGOING'), (2, 'ONGOING'), (3, 'RECOMMENDED'),
                (4, 'PENDING')))
        done = self.action(dead, instance=1, state='SUCCEEDED')
        begun = self.action(dead, instance=2, state='ONGOING')
        waiting = self.action(dead, instance=3)
        worked_on = self.action(alive, instance=4, state='ONGOING')
        behind = self.action(alive, instance=5)
        self.addCleanup(timeutils.clear_time_override)
        timeutils.set_time_override(
            timeutils.utcnow() + datetime.timedelta(seconds=100))
        heartbeat.renew_actions([worked_on.uuid])
        self.audit_manager.cancel_silent_plans()
        # The plan that has not begun may wait for the living applier.
        self.assertEqual(
            ['CANCELLED', 'ONGOING', 'RECOMMENDED', 'PENDING'],
            [self.state(plan) for plan in (dead, alive, other, unbegun)])
        self.assertEqual(
            ['SUCCEEDED', 'CANCELLED', 'CANCELLED', 'ONGOING', 'PENDING'],
            [self.state(one)
             for one in (done, begun, waiting, worked_on, behind)])
        self.assertEqual({fakes.uid(4), fakes.uid(5)},
                         self.history.locks().busy_instances)
