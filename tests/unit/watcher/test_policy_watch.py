"""Observer and watch: reports in, audits out."""

import dataclasses
import datetime
import time
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


class Case(fakes.WatcherTestCase):
    def setUp(self):
        super().setUp()
        self.servers = [fakes.server(1, 'h1'), fakes.server(2, 'h2')]
        self.cloud = fakes.FakeCloud(
            self.servers, [fakes.host('h1'), fakes.host('h2')])
        self.now = 985.0
        self.seen = cluster_state.ClusterState(
            settings.CONF, lambda: self.cloud, self.history,
            clock=lambda: self.now)
        self.leading = mock.Mock()
        self.leading.am_i_leader.return_value = True
        self.watch = policy_watch.PolicyWatch(
            settings.CONF, self.seen, self.leading)
        self.now = 1000.0       # each host has had the time to report
        self.seq = 0

    def report(self, name, **changes):
        self.seq += 1
        servers = [s for s in self.servers if s.host == name]
        self.seen.accept(fakes.report(
            name, servers, time=time.time(), seq=self.seq, **changes))

    def tick(self, seconds=1.0):
        self.now += seconds
        return self.watch.tick()

    def later(self, seconds):
        self.addCleanup(timeutils.clear_time_override)
        timeutils.set_time_override(
            timeutils.utcnow() + datetime.timedelta(seconds=seconds))

    def preempts(self):
        return [a for a in self.audits()
                if a.parameters['request'] == 'preempt']


