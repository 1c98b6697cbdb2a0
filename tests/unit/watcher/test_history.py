# SPDX-License-Identifier: Apache-2.0

"""Queries of Watcher's database."""

import datetime
import time
from unittest import mock

from oslo_utils import timeutils
from watcher import objects
from watcher.decision_engine import sync

from secondary_scheduler.model.cluster import DirtyMemory
from secondary_scheduler.watcher.duration_record import DurationRecord
from tests.unit.watcher import fakes


class HistoryTest(fakes.WatcherTestCase):
    def test_states_of_audits_switch_the_feature_on_and_off(self):
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

    def test_switch_cancelled_by_an_upgrade_is_orphaned(self):
        # The strategy in the database is not the one that is installed.
        self.audit(1)
        sync.Syncer().sync()
        switch, = self.history.switches()
        self.assertEqual('CANCELLED', switch.state)
        self.assertTrue(switch.orphaned)
        self.assertFalse(switch.on or switch.off)
        # A later cancellation by an operator switches it off.
        audit = objects.Audit.get_by_uuid(self.context, switch.uuid,
                                          eager=True)
        audit.state = 'ONGOING'
        audit.save()
        later = timeutils.utcnow() + datetime.timedelta(seconds=31)
        with mock.patch.object(timeutils, 'utcnow', return_value=later):
            audit.state = 'CANCELLED'
            audit.save()
        self.assertTrue(self.history.switches()[0].off)

    def test_audits_of_other_goals_are_ignored(self):
        other = objects.Goal(self.context, uuid=fakes.uid(55), name='other',
                             display_name='o', efficacy_specification=[])
        other.create()
        audit = self.audit(1)
        audit.goal_id = other.id
        audit.save()
        self.assertEqual([], self.history.switches())

    def test_a_failed_action_shows_in_its_audit(self):
        for number, state in ((1, 'FAILED'), (2, 'SUCCEEDED'),
                              (3, 'SKIPPED')):
            audit = self.audit(number, audit_type='ONESHOT')
            self.action(self.plan(audit), instance=number, state=state)
        self.assertEqual({fakes.uid(1): True, fakes.uid(2): False,
                          fakes.uid(3): True},
                         {c.uuid: c.failed
                          for c in self.history.one_shot_audits(60)})

    def test_plan_of_an_audit_is_found(self):
        audit = self.audit(1, audit_type='ONESHOT')
        self.assertFalse(self.history.has_plan(audit.uuid))
        self.plan(audit)
        self.assertTrue(self.history.has_plan(audit.uuid))

    def test_unfinished_actions_lock_and_succeeded_ones_cool_down(self):
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

    def test_lease_operations_lock_instances_but_are_not_in_flight(self):
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

    def test_failed_action_locks_no_host(self):
        plan = self.plan(self.audit(1))
        for number, kind in ((1, 'migrate'), (2, 'suspend')):
            failed = self.action(plan, kind, number, source='h1',
                                 target='h2')
            failed.state = 'FAILED'
            failed.save()
        locks = self.history.locks()
        self.assertEqual(frozenset(), locks.hosts)
        self.assertEqual({fakes.uid(1)}, locks.migration_failed_instances)
        self.assertEqual({fakes.uid(2)}, locks.just_failed_instances)
        self.assertEqual({fakes.uid(2)}, locks.instances)

    def fail(self, kind, *instances, lease='l'):
        plan = self.plan(objects.Audit.get_by_uuid(
            self.context, fakes.uid(1), eager=True))
        for number in instances:
            action = self.action(plan, kind, number, lease=lease)
            action.state = 'FAILED'
            action.save()

    def stuck_s(self, number):
        """Return the back-off (s) of an instance's return."""
        now = timeutils.utcnow()
        self.addCleanup(timeutils.clear_time_override)
        for seconds in range(0, 4000, 60):
            timeutils.set_time_override(
                now + datetime.timedelta(seconds=seconds + 1))
            if fakes.uid(number) not in self.history.locks(
            ).return_failed_instances:
                return seconds
        return None

    def test_back_off_of_a_failed_return_doubles_up_to_an_hour(self):
        self.audit(1)
        found = []
        for _attempt in range(9):
            self.fail('resume', 1)
            found.append(self.stuck_s(1))
        self.assertEqual([60, 120, 240, 480, 960, 1920, 3600, 3600, 3600],
                         found)
        self.assertEqual(frozenset(), self.history.locks().instances)

    def test_failures_of_a_lease_count_together(self):
        self.audit(1)
        self.fail('start', 1, 2, 3)     # one plan counts once
        self.assertEqual(60, self.stuck_s(2))
        self.fail('unshelve', 1)
        self.fail('resume', 4, lease='other')
        self.fail('suspend', 5)
        self.fail('migrate', 6)
        locks = self.history.locks()
        self.assertEqual({fakes.uid(5)}, locks.just_failed_instances)
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

    def test_cancelled_plan_locks_nothing(self):
        plan = self.plan(self.audit(1), state='CANCELLED')
        self.action(plan, instance=1, source='h1')
        self.assertEqual(frozenset(), self.history.locks().hosts)

    def test_locks_of_a_silent_plan_end(self):
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

    def test_durations_are_read_from_messages(self):
        plan = self.plan(self.audit(1))
        done = [self.action(plan, 'migrate', number, target='h2')
                for number in range(5)]
        now = time.time()
        for action, state, text in zip(
                done, ('SUCCEEDED', 'SUCCEEDED', 'FAILED', 'SUCCEEDED',
                       'SUCCEEDED'),
                (DurationRecord(2.5, now, 512, DirtyMemory(3.25, 7)
                                ).to_message(),
                 DurationRecord(1.25, now).to_message(),
                 DurationRecord(9, now, 512).to_message(), None,
                 'Took 1.00 s until tea'),
                strict=True):
            action.state, action.status_message = state, text
            action.save()
        first, second = self.history.observed()
        self.assertEqual(('migrate', 'h1', 'h2', 512, (3.2, 7)), first.job)
        self.assertEqual((0, (0, 0)), second.job[-2:])
        self.assertAlmostEqual(2.5, first.end - first.begin, places=3)
        self.assertAlmostEqual(1.25, second.end - second.begin, places=3)
        self.assertAlmostEqual(time.time(), second.end, delta=60)

    def test_recent_preemptions_count_for_the_breaker(self):
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
        """Return locked instances, preempted instances and locked hosts."""
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
        for state in ('CANCELLED', 'SUPERSEDED'):   # not launched
            plan.state = state
            plan.save()
            self.assertEqual((set(), set(), set()), self.counted(), state)
        plan.state = 'PENDING'      # an operator launches it
        plan.save()
        self.assertEqual(({fakes.uid(1)}, {fakes.uid(1)}, {'h1'}),
                         self.counted())

    def test_plan_about_to_be_launched_counts(self):
        self.action(self.plan(self.audit(1), state='RECOMMENDED'))
        self.assertEqual(({fakes.uid(1)}, {fakes.uid(1)}, {'h1'}),
                         self.counted())

    def test_preemption_of_a_plan_being_cancelled_counts(self):
        plan = self.plan(self.audit(1), state='CANCELLING')
        self.action(plan, instance=1, state='ONGOING')
        self.assertEqual({fakes.uid(1)}, self.history.preempted_lately())


