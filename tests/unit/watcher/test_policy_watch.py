# SPDX-License-Identifier: Apache-2.0

"""Audits for violations, and chores of the leader."""

import dataclasses
import datetime
from unittest import mock

from oslo_utils import timeutils
from watcher.decision_engine import sync

from secondary_scheduler.model import reports, vocabulary
from secondary_scheduler.watcher import (
    cloud_errors,
    cloud_snapshot,
    cluster_state,
    history,
    policy_watch,
    scope,
    settings,
)
from tests.unit.watcher import fakes
from tests.unit.watcher.report_case import ReportCase


class ViolationsTest(ReportCase):
    def setUp(self):
        super().setUp()
        self.seen.refresh()

    def answered(self):
        """Let h1 violate its policies; return its finished audit."""
        self.audit(1)
        self.report('h1', violated=True)
        self.tick()
        audit, = self.audits()
        audit.state = 'SUCCEEDED'
        audit.save()
        return audit

    def test_violation_becomes_one_audit(self):
        self.audit(1)
        self.tick()
        self.assertEqual([], self.audits())
        self.report('h1', violated=True)
        self.tick(0.1)
        audit, = self.audits()
        self.assertEqual(['h1'], audit.parameters['hosts'])
        self.assertEqual(fakes.uid(1), audit.parameters['switch'])
        for _ in range(5):
            self.report('h1', violated=True)
            self.tick(3)
        self.assertEqual(1, len(self.audits()))

    def test_new_engine_waits_for_reports_of_all_hosts(self):
        self.audit(1)
        self.watch = policy_watch.PolicyWatch(
            settings.CONF, self.seen, self.leading)
        self.report('h1', violated=True)
        self.assertTrue(self.tick())
        self.assertEqual([], self.audits())
        self.report('h2')
        self.assertFalse(self.tick())
        self.assertEqual(1, len(self.audits()))

    def test_new_engine_stops_waiting_for_a_dead_agent(self):
        self.audit(1)
        self.watch = policy_watch.PolicyWatch(
            settings.CONF, self.seen, self.leading)
        self.report('h1', violated=True)
        self.tick(14)
        self.assertEqual([], self.audits())
        self.report('h1', violated=True)
        self.tick()
        self.assertEqual(1, len(self.audits()))

    def test_paused_switch_creates_no_audit(self):
        self.audit(1, state='SUSPENDED')
        self.report('h1', violated=True)
        self.tick()
        self.assertEqual([], self.audits())

    def test_audit_names_only_hosts_in_the_scope(self):
        self.audit(1, scope=[{'compute': [{'exclude': [
            {'compute_nodes': [{'name': 'h1'}]}]}]}])
        self.report('h1', violated=True)
        self.report('h2', violated=True)
        self.tick()
        audit, = self.audits()
        self.assertEqual(['h2'], audit.parameters['hosts'])

    def test_only_the_leader_creates_audits(self):
        self.audit(1)
        self.leading.am_i_leader.return_value = False
        self.report('h1', violated=True)
        self.assertFalse(self.tick())
        self.assertEqual([], self.audits())
        self.leading.am_i_leader.return_value = True
        self.tick()
        self.assertEqual(1, len(self.audits()))

    def test_next_leader_creates_no_second_audit(self):
        """The first leader dies after it created the audit."""
        self.audit(1)
        self.report('h1', violated=True)
        self.tick()
        other = cluster_state.ClusterState(
            settings.CONF,
            lambda: self.cloud,
            self.history,
            clock=lambda: self.now,
        )
        other.refresh()
        self.seen = other
        self.watch = policy_watch.PolicyWatch(
            settings.CONF, other, self.leading)
        self.report('h1', violated=True)
        self.tick(4)
        self.assertEqual(1, len(self.preempts()))

    def test_violations_during_an_audit_are_merged_into_the_next(self):
        self.audit(1)
        self.report('h1', violated=True)
        self.tick()
        self.report('h2', violated=True)
        self.assertTrue(self.tick(3))
        self.assertEqual(1, len(self.audits()))
        first, = self.audits()
        first.state = 'SUCCEEDED'
        first.save()
        self.tick()
        self.assertEqual(['h2'], self.audits()[1].parameters['hosts'])

    def test_failed_audit_is_followed_by_another(self):
        self.audit(1)
        self.report('h1', violated=True)
        self.tick()
        first, = self.audits()
        first.state = 'FAILED'
        first.save()
        self.report('h1', violated=True)
        self.tick(3)
        self.assertEqual(2, len(self.audits()))

    def test_failed_action_does_not_wait_for_the_back_off(self):
        first = self.answered()
        plan = self.plan(first)
        self.report('h1', violated=True)
        self.tick(3)
        self.assertEqual(1, len(self.audits()))
        action = self.action(plan, 'migrate', 1, target='h2')
        action.state = 'FAILED'
        action.save()
        self.report('h1', violated=True)
        self.tick(3)
        self.assertEqual(2, len(self.audits()))

    def test_dropped_plan_covers_no_violation(self):
        first = self.answered()
        self.report('h1', violated=True)
        plan = self.plan(first, state='CANCELLED')
        plan.status_message = history.DROPPED
        plan.save()
        self.tick(0.5)
        self.assertEqual(1, len(self.audits()), 'one for each window')
        self.tick(2)
        self.assertEqual(2, len(self.audits()))

    def test_plan_cancelled_by_an_operator_covers_its_violation(self):
        first = self.answered()
        self.report('h1', violated=True)
        self.action(self.plan(first, state='CANCELLED'), state='CANCELLED')
        self.tick(3)
        self.assertEqual(1, len(self.audits()))

    def test_audit_without_actions_covers_no_new_violation(self):
        self.answered()
        self.later(3)
        self.report('h1', violated=True)
        self.tick(3)
        self.assertEqual(1, len(self.audits()), 'it goes on')
        self.report('h1')
        self.report('h1', violated=True)
        self.tick()
        self.assertEqual(2, len(self.audits()), 'it begins anew')

    def test_new_violation_waits_after_operations(self):
        first = self.answered()
        self.action(self.plan(first), 'migrate', 1, target='h2')
        self.later(3)
        self.report('h1')
        self.report('h1', violated=True)
        self.tick(3)
        self.assertEqual(1, len(self.audits()))

    def test_audits_per_minute_are_limited(self):
        self.audit(1)
        for number in range(10):
            self.audit(10 + number, audit_type='ONESHOT', state='FAILED',
                       parameters={'request': 'preempt', 'hosts': ['h1'],
                                   'switch': fakes.uid(1)})
        self.report('h1', violated=True)
        self.tick()
        self.assertEqual(10, len(self.audits()))

    def test_violation_of_a_locked_host_waits(self):
        self.action(self.plan(self.audit(1)), source='h1')
        self.report('h1', violated=True)
        self.assertTrue(self.tick())
        self.assertEqual([], self.audits())

    def test_host_at_the_floor_for_too_long_gets_an_audit(self):
        self.audit(1)
        self.report('h1', floored=True)
        self.tick(19)
        self.assertEqual([], self.audits())
        self.tick(2)
        self.assertEqual(1, len(self.audits()))

    def test_dynamic_policies_are_left_to_agents_up_to_the_floor_limit(self):
        settings.CONF.set_override('leave_dynamic_policies_to_agents',
                                   True, 'secondary_watcher')
        self.audit(1)
        known = scope.ResolvedScope(frozenset({'h1'})), self.history.locks()
        for seconds, audits in ((19, 0), (2, 1)):
            self.report('h1', violated=True, floored=True)
            self.tick(seconds)
            self.assertEqual(audits, len(self.audits()))
            self.assertEqual(audits > 0, self.seen.cluster(
                *known).hosts['h1'].violated)

    def test_static_and_invalid_policies_are_not_left_to_agents(self):
        settings.CONF.set_override('leave_dynamic_policies_to_agents',
                                   True, 'secondary_watcher')
        for number, (resource, state) in enumerate((
                ('slots', reports.PolicyState.VIOLATED),
                ('cpu', reports.PolicyState.INVALID))):
            self.report('h1', policies=(reports.PolicyReport(
                f'{resource} <= 0', resource, 0.0, 60, 1.0, 5, state),))
            self.assertTrue(self.seen.window.waiting, resource)
            self.report('h1')
            self.assertFalse(self.seen.window.waiting, number)