class ObserverTest(Case):
    def test_reports_of_unknown_hosts_are_ignored(self):
        self.seen.refresh()
        self.report('h9')
        self.assertFalse(self.seen.arrived.is_set())
        self.report('h1')
        self.assertTrue(self.seen.arrived.is_set())
        self.assertEqual({'h1'}, set(self.seen.book.hosts()))

    def test_describe_host(self):
        self.assertEqual({}, self.seen.describe_host('h1'))
        self.seen.refresh()
        self.assertEqual({'aggregates': ['agg'], 'total': fakes.TOTAL},
                         self.seen.describe_host('h1'))

    def test_a_failed_refresh_keeps_what_is_known(self):
        self.seen.refresh()
        self.cloud.down = True
        self.assertRaises(cloud_errors.CloudError, self.seen.refresh)
        self.assertEqual({'h1', 'h2'}, set(self.seen.snapshot.hosts))

    def test_no_cluster_of_old_facts(self):
        everywhere = scope.ResolvedScope(frozenset({'h1', 'h2'}))
        locks = self.history.locks()
        self.assertRaises(cloud_errors.CloudError, self.seen.cluster,
                          everywhere, locks)
        self.seen.refresh()
        self.report('h1')
        found = self.seen.cluster(everywhere, locks)
        self.assertTrue(found.hosts['h1'].usable)
        self.assertFalse(found.hosts['h2'].usable)
        self.now += 121
        self.assertRaises(cloud_errors.CloudError, self.seen.cluster,
                          everywhere, locks)

    def test_other_policies_close_a_host(self):
        self.seen.refresh()
        self.report('h1')
        for policy in (['cpu <= 90% for 10s'], ['nonsense']):
            settings.CONF.set_override('policy', policy,
                                       'secondary_scheduler')
            found = self.seen.cluster(scope.ResolvedScope(frozenset({'h1'})),
                                      self.history.locks())
            self.assertFalse(found.hosts['h1'].usable)

    def test_reported_servers_of_deleted_flavors_are_looked_up(self):
        self.seen.refresh()
        hidden = fakes.server(3, 'h1')
        self.cloud.known[hidden.uuid] = hidden
        self.servers.append(hidden)
        self.servers.append(fakes.server(4, 'h1'))   # unknown to Nova
        self.report('h1')
        listed = {s.uuid: s for s in self.servers[:2]}
        with mock.patch.object(self.cloud, 'servers',
                               side_effect=lambda: dict(listed)):
            with mock.patch.object(self.cloud, 'server',
                                   wraps=self.cloud.server) as asked:
                self.seen.refresh_servers()
                self.assertIn(fakes.uid(3), self.seen.snapshot.servers)
                self.assertNotIn(fakes.uid(4), self.seen.snapshot.servers)
                self.seen.refresh_servers()
        strangers = [c for c in asked.call_args_list
                     if c[0][0] == fakes.uid(4)]
        self.assertEqual(1, len(strangers))

    def test_a_decision_asks_for_its_hosts_only(self):
        self.seen.refresh()
        self.cloud.change(1, status='SUSPENDED')
        self.cloud.change(2, status='SUSPENDED')
        new = fakes.server(3, 'h1')
        self.cloud.known[new.uuid] = new
        with mock.patch.object(self.cloud, 'servers') as every:
            self.seen.refresh_hosts(['h1'])
        every.assert_not_called()
        self.assertEqual(
            {fakes.uid(1): 'SUSPENDED', fakes.uid(2): 'ACTIVE',
             fakes.uid(3): 'ACTIVE'},
            {k: s.status for k, s in self.seen.snapshot.servers.items()})

    def test_nova_is_not_asked_for_what_the_agent_sees_as_well(self):
        def asked(*names):
            with mock.patch.object(self.cloud, 'servers_on',
                                   wraps=self.cloud.servers_on) as on:
                self.seen.refresh_hosts(names)
            return [one[0][0] for one in on.call_args_list]

        down = fakes.server(4, 'h1', status='SUSPENDED')
        self.cloud.known[down.uuid] = down
        self.seen.refresh()
        self.assertEqual(['h1'], asked('h1'), 'no report')
        self.report('h1')
        self.assertEqual([], asked('h1'))
        self.assertEqual(['h2'], asked('h1', 'h2'))
        self.now += 16
        self.assertEqual(['h1'], asked('h1'), 'too long ago')
        self.seen.refresh()
        self.servers.append(fakes.server(3, 'h1'))
        self.report('h1')
        self.assertEqual(['h1'], asked('h1'), 'the agent sees one more')
        self.servers.pop()
        self.report('h1')
        self.cloud.change(1, task_state='suspending')
        self.seen.refresh()
        self.assertEqual(['h1'], asked('h1'), 'somebody works on it')

    def test_what_has_left_the_hosts_of_a_decision(self):
        gone = fakes.server(3, 'h1')
        self.cloud.known[gone.uuid] = gone
        self.seen.refresh()
        self.cloud.change(1, host='h2')
        del self.cloud.known[gone.uuid]
        self.seen.refresh_hosts(['h1'])
        self.assertEqual(
            {fakes.uid(1): 'h2', fakes.uid(2): 'h2'},
            {k: s.host for k, s in self.seen.snapshot.servers.items()})
        # A whole host that was cleared is not asked for one by one.
        for number in range(10, 31):
            server = fakes.server(number, 'h1')
            self.cloud.known[server.uuid] = server
        self.seen.refresh()
        for number in range(10, 31):
            self.cloud.change(number, host='h2')
        with mock.patch.object(self.cloud, 'server') as singly:
            self.seen.refresh_hosts(['h1'])
        singly.assert_not_called()
        self.assertEqual({'h2'}, {
            s.host for s in self.seen.snapshot.servers.values()})

    def test_many_or_unnamed_hosts_are_listed_together(self):
        self.seen.refresh()
        for names in ((), ('h1', 'h2', 'h3')):
            with mock.patch.object(self.cloud, 'servers_on') as on:
                self.seen.refresh_hosts(names)
            on.assert_not_called()


