"""What is read from Watcher's database, and audits made there."""

import datetime
import time
from unittest import mock

from oslo_utils import timeutils
from watcher import objects
from watcher.decision_engine import sync

from secondary_scheduler.watcher import heartbeat, history
from tests.unit.watcher import fakes


class HistoryTest(fakes.WatcherTestCase):
    def test_switches(self):
        self.audit(1)
        self.audit(2, state='CANCELLED')
        self.audit(3, state='SUSPENDED')
        self.audit(4, state='PENDING', start_time=(
            timeutils.utcnow() + datetime.timedelta(hours=1)))
        self.audit(5, audit_type='ONESHOT')
        self.audit(6, state='FAILED')
        found = {s.uuid: (s.on, s.off) for s in self.history.switches()}
        self.assertEqual({
            fakes.uid(1): (True, False), fakes.uid(2): (False, True),
            fakes.uid(3): (False, False), fakes.uid(4): (False, False),
            fakes.uid(6): (True, False)}, found)

    def test_an_upgrade_is_no_operators_word(self):
        # The strategy in the database is not the one that is installed.
        self.audit(1)
        sync.Syncer().sync()
        switch, = self.history.switches()
        self.assertEqual('CANCELLED', switch.state)
        self.assertTrue(switch.orphaned)
        self.assertFalse(switch.on or switch.off)
        # An operator who cancels later is understood.
        audit = objects.Audit.get_by_uuid(self.context, switch.uuid,
                                          eager=True)
        audit.state = 'ONGOING'
        audit.save()
        later = timeutils.utcnow() + datetime.timedelta(seconds=31)
        with mock.patch.object(timeutils, 'utcnow', return_value=later):
            audit.state = 'CANCELLED'
            audit.save()
        self.assertTrue(self.history.switches()[0].off)

    def test_other_goals_are_not_ours(self):
        other = objects.Goal(self.context, uuid=fakes.uid(55), name='other',
                             display_name='o', efficacy_specification=[])
        other.create()
        audit = self.audit(1)
        audit.goal_id = other.id
        audit.save()
        self.assertEqual([], self.history.switches())

    def test_submit(self):
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
        with self.assertRaises(Exception) as caught:
            self.audit_manager.submit_audit('preempt', ['h1'], None, 'b1')
        self.assertEqual('AuditAlreadyExists',
                         type(caught.exception).__name__)

    def test_a_failed_action_shows_in_its_audit(self):
        for number, state in ((1, 'FAILED'), (2, 'SUCCEEDED'),
                              (3, 'SKIPPED')):
            audit = self.audit(number, audit_type='ONESHOT')
            self.action(self.plan(audit), instance=number, state=state)
        self.assertEqual({fakes.uid(1): True, fakes.uid(2): False,
                          fakes.uid(3): True},
                         {c.uuid: c.failed
                          for c in self.history.one_shot_audits(60)})

    def test_revive(self):
        self.audit(1, state='FAILED', hostname='dead')
        self.audit_manager.revive_switch(self.history.switches()[0])
        audit, = self.audits('CONTINUOUS')
        self.assertEqual(('PENDING', None), (audit.state, audit.hostname))

    def test_has_plan(self):
        audit = self.audit(1, audit_type='ONESHOT')
        self.assertFalse(self.history.has_plan(audit.uuid))
        self.plan(audit)
        self.assertTrue(self.history.has_plan(audit.uuid))

    def test_locks(self):
        plan = self.plan(self.audit(1))
        self.action(plan, instance=1, source='h1', target='h2')
        done = self.action(plan, instance=2, source='h3')
        done.state = 'SUCCEEDED'
        done.save()
        skipped = self.action(plan, instance=3, source='h4')
        skipped.state = 'SKIPPED'
        skipped.save()
        objects.Action(
            self.context, uuid=fakes.uid(77), action_plan_id=plan.id,
            action_type='migrate', state='PENDING', parents=[],
            input_parameters={'resource_id': 'x'}).create()
        locks = self.history.locks()
        self.assertEqual({fakes.uid(1)}, locks.busy_instances)
        self.assertEqual({'h1', 'h2'}, locks.busy_hosts)
        self.assertEqual({fakes.uid(2)}, locks.cooling_down_instances)
        self.assertEqual({fakes.uid(1), fakes.uid(2)}, locks.instances)
        self.assertEqual({'h1', 'h2', 'h3'}, locks.hosts)

    def test_what_only_leases_know_is_nothing_that_decisions_reckon_with(
            self):
        plan = self.plan(self.audit(1))
        plan.state = 'ONGOING'
        plan.save()
        self.action(plan, 'delete', instance=1)
        self.action(plan, 'notice', instance=2)
        self.action(plan, 'suspend', instance=3)
        locks = self.history.locks()
        self.assertEqual({fakes.uid(1), fakes.uid(2), fakes.uid(3)},
                         locks.busy_instances)
        self.assertEqual(['suspend'], [one.kind for one in locks.begun])

    def test_a_failure_lets_hosts_be_operated_on_again(self):
        plan = self.plan(self.audit(1))
        for number, kind in ((1, 'migrate'), (2, 'suspend')):
            failed = self.action(plan, kind, number, source='h1',
                                 target='h2')
            failed.state = 'FAILED'
            failed.save()
        locks = self.history.locks()
        self.assertEqual(frozenset(), locks.hosts)
        self.assertEqual({fakes.uid(1)}, locks.migration_failed_instances)
        self.assertEqual({fakes.uid(2)}, locks.failed_instances)
        self.assertEqual({fakes.uid(2)}, locks.instances)

    def fail(self, kind, *instances, lease='l'):
        plan = self.plan(objects.Audit.get_by_uuid(
            self.context, fakes.uid(1), eager=True))
        for number in instances:
            action = self.action(plan, kind, number, lease=lease)
            action.state = 'FAILED'
            action.save()

    def stuck_s(self, number):
        """Return for how long an instance is not to be brought up."""
        now = timeutils.utcnow()
        self.addCleanup(timeutils.clear_time_override)
        for seconds in range(0, 4000, 60):
            timeutils.set_time_override(
                now + datetime.timedelta(seconds=seconds + 1))
            if fakes.uid(number) not in self.history.locks(
            ).return_failed_instances:
                return seconds
        return None

    def test_who_cannot_be_brought_up_is_tried_ever_less_often(self):
        self.audit(1)
        found = []
        for _attempt in range(9):
            self.fail('resume', 1)
            found.append(self.stuck_s(1))
        self.assertEqual([60, 120, 240, 480, 960, 1920, 3600, 3600, 3600],
                         found)
        self.assertEqual(frozenset(), self.history.locks().instances)

    def test_the_failures_of_a_lease_count_together(self):
        self.audit(1)
        self.fail('start', 1, 2, 3)     # by one plan: once
        self.assertEqual(60, self.stuck_s(2))
        self.fail('unshelve', 1)
        self.fail('resume', 4, lease='other')
        self.fail('suspend', 5)
        self.fail('migrate', 6)
        locks = self.history.locks()
        self.assertEqual({fakes.uid(5)}, locks.failed_instances)
        self.assertEqual({fakes.uid(5)}, locks.preempt_failed_instances)
        self.assertEqual({fakes.uid(6)}, locks.migration_failed_instances)
        self.assertEqual(
            {fakes.uid(1), fakes.uid(4)},
            locks.return_failed_instances - {fakes.uid(2), fakes.uid(3)},
        )
        self.assertEqual(60, self.stuck_s(4))
        self.fail('resume', 2)
        self.assertEqual(240, self.stuck_s(2))
        timeutils.set_time_override(
            timeutils.utcnow() + datetime.timedelta(hours=8))
        self.fail('resume', 2)
        self.assertEqual(60, self.stuck_s(2))

    def test_an_abandoned_plan_holds_nothing(self):
        plan = self.plan(self.audit(1), state='CANCELLED')
        self.action(plan, instance=1, source='h1')
        self.assertEqual(frozenset(), self.history.locks().hosts)

    def test_locks_end(self):
        plan = self.plan(self.audit(1))
        self.action(plan, instance=1)
        done = self.action(plan, instance=2, source='h3')
        done.state = 'SUCCEEDED'
        done.save()
        waiting = self.plan(self.audit(2), state='RECOMMENDED')
        self.action(waiting, instance=3, source='h5')
        now = timeutils.utcnow()
        self.addCleanup(timeutils.clear_time_override)
        timeutils.set_time_override(now + datetime.timedelta(seconds=31))
        locks = self.history.locks()
        self.assertEqual({fakes.uid(1)}, locks.instances)
        self.audit_manager.cancel_silent_plans()
        self.assertEqual({'h1'}, self.history.locks().hosts)
        timeutils.set_time_override(now + datetime.timedelta(seconds=91))
        self.audit_manager.cancel_silent_plans()
        self.assertEqual(frozenset(), self.history.locks().hosts)

    def state(self, thing):
        return thing.get_by_uuid(self.context, thing.uuid).state

    def test_a_plan_whose_applier_has_died_is_given_up(self):
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
        self.assertEqual(
            ['CANCELLED', 'ONGOING', 'RECOMMENDED', 'CANCELLED'],
            [self.state(plan) for plan in (dead, alive, other, unbegun)])
        self.assertEqual(
            ['SUCCEEDED', 'CANCELLED', 'CANCELLED', 'ONGOING', 'PENDING'],
            [self.state(one)
             for one in (done, begun, waiting, worked_on, behind)])
        self.assertEqual({fakes.uid(4), fakes.uid(5)},
                         self.history.locks().busy_instances)

    def test_observed(self):
        plan = self.plan(self.audit(1))
        done = [self.action(plan, 'migrate', number, target='h2')
                for number in range(5)]
        for action, state, text in zip(
                done, ('SUCCEEDED', 'SUCCEEDED', 'FAILED', 'SUCCEEDED',
                       'SUCCEEDED'),
                (history.took(2.5, 512, [3.25, 7]),
                 history.took(1.25, 0, None).removesuffix(' for 0 MiB'),
                 history.took(9, 512, None), None, 'Took 1.00 s until tea'),
                strict=True):
            action.state, action.status_message = state, text
            action.save()
        first, second = self.history.observed()
        self.assertEqual(('migrate', 'h1', 'h2', 512, (3.2, 7)), first.job)
        self.assertEqual((0, (0, 0)), second.job[-2:])
        self.assertAlmostEqual(2.5, first.end - first.begin, places=3)
        self.assertAlmostEqual(1.25, second.end - second.begin, places=3)
        self.assertAlmostEqual(time.time(), second.end, delta=60)

    def test_preempted_lately(self):
        plan = self.plan(self.audit(1))
        self.action(plan, 'suspend', 1)
        self.action(plan, 'stop', 2, state='SUCCEEDED')
        self.action(plan, 'shelve', 3, state='SKIPPED')
        self.action(plan, 'suspend', 4, request='drain')
        self.action(plan, 'migrate', 5)
        self.action(plan, 'suspend', 6, request='return')
        self.assertEqual({fakes.uid(1), fakes.uid(2)},
                         self.history.preempted_lately())
        self.addCleanup(timeutils.clear_time_override)
        timeutils.set_time_override(
            timeutils.utcnow() + datetime.timedelta(seconds=301))
        self.assertEqual(set(), self.history.preempted_lately())

    def counted(self):
        """Return the instances locked, those preempted, the hosts locked."""
        locks = self.history.locks()
        return (set(locks.instances), self.history.preempted_lately(),
                set(locks.hosts))

    def test_a_dry_run_has_no_effect(self):
        audit = self.audit(1, audit_type='ONESHOT', auto_trigger=False,
                           parameters={'request': 'preempt', 'hosts': ['h1']})
        plan = self.plan(audit, state='RECOMMENDED')
        self.action(plan, instance=1)
        self.assertEqual((set(), set(), set()), self.counted())
        self.assertEqual([frozenset()],
                         [c.hosts for c in self.history.one_shot_audits(60)])
        for state in ('CANCELLED', 'SUPERSEDED'):   # nobody wanted it
            plan.state = state
            plan.save()
            self.assertEqual((set(), set(), set()), self.counted(), state)
        plan.state = 'PENDING'      # an operator launches it
        plan.save()
        self.assertEqual(({fakes.uid(1)}, {fakes.uid(1)}, {'h1'}),
                         self.counted())

    def test_a_plan_counts_that_watcher_is_about_to_launch(self):
        self.action(self.plan(self.audit(1), state='RECOMMENDED'))
        self.assertEqual(({fakes.uid(1)}, {fakes.uid(1)}, {'h1'}),
                         self.counted())

    def test_what_is_cancelled_while_it_goes_on_counts(self):
        plan = self.plan(self.audit(1), state='CANCELLING')
        self.action(plan, instance=1, state='ONGOING')
        self.assertEqual({fakes.uid(1)}, self.history.preempted_lately())