class LeaseActionsTest(fakes.WatcherTestCase):
    """Actions on several members count for each of them."""

    def lease_action(self, plan, kind='suspend_lease', state='PENDING',
                     **parameters):
        made = self.action(
            plan, kind, 1, lease='l', members=[
                {'resource_id': fakes.uid(1), 'source': 'h1'},
                {'resource_id': fakes.uid(2), 'source': 'h2'}], **parameters)
        made.state = state
        made.save()
        return made

    def test_members_and_their_hosts_are_locked(self):
        plan = self.plan(self.audit(1))
        action = self.lease_action(plan)
        locks = self.history.locks()
        both = {fakes.uid(1), fakes.uid(2)}
        self.assertEqual((both, {'h1', 'h2'}),
                         (locks.busy_instances, locks.busy_hosts))
        self.assertEqual(
            {('suspend', fakes.uid(1), 'h1'), ('suspend', fakes.uid(2), 'h2')},
            {(one.kind, one.instance, one.source) for one in locks.begun})
        action.state = 'SUCCEEDED'
        action.save()
        locks = self.history.locks()
        self.assertEqual((both, {'h1', 'h2'}), (
            locks.cooling_down_instances, locks.cooling_down_hosts))

    def test_failure_counts_for_all_members(self):
        plan, both = self.plan(self.audit(1)), {fakes.uid(1), fakes.uid(2)}
        self.lease_action(plan, state='FAILED')
        locks = self.history.locks()
        self.assertEqual((both, both), (
            locks.just_failed_instances, locks.preempt_failed_instances))
        self.lease_action(plan, 'resume_lease', 'FAILED')
        self.assertEqual(both, self.history.locks().return_failed_instances)

    def test_duration_counts_for_each_member(self):
        action = self.lease_action(self.plan(self.audit(1)),
                                   state='SUCCEEDED')
        action.status_message = DurationRecord(5.0, 1e9, 512).to_message()
        action.save()
        first, second = self.history.observed()
        self.assertEqual([('suspend', 'h1', 512), ('suspend', 'h2', 512)],
                         [(one.job.kind, one.job.source, one.job.memory_mb)
                          for one in (first, second)])
        self.assertEqual([(1e9 - 6, 1e9 - 1), (1e9 - 5, 1e9)],
                         [(one.begin, one.end) for one in (first, second)])

    def test_context_switches_have_a_breaker_of_their_own(self):
        plan = self.plan(self.audit(1))
        self.lease_action(plan, request='select')
        self.action(plan, 'suspend', 3, request='preempt')
        self.assertEqual({fakes.uid(3)}, self.history.preempted_lately())
        self.assertEqual({fakes.uid(1), fakes.uid(2)},
                         self.history.preempted_lately(select=True))

    def test_last_return_of_each_instance_is_read(self):
        plan, now = self.plan(self.audit(1)), timeutils.utcnow()
        self.addCleanup(timeutils.clear_time_override)
        self.lease_action(plan, 'resume_lease', 'SUCCEEDED')
        timeutils.set_time_override(now + datetime.timedelta(seconds=60))
        again = self.action(plan, 'resume', 2)
        again.state = 'SUCCEEDED'
        again.save()
        self.action(plan, 'suspend', 3, state='SUCCEEDED')
        timeutils.set_time_override(now + datetime.timedelta(seconds=90))
        found = self.history.returned_lately(300)
        self.assertEqual({fakes.uid(1), fakes.uid(2)}, found.keys())
        self.assertAlmostEqual(90, found[fakes.uid(1)], delta=2)
        self.assertAlmostEqual(30, found[fakes.uid(2)], delta=2)
        self.assertEqual({fakes.uid(2)},
                         self.history.returned_lately(60).keys())