class TotalsTest(Case):
    TEXT = 'slots <= 2 in aggregate:agg'

    def setUp(self):
        super().setUp()
        settings.CONF.set_override('policy', ['cpu <= 90% for 10s', self.TEXT],
                                   'secondary_scheduler')
        self.servers.append(fakes.server(3, 'h2'))
        self.cloud.known[fakes.uid(3)] = self.servers[2]
        self.add(fakes.host('h3'))
        self.seen.refresh()
        self.audit(1)

    def add(self, host):
        self.cloud.places[host.name] = host

    def items(self, *hosts):
        return self.seen.cluster(scope.ResolvedScope(frozenset(hosts)),
                                 self.history.locks()).items

    def test_who_exceeds_one_together_is_violated(self):
        self.report('h1')
        self.tick()
        self.assertEqual([], self.audits())
        with self.assertLogs(cluster_state.LOG.logger, 'WARNING') as logs:
            self.report('h2')
            self.tick()
        self.assertIn('slots <= 2 for 60s in aggregate:agg. 3 run',
                      logs.output[0])
        audit, = self.audits()
        # The others may have violations of their own.
        self.assertEqual(['h1'], audit.parameters['hosts'])
        self.assertFalse(self.seen.window.waiting)

    def test_it_is_told_anew_until_it_ends(self):
        for _ in range(2):
            for host in ('h1', 'h2'):
                self.report(host)
            self.tick(3)
        self.assertTrue(self.seen.window.waiting)
        self.servers.pop()
        self.report('h2')
        self.tick()
        self.assertFalse(self.seen.window.waiting)
        self.assertEqual(1, len(self.audits()))

    def test_one_that_migrates_is_one(self):
        self.servers[2] = dataclasses.replace(self.servers[0], host='h2')
        for host in ('h1', 'h2'):
            self.report(host)
        self.tick()
        self.assertEqual([], self.audits())

    def test_decisions_know_it(self):
        for status, reported, fails in (
                ('SUSPENDED', True, False), ('ACTIVE', False, False),
                ('ERROR', False, False), ('ACTIVE', True, True)):
            self.cloud.change(3, status=status)
            self.seen.refresh()
            self.report('h1')
            with mock.patch.object(self, 'servers',
                                   self.servers[:2 + reported]):
                self.report('h2')
            item, = self.items('h1', 'h2', 'h3', 'h9').values()
            self.assertEqual(('aggregate:agg', ('h1', 'h2', 'h3'), fails),
                             (item.name, item.hosts, item.violated))
            self.assertEqual(2, item.policies[0].threshold)

    def test_decisions_know_what_is_under_way(self):
        plan = self.plan(self.audit(2, audit_type='ONESHOT'))
        for kind, instance, target, counts in (
                ('suspend', 3, None, True), ('migrate', 3, 'h1', True),
                ('migrate', 3, 'h9', False), ('resume', 3, 'h2', False),
                ('suspend', 9, None, False)):
            action = self.action(plan, kind, instance, 'h2', target)
            found = self.seen.cluster(
                scope.ResolvedScope(frozenset({'h1', 'h2'})),
                self.history.locks(),
            )
            self.assertEqual([(kind, fakes.uid(instance), 'h2', target)]
                             if counts else [], [
                (one.kind, one.instance, one.source, one.target)
                for one in found.in_flight], kind)
            action.destroy()

    def test_what_runs_out_of_scope_leaves_less(self):
        self.report('h1')
        self.report('h2')
        item, = self.items('h2', 'h3').values()
        self.assertEqual((('h2', 'h3'), 1.0, True), (
            item.hosts, item.policies[0].threshold, item.violated))
        self.assertEqual({}, self.items('h9'))

    def test_hosts_of_other_aggregates(self):
        self.add(fakes.host('h2', place=scope.HostPlace()))
        self.seen.refresh()
        item, = self.items('h1', 'h2', 'h3').values()
        self.assertEqual(('h1', 'h3'), item.hosts)
        for host in ('h1', 'h2'):
            self.report(host)
        self.tick()
        self.assertEqual([], self.audits())