class ChoresTest(ReportCase):
    def setUp(self):
        super().setUp()
        self.seen.refresh()

    def test_audit_without_an_engine_is_retriggered_then_cancelled(self):
        self.audit(1)
        self.audit(2, audit_type='ONESHOT', state='PENDING')
        self.tick()
        self.later(11)
        self.tick(6)
        self.tick(6)
        self.engine.trigger_audit.assert_called_once_with(
            mock.ANY, fakes.uid(2))
        self.later(61)
        self.tick(6)
        self.assertEqual('CANCELLED', self.audits()[0].state)

    def test_failed_switch_is_revived(self):
        self.audit(1, state='FAILED')
        self.tick()
        self.assertEqual('PENDING', self.audits('CONTINUOUS')[0].state)

    def test_cancelled_switch_closes_and_drains(self):
        self.audit(1, state='CANCELLED', scope=[{'compute': [{'exclude': [
            {'compute_nodes': [{'name': 'h2'}]}]}]}])
        self.tick()
        self.tick(6)
        audit, = self.audits()
        self.assertEqual(('drain', ['h1']), (
            audit.parameters['request'], audit.parameters['hosts']))
        root = self.seen.snapshot.hosts['h1'].root
        self.assertEqual({('close', root)}, set(self.cloud.calls))

    def test_switch_cancelled_by_an_upgrade_drains_nothing(self):
        self.audit(1)
        sync.Syncer().sync()
        with self.assertLogs(policy_watch.LOG.logger, 'WARNING') as logged:
            self.tick()
            self.tick(6)
        self.assertEqual(1, sum('cancelled by Watcher itself' in line
                                for line in logged.output))
        self.assertEqual([], self.cloud.calls)
        self.assertEqual([1], [len(self.history.switches())])
        self.assertEqual([], [a for a in self.audits()
                              if a.parameters.get('request') == 'drain'])

    def test_empty_and_closed_hosts_are_not_drained(self):
        self.audit(1, state='CANCELLED')
        self.cloud.known.clear()
        self.cloud.places = {
            'h1': fakes.host('h1', reserved=fakes.TOTAL, switched_off=True),
            'h2': fakes.host('h2', total={}, reserved={}),
            'h3': fakes.host('h3', root=None)}
        self.seen.refresh()
        self.tick()
        self.assertEqual([], self.audits())
        self.assertEqual([], self.cloud.calls)

    def test_host_closed_by_its_agent_is_switched_off_too(self):
        """An agent would release its own reservation later."""
        self.audit(1, state='CANCELLED')
        self.cloud.places = {
            'h1': fakes.host('h1', reserved=fakes.TOTAL),
            'h2': fakes.host('h2', switched_off=True)}
        self.seen.refresh()
        for _ in range(3):
            self.tick(6)
        self.assertEqual(
            [('close', self.cloud.places[name].root)
             for name in ('h1', 'h2')], self.cloud.calls)

    def test_new_switch_opens_hosts_that_an_old_one_closed(self):
        self.audit(1, state='CANCELLED')
        self.tick()
        closed = [h.switched_off for h in self.seen.snapshot.hosts.values()]
        self.assertEqual([True, True], closed)
        for host in self.cloud.places.values():
            self.cloud.places[host.name] = dataclasses.replace(
                host, switched_off=True, reserved=fakes.TOTAL)
        self.seen.refresh()
        self.cloud.calls.clear()
        self.audit(2, scope=[{'compute': [{'exclude': [
            {'compute_nodes': [{'name': 'h2'}]}]}]}])
        for _ in range(3):
            self.tick(6)
        self.assertEqual([('open', self.cloud.places['h1'].root)],
                         self.cloud.calls)

    def test_follower_switches_no_host(self):
        self.leading.am_i_leader.return_value = False
        self.audit(1, state='CANCELLED')
        self.tick()
        self.assertEqual([], self.cloud.calls)

    def test_switch_that_has_not_begun_keeps_no_host_open(self):
        self.audit(1, state='CANCELLED')
        self.audit(2, state='PENDING', start_time=timeutils.utcnow()
                   + datetime.timedelta(hours=1))
        self.tick()
        self.assertEqual({'close'}, {verb for verb, _ in self.cloud.calls})

    def test_paused_switch_neither_closes_nor_opens_hosts(self):
        self.cloud.places['h1'] = fakes.host('h1', switched_off=True)
        self.seen.refresh()
        self.audit(1, state='SUSPENDED')
        self.tick()
        self.assertEqual([], self.cloud.calls)

    def test_hosts_of_another_paused_switch_are_not_closed(self):
        self.audit(1, state='CANCELLED')
        self.audit(2, state='SUSPENDED')
        self.tick()
        self.assertEqual([], self.audits())
        self.assertEqual([], self.cloud.calls)

    def test_failed_closing_is_retried(self):
        self.audit(1, state='CANCELLED')
        with mock.patch.object(self.cloud, 'close_admission',
                               side_effect=cloud_errors.CloudError('no')):
            self.tick()
        self.assertEqual(1, len(self.audits()))
        self.assertFalse(self.seen.snapshot.hosts['h1'].switched_off)
        self.tick(6)
        self.assertTrue(self.seen.snapshot.hosts['h1'].switched_off)

    def test_marks_of_started_instances_are_removed(self):
        mark = {cloud_snapshot.PREEMPTED: 'x'}
        self.cloud.change(1, metadata=mark)
        self.cloud.change(2, metadata=mark)
        self.seen.refresh()
        self.cloud.change(2, status='SUSPENDED')
        self.tick()
        self.assertEqual([('delete', fakes.uid(1), cloud_snapshot.PREEMPTED)],
                         self.cloud.calls)

    def test_marks_of_locked_instances_stay(self):
        self.cloud.change(1, metadata={cloud_snapshot.PREEMPTED: 'x'})
        self.seen.refresh()
        self.action(self.plan(self.audit(1)))
        self.tick()
        self.assertEqual([], self.cloud.calls)

    def test_marks_stay_while_nova_does_not_answer(self):
        self.cloud.change(1, metadata={cloud_snapshot.PREEMPTED: 'x'})
        self.seen.refresh()
        self.cloud.down = True
        self.tick()
        self.assertEqual([], self.cloud.calls)

    def test_preempted_instance_in_error_is_logged_once(self):
        def told():
            self.seen.refresh()
            with self.assertLogs(policy_watch.LOG.logger, 'WARNING') as logs:
                policy_watch.LOG.warning('the last line')
                self.tick(6)
                self.tick(6)
            return logs.output[1:]

        self.cloud.change(1, status='ERROR')
        self.assertEqual([], told())
        mark = {cloud_snapshot.PREEMPTED: 'x', vocabulary.LEASE_METADATA: 'l'}
        self.cloud.change(1, metadata=mark)
        line, = told()
        self.assertIn(f'{fakes.uid(1)} was preempted and is in ERROR now, '
                      'so its lease p1:l cannot run', line)
        self.assertEqual([], told())
        self.cloud.change(1, status='ACTIVE')
        self.assertEqual([], told())
        self.cloud.change(1, status='ERROR', metadata=mark)
        self.assertEqual(1, len(told()))

    def ended(self):
        """Let both hosts report a kill of instance 1; return the calls."""
        for host in ('h1', 'h2'):
            self.report(host, killed={fakes.uid(1): 'memory: 3 MiB left'})
        self.seen.refresh()
        self.tick(6)
        calls, self.cloud.calls[:] = list(self.cloud.calls), []
        return [call[:3] for call in calls]

    def test_instance_killed_by_its_agent_waits_to_return(self):
        marked = [('set', fakes.uid(1), cloud_snapshot.PREEMPTED)]
        self.seen.refresh()
        self.assertEqual([], self.ended())  # Nova shows it running
        self.cloud.change(1, status='SHUTOFF', task_state='powering-on')
        self.assertEqual([], self.ended())  # its owner starts it
        self.cloud.change(1, task_state=None, host='h3')
        self.assertEqual([], self.ended())  # it is on another host
        self.cloud.change(1, host='h1')
        self.cloud.down = True
        self.tick(6)
        self.cloud.down = False
        self.assertEqual(marked, self.ended())
        self.cloud.change(1, status='SHUTOFF', metadata={})
        self.assertEqual([], self.ended())  # its owner removed the mark
        self.report('h1')
        self.tick(6)
        self.assertEqual(marked, self.ended())  # another kill

    def test_marked_instance_is_not_marked_again(self):
        self.cloud.change(1, status='SHUTOFF',
                          metadata={cloud_snapshot.PREEMPTED: 'x'})
        self.seen.refresh()
        self.assertEqual([], self.ended())

    def test_thread_survives_exceptions(self):
        ticks = []

        def tick():
            ticks.append(1)
            if len(ticks) < 3:
                raise RuntimeError('database is away')
            raise SystemExit
        with mock.patch.object(self.watch, 'tick', tick), \
                mock.patch.object(policy_watch.time, 'sleep'), \
                mock.patch.object(policy_watch, '_TICK', 0.01):
            self.assertRaises(SystemExit, self.watch._run)
        self.assertEqual(3, len(ticks))