class ViolationsTest(Case):
    def setUp(self):
        super().setUp()
        self.seen.refresh()

    def answered(self):
        """Let h1 violate its policies; return the audit, which is over."""
        self.audit(1)
        self.report('h1', violated=True)
        self.tick()
        audit, = self.audits()
        audit.state = 'SUCCEEDED'
        audit.save()
        return audit

    def test_a_violation_becomes_one_audit(self):
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

    def test_a_new_engine_hears_every_host_first(self):
        self.audit(1)
        self.watch = policy_watch.PolicyWatch(
            settings.CONF, self.seen, self.leading)
        self.report('h1', violated=True)
        self.assertTrue(self.tick())
        self.assertEqual([], self.audits())
        self.report('h2')
        self.assertFalse(self.tick())
        self.assertEqual(1, len(self.audits()))

    def test_a_new_engine_waits_for_no_dead_agent(self):
        self.audit(1)
        self.watch = policy_watch.PolicyWatch(
            settings.CONF, self.seen, self.leading)
        self.report('h1', violated=True)
        self.tick(14)
        self.assertEqual([], self.audits())
        self.report('h1', violated=True)
        self.tick()
        self.assertEqual(1, len(self.audits()))

    def test_nothing_without_the_switch(self):
        self.audit(1, state='SUSPENDED')
        self.report('h1', violated=True)
        self.tick()
        self.assertEqual([], self.audits())

    def test_only_hosts_in_the_scope(self):
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

    def test_the_next_leader_goes_on(self):
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

    def test_one_in_flight_then_the_others_merged(self):
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

    def test_a_failed_audit_is_tried_again(self):
        self.audit(1)
        self.report('h1', violated=True)
        self.tick()
        first, = self.audits()
        first.state = 'FAILED'
        first.save()
        self.report('h1', violated=True)
        self.tick(3)
        self.assertEqual(2, len(self.audits()))

    def test_a_failed_action_does_not_wait_for_the_backoff(self):
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

    def test_a_dropped_plan_covers_nothing(self):
        first = self.answered()
        self.report('h1', violated=True)
        plan = self.plan(first, state='CANCELLED')
        plan.status_message = history.DROPPED
        plan.save()
        self.tick(0.5)
        self.assertEqual(1, len(self.audits()), 'one for each window')
        self.tick(2)
        self.assertEqual(2, len(self.audits()))

    def test_what_an_operator_cancels_is_not_planned_again_at_once(self):
        first = self.answered()
        self.report('h1', violated=True)
        self.action(self.plan(first, state='CANCELLED'), state='CANCELLED')
        self.tick(3)
        self.assertEqual(1, len(self.audits()))

    def test_a_new_violation_waits_for_no_audit_that_did_nothing(self):
        self.answered()
        self.later(3)
        self.report('h1', violated=True)
        self.tick(3)
        self.assertEqual(1, len(self.audits()), 'it goes on')
        self.report('h1')
        self.report('h1', violated=True)
        self.tick()
        self.assertEqual(2, len(self.audits()), 'it begins anew')

    def test_a_new_violation_waits_for_operations_to_settle(self):
        first = self.answered()
        self.action(self.plan(first), 'migrate', 1, target='h2')
        self.later(3)
        self.report('h1')
        self.report('h1', violated=True)
        self.tick(3)
        self.assertEqual(1, len(self.audits()))

    def test_at_most_so_many_a_minute(self):
        self.audit(1)
        for number in range(10):
            self.audit(10 + number, audit_type='ONESHOT', state='FAILED',
                       parameters={'request': 'preempt', 'hosts': ['h1'],
                                   'switch': fakes.uid(1)})
        self.report('h1', violated=True)
        self.tick()
        self.assertEqual(10, len(self.audits()))

    def test_locked_hosts_wait(self):
        self.action(self.plan(self.audit(1)), source='h1')
        self.report('h1', violated=True)
        self.assertTrue(self.tick())
        self.assertEqual([], self.audits())

    def test_floored_too_long(self):
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


class ChoresTest(Case):
    def setUp(self):
        super().setUp()
        self.seen.refresh()

    def test_lost_trigger(self):
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

    def test_a_switch_that_an_upgrade_cancelled_is_left_alone(self):
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

    def test_empty_and_closed_hosts_need_nothing(self):
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

    def test_a_host_closed_by_others_is_switched_off_too(self):
        """What an agent reserves it would open again."""
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

    def test_a_new_switch_opens_what_an_old_one_closed(self):
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

    def test_a_follower_switches_nothing(self):
        self.leading.am_i_leader.return_value = False
        self.audit(1, state='CANCELLED')
        self.tick()
        self.assertEqual([], self.cloud.calls)

    def test_a_switch_that_has_not_begun_holds_nothing(self):
        self.audit(1, state='CANCELLED')
        self.audit(2, state='PENDING', start_time=timeutils.utcnow()
                   + datetime.timedelta(hours=1))
        self.tick()
        self.assertEqual({'close'}, {verb for verb, _ in self.cloud.calls})

    def test_a_paused_switch_neither_closes_nor_opens(self):
        self.cloud.places['h1'] = fakes.host('h1', switched_off=True)
        self.seen.refresh()
        self.audit(1, state='SUSPENDED')
        self.tick()
        self.assertEqual([], self.cloud.calls)

    def test_another_switch_holds_the_hosts(self):
        self.audit(1, state='CANCELLED')
        self.audit(2, state='SUSPENDED')
        self.tick()
        self.assertEqual([], self.audits())
        self.assertEqual([], self.cloud.calls)

    def test_closing_fails(self):
        self.audit(1, state='CANCELLED')
        with mock.patch.object(self.cloud, 'close_admission',
                               side_effect=cloud_errors.CloudError('no')):
            self.tick()
        self.assertEqual(1, len(self.audits()))
        self.assertFalse(self.seen.snapshot.hosts['h1'].switched_off)
        self.tick(6)
        self.assertTrue(self.seen.snapshot.hosts['h1'].switched_off)

    def test_marks_of_woken_instances_go(self):
        mark = {cloud_snapshot.PREEMPTED: 'x'}
        self.cloud.change(1, metadata=mark)
        self.cloud.change(2, metadata=mark)
        self.seen.refresh()
        self.cloud.change(2, status='SUSPENDED')
        self.tick()
        self.assertEqual([('delete', fakes.uid(1), cloud_snapshot.PREEMPTED)],
                         self.cloud.calls)

    def test_marks_of_instances_under_way_stay(self):
        self.cloud.change(1, metadata={cloud_snapshot.PREEMPTED: 'x'})
        self.seen.refresh()
        self.action(self.plan(self.audit(1)))
        self.tick()
        self.assertEqual([], self.cloud.calls)

    def test_marks_stay_while_nova_is_away(self):
        self.cloud.change(1, metadata={cloud_snapshot.PREEMPTED: 'x'})
        self.seen.refresh()
        self.cloud.down = True
        self.tick()
        self.assertEqual([], self.cloud.calls)

    def test_who_has_fallen_is_told_once(self):
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
        """Let both hosts say that they ended instance 1; return the calls."""
        for host in ('h1', 'h2'):
            self.report(host, killed={fakes.uid(1): 'memory: 3 MiB left'})
        self.seen.refresh()
        self.tick(6)
        calls, self.cloud.calls[:] = list(self.cloud.calls), []
        return [call[:3] for call in calls]

    def test_who_was_ended_by_its_host_waits_to_return(self):
        marked = [('set', fakes.uid(1), cloud_snapshot.PREEMPTED)]
        self.seen.refresh()
        self.assertEqual([], self.ended())  # Nova has not seen it end
        self.cloud.change(1, status='SHUTOFF', task_state='powering-on')
        self.assertEqual([], self.ended())  # its owner was faster
        self.cloud.change(1, task_state=None, host='h3')
        self.assertEqual([], self.ended())  # it is nobody's of theirs
        self.cloud.change(1, host='h1')
        self.cloud.down = True
        self.tick(6)
        self.cloud.down = False
        self.assertEqual(marked, self.ended())
        self.cloud.change(1, status='SHUTOFF', metadata={})
        self.assertEqual([], self.ended())  # its owner wants it so
        self.report('h1')
        self.tick(6)
        self.assertEqual(marked, self.ended())  # that is another time

    def test_who_is_marked_is_not_marked_again(self):
        self.cloud.change(1, status='SHUTOFF',
                          metadata={cloud_snapshot.PREEMPTED: 'x'})
        self.seen.refresh()
        self.assertEqual([], self.ended())

    def test_the_thread_survives_problems(self):
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
