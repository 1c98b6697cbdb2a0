# SPDX-License-Identifier: Apache-2.0

"""Strategy on Watcher's real objects."""

import contextlib
import dataclasses
import datetime
import hashlib
import io
import json
import os
import pathlib
import tempfile
from unittest import mock
import uuid

from oslo_utils import timeutils
from stevedore.driver import DriverManager

from secondary_scheduler.cmd import plan
from secondary_scheduler.decisions import base as decisions
from secondary_scheduler.decisions.context_switch import (
    ContextSwitchDecision,
)
from secondary_scheduler.estimation import learning
from secondary_scheduler.model import cluster, reports, vocabulary
from secondary_scheduler.plans import model_documents, operations
from secondary_scheduler.policies import language
from secondary_scheduler.watcher import (
    breaker,
    cloud_errors,
    cloud_snapshot,
    cluster_state,
    goal,
    model_files,
    settings,
    strategy,
)
from tests.unit.watcher import fakes

Kind = operations.OperationKind


class StrategyTest(fakes.WatcherTestCase):
    def setUp(self):
        super().setUp()
        patcher = mock.patch.object(
            strategy.SecondaryWorkloads, 'get_goal',
            return_value=goal.SecondaryWorkloadsGoal({}))
        patcher.start()
        self.addCleanup(patcher.stop)
        self.servers = [fakes.server(i, 'h1') for i in (1, 2, 3)]
        self.cloud = fakes.FakeCloud(
            self.servers, [fakes.host('h1'), fakes.host('h2')])
        self.now = 1000.0
        self.seen = cluster_state.ClusterState(
            settings.CONF, lambda: self.cloud, self.history,
            clock=lambda: self.now)
        self.seen.refresh()
        self.time = 0.0

    def report(self, name, primary, **changes):
        import time
        servers = [s for s in self.cloud.known.values() if s.host == name
                   and s.status == 'ACTIVE']
        self.time += 1
        self.seen.accept(fakes.report(name, servers, primary,
                                      time=time.time(),
                                      seq=int(self.time), **changes))

    def run_audit(self, audit, **parameters):
        ran = strategy.SecondaryWorkloads({})
        ran.audit_scope = audit.scope
        ran.input_parameters.update(parameters)
        with mock.patch.object(strategy.SecondaryWorkloads, 'cluster_state',
                               self.seen):
            solution = ran.execute(audit)
        self.assertEqual('secondary', ran.planner)
        return solution

    def kinds(self, solution):
        return sorted((a['action_type'].removeprefix('secondary_'),
                       a['input_parameters'].get('target') or '-')
                      for a in solution.actions)

    def oneshot(self, **parameters):
        parameters = {'request': 'preempt', 'switch': fakes.uid(1),
                      'batch': 'b', **parameters}
        audit = self.audit(2, audit_type='ONESHOT', parameters=parameters)
        return self.run_audit(audit, **parameters)

    def test_violated_host_is_relieved(self):
        self.audit(1)
        self.report('h1', 95.0, violated=True)
        self.report('h2', 75.0)
        solution = self.oneshot(hosts=['h1'])
        self.assertEqual([('migrate', 'h2'), ('suspend', '-'),
                          ('suspend', '-')], self.kinds(solution))
        values = {i.name: i.value for i in solution.efficacy_indicators}
        self.assertEqual(2, values['preempted_instances_count'])
        self.assertEqual(1024, values['mem_mb_freed'])
        self.assertEqual(1, values['migrated_instances_count'])
        self.assertEqual(1, values['violated_hosts_resolved'])
        self.assertEqual(0, values['work_losing_instances_count'])
        first = solution.actions[0]['input_parameters']
        self.assertEqual(('b', 'preempt', 'h1'), (
            first['batch'], first['request'], first['source']))

    def link_report(self, primary, violated=False):
        """Report a policy on the link, and instances that use 20 % of it."""
        link = reports.PolicyReport(
            'net_in <= 80% for 10s', 'net_in', 80.0, 10, None, 0,
            reports.PolicyState.VIOLATED if violated
            else reports.PolicyState.HELD)
        for name, used in (('h1', primary), ('h2', 75.0)):
            known = fakes.report(name)
            self.report(
                name, 10.0, usage={'net_in': used},
                capacities={'net_in': 125.0}, policies=(
                    *known.policies, link if name == 'h1' else
                    dataclasses.replace(link, state=(
                        reports.PolicyState.HELD))),
                instances=[reports.InstanceReport(
                    one.uuid, one.priority, 5.0, None, usage={'net_in': 20.0})
                    for one in self.cloud.known.values()
                    if one.host == name and one.status == 'ACTIVE'])

    def test_return_counts_with_the_use_of_the_preemption(self):
        self.audit(1)
        self.link_report(65.0, violated=True)
        solution = self.oneshot(hosts=['h1'])
        self.assertEqual([('suspend', '-')] * 3, self.kinds(solution))
        for number, action in zip((1, 2, 3), sorted(
                solution.actions, key=lambda one: one['resource_id']
                if 'resource_id' in one else one['input_parameters'][
                    'resource_id']), strict=True):
            self.assertEqual({'net_in': 25.0},
                             action['input_parameters']['used'])
            self.cloud.change(number, status='SUSPENDED', metadata={
                cloud_snapshot.PREEMPTED: 'x',
                cloud_snapshot.USED: 'net_in=25.000'})
        for primary, returns in ((65.0, 0), (59.0, 1), (39.0, 2)):
            self.now += 10.0
            self.seen.refresh()
            self.link_report(primary)
            solution = self.run_audit(self.audit(
                int(primary), audit_type='ONESHOT'), request='return')
            self.assertEqual([('resume', 'h1')] * returns,
                             self.kinds(solution))

    def relieve(self):
        """Return the operations that relieve h1, if it has its agents."""
        self.now += 10.0    # no batch delays the refresh
        self.seen.refresh()
        self.report('h1', 95.0, violated=True)
        self.report('h2', 75.0)
        self.asked += 1
        return [kind for kind, _target in self.kinds(self.run_audit(
            self.audit(self.asked, audit_type='ONESHOT'), request='preempt',
            hosts=['h1']))]

    def test_migrations_respect_placement_constraints(self):
        self.asked = 1
        self.audit(1)
        suspended = ['suspend'] * 3
        self.assertIn('migrate', self.relieve())
        group = cloud_snapshot.ServerGroup('g', True, frozenset(
            {'vm', *map(fakes.uid, (1, 2, 3))}))
        self.cloud.groups = [group]
        self.cloud.primaries = {'vm': 'h2'}
        self.assertEqual(suspended, self.relieve())
        self.cloud.primaries = {'vm': 'h1'}
        self.assertIn('migrate', self.relieve())
        self.cloud.groups = []
        self.cloud.places['h2'] = fakes.host('h2', metadata={
            'filter_tenant_id': frozenset({'p2'})})
        self.assertEqual(suspended, self.relieve())
        self.cloud.places['h2'] = fakes.host('h2')
        with tempfile.NamedTemporaryFile('w', suffix='.yaml') as file:
            settings.CONF.set_override('constraints_file', file.name,
                                       'secondary_watcher')
            file.write('- quarantine: {hosts: [h2]}\n')
            file.flush()
            self.assertEqual(suspended, self.relieve())

    def test_continuous_audit_writes_its_model(self):
        """The file is a model for the commands, and for its owner only."""
        audit = self.audit(1, parameters={'decision': 'context-switch'})
        self.report('h1', 10.0)
        self.report('h2', 20.0)
        with tempfile.TemporaryDirectory() as directory:
            settings.CONF.set_override('model_directory', directory,
                                       'secondary_watcher')
            self.oneshot(hosts=['h1'])
            self.assertEqual([], os.listdir(directory))
            self.now += 10.0    # no batch delays the audit
            for _round in range(2):
                self.run_audit(audit, decision='context-switch')
            path, = pathlib.Path(directory).iterdir()
            self.assertEqual((f'{audit.uuid}.json', 0o600), (
                path.name, path.stat().st_mode & 0o777))
            found = model_documents.read_model(path.read_text())
            self.assertEqual({one.uuid for one in self.servers},
                             found.instances.keys())
            self.assertEqual([10.0, 20.0], [
                found.hosts[name].cpu_primary for name in ('h1', 'h2')])
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                self.assertEqual(0, plan.run('plan_optimise', {
                    'model': str(path), 'request': 'select', 'plan': None,
                    'objective': 'cost', 'budget': 1000}))
            self.assertEqual(1, json.loads(out.getvalue())['schema'])
            with mock.patch.object(model_files, 'write_model',
                                   side_effect=TypeError('no document')), (
                    self.assertLogs(model_files.LOG.logger, 'WARNING')):
                self.run_audit(audit, decision='context-switch')
            self.assertEqual([path], list(pathlib.Path(directory).iterdir()))
        with self.assertLogs(model_files.LOG.logger, 'WARNING') as logged:
            self.run_audit(audit, decision='context-switch')
        self.assertIn(f'{directory}', logged.output[0])

    def test_exceeded_aggregate_policy_preempts_the_lowest_priority(self):
        settings.CONF.set_override('policy', [
            'cpu <= 90% for 10s', 'slots <= 2 in aggregate:agg'],
            'secondary_scheduler')
        self.cloud.change(2, mark=vocabulary.SecondaryMark(priority=1))
        self.seen.refresh()
        self.audit(1)
        digest = language.fingerprint(language.parse_all(
            settings.CONF.secondary_scheduler.policy))
        for host in ('h1', 'h2'):
            self.report(host, 10.0, policies_hash=digest)
        # A migration within the aggregate would not help.
        suspended, = self.oneshot(hosts=['h1', 'h2']).actions
        self.assertEqual(('secondary_suspend', fakes.uid(2)), (
            suspended['action_type'],
            suspended['input_parameters']['resource_id']))
        # No other instance is preempted while that one is.
        self.action(self.plan(self.audit(3, audit_type='ONESHOT')),
                    instance=2)
        self.assertEqual([], self.run_audit(
            self.audit(4, audit_type='ONESHOT'), request='preempt',
            hosts=['h2']).actions)

    def test_decision_uses_learned_durations(self):
        self.audit(1)
        self.report('h1', 95.0, violated=True)
        self.seen.durations = learning.LearnedDurations(
            {'suspend': learning.Line(1.0, 6.0, 1.1, 60)})
        loaded = []

        def load(*args, **kwargs):
            manager = DriverManager(*args, **kwargs)
            loaded.append(manager.driver)
            return manager
        with mock.patch.object(strategy.driver, 'DriverManager', load):
            self.oneshot(hosts=['h1'])
        self.assertEqual(7.0, loaded[-1].durations.predict('suspend'))

    def test_log_names_hosts_that_take_no_instance(self):
        self.audit(1)
        self.report('h1', 95.0, violated=True)
        with self.assertLogs(strategy.LOG.logger, 'INFO') as logs:
            self.oneshot(hosts=['h1'])
        self.assertIn('Decision preempt: 3 x suspend; hosts that take no '
                      'instance at the moment: h1 h2.', '\n'.join(logs.output))

    def test_servers_are_refreshed_before_a_decision(self):
        self.audit(1)
        self.report('h1', 95.0, violated=True)
        for i in (1, 2):
            del self.cloud.known[fakes.uid(i)]
        self.report('h1', 95.0, violated=True)
        self.assertEqual([('suspend', '-')],
                         self.kinds(self.oneshot(hosts=['h1'])))

    def test_audit_of_a_switch_that_is_off_does_nothing(self):
        self.audit(1, state='CANCELLED')
        self.report('h1', 95.0, violated=True)
        solution = self.oneshot(hosts=['h1'])
        self.assertEqual([], solution.actions)
        self.assertEqual({0}, {i.value for i in solution.efficacy_indicators})

    def test_audit_with_a_plan_does_not_run_again(self):
        self.audit(1)
        self.report('h1', 95.0, violated=True)
        audit = self.audit(2, audit_type='ONESHOT')
        self.plan(audit)
        self.assertEqual([], self.run_audit(
            audit, request='preempt').actions)

    def test_auto_preempts_or_returns(self):
        audit = self.audit(1)
        self.report('h1', 95.0, violated=True)
        self.assertEqual(3, len(self.run_audit(audit).actions))
        for i in (1, 2, 3):
            self.cloud.change(i, status='SUSPENDED',
                              metadata={cloud_snapshot.PREEMPTED: 'x'})
        self.report('h1', 10.0)
        solution = self.run_audit(audit)
        self.assertEqual([('resume', 'h1')] * 3, self.kinds(solution))
        values = {i.name: i.value for i in solution.efficacy_indicators}
        self.assertEqual(40.0, values['cpu_usage_highest_predicted'])

    def test_queue_order_is_configurable(self):
        audit = self.audit(1)
        now = datetime.datetime.now(datetime.UTC)
        for number, priority, hours in ((1, 5, 0), (2, 4, 3), (3, 3, 1)):
            self.cloud.change(
                number, status='SUSPENDED',
                metadata={cloud_snapshot.PREEMPTED: 'x',
                          vocabulary.PRIORITY_METADATA: str(priority)},
                updated=now - datetime.timedelta(hours=hours))
        self.report('h1', 75.0)
        for order, first in (('priority', 1), ('aged', 2)):
            settings.CONF.set_override('order', order, 'secondary_leases')
            self.assertEqual([fakes.uid(first)], [
                one['input_parameters']['resource_id']
                for one in self.run_audit(audit).actions])

    def carry_out(self, audit, actions, fails):
        """Carry out actions; return the numbers of failed instances."""
        plan, failed = self.plan(audit, 'SUCCEEDED'), set()
        for one in actions:
            kind = one['action_type'].removeprefix('secondary_')
            given = one['input_parameters']
            number = uuid.UUID(given['resource_id']).int
            action = self.action(plan, kind, number, lease=given['lease'])
            action.state = 'SUCCEEDED'
            if (kind, number) == fails:
                action.state = 'FAILED'
                failed.add(number)
            else:
                marks = self.cloud.known[fakes.uid(number)].metadata
                self.cloud.change(
                    number, status=self.cloud.GOALS[kind],
                    metadata={**marks, cloud_snapshot.PREEMPTED: 'x'}
                    if kind == 'suspend' else {
                        name: value for name, value in marks.items()
                        if name != cloud_snapshot.PREEMPTED})
            action.save()
        return failed

    def tries(self, fails):
        """Run audits for two hours; return the failures in each hour.

        ``fails`` returns the operation that fails, given the minute and how
        many have failed.
        """
        # The breaker allows no preemption, but does not limit returns.
        settings.CONF.set_override('breaker_minimum', 0, 'secondary_watcher')
        self.addCleanup(settings.CONF.clear_override, 'breaker_minimum',
                        'secondary_watcher')
        audit, tried = self.audit(1), []
        self.addCleanup(timeutils.clear_time_override)
        begin, self.alone = timeutils.utcnow(), 0
        for minute in range(0, 2 * 60, 2):
            timeutils.set_time_override(
                begin + datetime.timedelta(minutes=minute))
            self.now += 100
            self.seen.refresh()
            self.report('h1', 10.0)
            if self.carry_out(audit, self.run_audit(audit).actions,
                              fails(minute, len(tried))):
                tried.append(minute)
            self.alone += len({self.cloud.known[fakes.uid(number)].status
                               for number in (1, 2)}) == 2
        return [sum(hour == minute // 60 for minute in tried)
                for hour in range(2)]

    def lease(self, first='SUSPENDED', second='SUSPENDED'):
        for number, status in ((1, first), (2, second)):
            self.cloud.change(
                number,
                status=status,
                metadata={
                    cloud_snapshot.PREEMPTED: 'x',
                    vocabulary.LEASE_METADATA: 'l',
                },
            )

    def test_failed_return_is_retried_with_back_off(self):
        self.lease()
        self.assertEqual([6, 0], self.tries(
            lambda minute, _tried: ('resume', 2) if minute < 60 else ()))
        self.assertLessEqual(self.alone, 2 * 6)
        self.assertEqual(['ACTIVE'] * 2, [
            self.cloud.known[fakes.uid(number)].status for number in (1, 2)])

    def test_failed_returns_of_any_member_count_for_the_lease(self):
        def fails(_minute, tried):
            down = [number for number in (1, 2) if self.cloud.known[
                fakes.uid(number)].status == 'SUSPENDED']
            return 'resume', down[tried % len(down)] if down else 0

        self.lease()
        self.assertEqual([6, 1], self.tries(fails))

    def test_failed_preemption_is_retried_with_back_off(self):
        self.lease('ACTIVE', 'ERROR')
        self.assertEqual([6, 1], self.tries(
            lambda _minute, _tried: ('suspend', 1)))

    def test_violation_left_to_the_agent_is_not_resolved(self):
        audit = self.audit(1)
        self.action(self.plan(audit), 'migrate', 9, source='h1')
        self.report('h1', 95.0, violated=True)
        with self.assertLogs(strategy.LOG.logger, 'WARNING') as logs:
            solution = self.run_audit(audit)
        self.assertIn('on h1 is left', logs.output[0])
        self.assertEqual([], solution.actions)
        values = {i.name: i.value for i in solution.efficacy_indicators}
        self.assertEqual(0, values['violated_hosts_resolved'])

    def test_hosts_out_of_scope_are_not_touched(self):
        audit = self.audit(1, scope=[{'compute': [{'exclude': [
            {'compute_nodes': [{'name': 'h1'}]}]}]}])
        self.report('h1', 95.0, violated=True)
        self.assertEqual([], self.run_audit(audit).actions)

    def test_drain_uses_a_host_that_was_opened_a_moment_ago(self):
        audit = self.audit(1)
        for name in ('h1', 'h2'):
            self.report(name, 10.0)
        opened = self.cloud.places['h2']
        self.cloud.places['h2'] = dataclasses.replace(
            opened, reserved=dict(opened.total))
        self.seen.refresh()
        self.cloud.places['h2'] = opened
        self.assertEqual({('migrate', 'h2')}, set(self.kinds(
            self.run_audit(audit, request='drain', hosts=['h1']))))

    def test_drain_moves_instances_or_suspends_them(self):
        self.report('h1', 10.0)
        self.report('h2', 10.0)
        audit = self.audit(3, audit_type='ONESHOT')
        # h2 is not switched on, so it is no target.
        self.assertEqual([('suspend', '-')] * 3, self.kinds(
            self.run_audit(audit, request='drain', hosts=['h1'])))
        self.assertEqual([], self.run_audit(audit, request='drain').actions)
        self.audit(1)
        self.assertEqual([('migrate', 'h2')] * 3, self.kinds(
            self.run_audit(audit, request='drain', hosts=['h1'])))

    def test_breaker_limits_preemptions(self):
        self.audit(1)
        settings.CONF.set_override('breaker_minimum', 1, 'secondary_watcher')
        self.addCleanup(settings.CONF.clear_override, 'breaker_minimum',
                        'secondary_watcher')
        self.report('h1', 95.0, violated=True)
        with self.assertLogs(breaker.LOG.logger, 'ERROR') as logs:
            solution = self.oneshot(hosts=['h1'])
        self.assertEqual([('suspend', '-')], self.kinds(solution))
        self.assertIn('Circuit breaker', logs.output[0])
        values = {i.name: i.value for i in solution.efficacy_indicators}
        self.assertEqual(0, values['violated_hosts_resolved'])

    def test_a_thousand_violations_at_once(self):
        """At most a tenth of the instances is preempted for them."""
        names = [f'n{number}' for number in range(1000)]
        self.cloud.known = {one.uuid: one for one in (
            fakes.server(number, name)
            for number, name in enumerate(names, 1))}
        self.cloud.places = {name: fakes.host(name) for name in names}
        self.seen.refresh()
        self.audit(1)
        for name in names:
            self.report(name, 95.0, violated=True)
        plan = operations.Plan(tuple(
            operations.Operation(number, Kind.SUSPEND, fakes.uid(number),
                                 fakes.uid(number), name, None)
            for number, name in enumerate(names, 1)))
        with (self.deciding(plan),
              self.assertLogs(breaker.LOG.logger, 'ERROR') as logs):
            solution = self.oneshot(hosts=names)
        self.assertEqual([('suspend', '-')] * 100, self.kinds(solution))
        self.assertIn('at most 100', logs.output[0])

    def test_plan_with_faults_is_not_carried_out(self):
        self.audit(1)
        self.report('h1', 95.0, violated=True)
        settings.CONF.set_override('operations_per_host', 3,
                                   'secondary_watcher')
        self.addCleanup(settings.CONF.clear_override, 'operations_per_host',
                        'secondary_watcher')
        with mock.patch.object(strategy.checker, 'check',
                               return_value=['wrong']) as checked:
            self.assertEqual([], self.oneshot(hosts=['h1']).actions)
        self.assertEqual(3, checked.call_args.args[2])

    def test_errors_fail_one_shot_audits_but_not_the_switch(self):
        audit = self.audit(1)
        self.cloud.down = True
        self.assertEqual([], self.run_audit(audit).actions)
        self.assertRaises(cloud_errors.CloudError, self.oneshot, hosts=['h1'])

    def test_continuous_audit_waits_for_a_batch(self):
        switch = self.audit(1)
        self.report('h1', 95.0, violated=True)
        self.now += 16      # the list of servers is old
        rounds = []

        def servers_on(name):
            rounds.append(self.run_audit(switch).actions)
            return {s.uuid: s for s in self.servers if s.host == name}

        with mock.patch.object(self.cloud, 'servers_on', servers_on):
            self.assertEqual(3, len(self.oneshot(hosts=['h1']).actions))
        self.assertEqual([[]], rounds)
        # Other requests wait for the first calls of the plan.
        self.assertEqual([], self.run_audit(switch).actions)
        self.now += 2
        self.assertEqual(3, len(self.run_audit(switch).actions))

    def test_continuous_audit_waits_for_a_batch_that_begins_meanwhile(self):
        switch = self.audit(1)
        self.report('h1', 95.0, violated=True)
        with contextlib.ExitStack() as stack:

            def check(*things):
                stack.enter_context(self.seen.batch('b'))
                return []

            with mock.patch.object(strategy.checker, 'check', check):
                self.assertEqual([], self.run_audit(switch).actions)
        self.now += 2
        self.assertEqual(3, len(self.run_audit(switch).actions))

    def test_refresh_waits_for_a_batch_for_a_limited_time(self):
        pauses = []

        def sleep(seconds):
            pauses.append(seconds)
            self.now += 1

        with mock.patch.object(cluster_state.time, 'sleep', sleep):
            with self.seen.batch('b'):
                self.seen.refresh()     # waits for a limited time
            self.assertEqual(10, len(pauses))
            self.seen.refresh()
            self.assertEqual(12, len(pauses))
            self.seen.refresh()
        self.assertEqual(12, len(pauses))

    def test_failed_batch_does_not_stop_continuous_audits(self):
        switch = self.audit(1)
        self.report('h1', 95.0, violated=True)
        self.now += 16      # the list of servers is old
        self.cloud.down = True
        self.assertRaises(cloud_errors.CloudError, self.oneshot, hosts=['h1'])
        self.cloud.down = False
        self.assertEqual(3, len(self.run_audit(switch).actions))

    def test_locked_instances_are_not_touched(self):
        audit = self.audit(1)
        self.report('h1', 10.0)
        for i in (1, 2, 3):
            self.cloud.change(i, status='SUSPENDED',
                              metadata={cloud_snapshot.PREEMPTED: 'x'})
        self.action(self.plan(audit), 'resume', 1, source='h9')
        self.assertEqual([('resume', 'h1')] * 2,
                         self.kinds(self.run_audit(audit)))

    # Context switches

    def switch_plan(self, *ops, **claim):
        states = {one.uuid: operations.ClaimedState(
            cluster.InstanceState.SUSPENDED, one.host)
            for one in self.servers}
        return operations.Plan(ops, switch=operations.SwitchClaim(
            **{'objective': 'cost', 'value': 1536.0, 'bound': 1024.0,
               'status': 'feasible', 'states': states, 'selected': 2,
               'bypasses': 1, **claim}))

    @contextlib.contextmanager
    def deciding(self, *plans):
        """Let a driver return plans, and yield the requests to it."""
        decision = mock.Mock()
        decision.decide.side_effect = plans
        with (mock.patch.object(strategy, 'load_decision',
                                return_value=decision) as load,
              mock.patch.object(strategy.checker, 'check',
                                return_value=[]) as check):
            self.loaded, self.checked = load, check
            yield decision.decide.call_args_list

    def both(self):
        """Label two instances as one lease; return suspends of both."""
        for number, name in ((1, 'vm10'), (2, 'vm9')):
            self.cloud.change(number, name=name, metadata={
                vocabulary.LEASE_METADATA: 'l'})
        self.seen.refresh()
        return [operations.Operation(
            number, Kind.SUSPEND, fakes.uid(number), 'p1:l', 'h1', None,
            start_s=number - 1.0, duration_s=6.0) for number in (1, 2)]

    def switch(self, *plans, audit=None, **parameters):
        self.report('h1', 10.0)
        audit = audit or self.audit(1)
        with self.deciding(*plans) as requests:
            solution = self.run_audit(audit, **{
                'decision': 'context-switch', 'request': 'select',
                **parameters})
        self.requests = [call.args[1] for call in requests]
        return solution

    def test_select_suspends_a_lease_by_one_action(self):
        both = self.both()
        action, = self.switch(self.switch_plan(*both)).actions
        self.assertEqual('secondary_suspend_lease', action['action_type'])
        given = action['input_parameters']
        self.assertEqual(('p1:l', 'select', [], fakes.uid(2)), (
            given['lease'], given['request'], given['after'],
            given['resource_id']))
        # In the natural order of the names, with what each of them wants.
        self.assertEqual(
            [{'resource_id': fakes.uid(number), 'source': 'h1',
              'wanted_cpu': 0.2} for number in (2, 1)], given['members'])

    def test_higher_lease_displaces_a_lower_one_as_a_whole(self):
        """With the driver itself, from reports to actions."""
        label = {vocabulary.LEASE_METADATA: 'low'}
        for number, name in ((1, 'low-2'), (2, 'low-1')):
            self.cloud.change(number, name=name, metadata=label,
                              mark=vocabulary.SecondaryMark(priority=2))
        self.cloud.change(
            3, name='high', status='SUSPENDED', vcpus=2, metadata={
                cloud_snapshot.PREEMPTED: 'x',
                cloud_snapshot.WANTED_CPU: '1.4'},
            mark=vocabulary.SecondaryMark(priority=8))
        self.seen.refresh()
        self.report('h1', 10.0)     # 1.58 CPUs are left for secondaries
        audit = self.audit(1)
        with mock.patch.object(
                strategy, 'load_decision', lambda name, *given:
                ContextSwitchDecision(*given[:2], order=given[2])):
            solution = self.run_audit(audit, decision='context-switch')
        suspend, resume = solution.actions
        self.assertEqual(
            [('secondary_suspend_lease', 'p1:low'),
             ('secondary_resume', fakes.uid(3))],
            [(one['action_type'], one['input_parameters']['lease'])
             for one in (suspend, resume)])
        self.assertEqual([fakes.uid(2), fakes.uid(1)], [
            one['resource_id']
            for one in suspend['input_parameters']['members']])
        self.assertEqual([suspend['input_parameters']['operation_id']],
                         resume['input_parameters']['after'])
        values = {i.name: i.value for i in solution.efficacy_indicators}
        self.assertEqual((1, 1, 0), (
            values['selected_leases_count'], values['local_resumes_count'],
            values['remote_resumes_count']))

    def test_preemption_for_a_violation_stays_one_action_each(self):
        plan = dataclasses.replace(
            self.switch_plan(*self.both()), switch=None)
        self.assertEqual(['secondary_suspend'] * 2, [
            one['action_type'] for one in self.switch(
                plan, request='preempt').actions])

    def test_demand_is_stored_for_context_switches_only(self):
        plan = dataclasses.replace(
            self.switch_plan(*self.both()), switch=None)
        with self.deciding(plan):
            solution = self.run_audit(self.audit(1), request='preempt')
        # An applier of the release before rejects this parameter.
        self.assertNotIn('wanted_cpu',
                         solution.actions[0]['input_parameters'])

    def test_parameters_are_passed_to_the_decision(self):
        self.switch(operations.Plan(), objective='span',
                    minimum_run_time=60, displacement_margin=0.2,
                    headroom=0.3, most_operations=7, budget=9)
        request, = self.requests
        self.assertEqual(
            ('select', ('h1', 'h2'), decisions.SwitchOptions(
                'span', 60, 0.2, 0.3, 7)),
            (request.kind, request.hosts, request.switch))

    def test_auto_selects_if_there_is_nothing_to_preempt(self):
        self.switch(operations.Plan(), operations.Plan(), request='auto')
        self.assertEqual(['preempt', 'select'],
                         [one.kind for one in self.requests])
        with self.deciding(operations.Plan(), operations.Plan()) as requests:
            self.run_audit(self.audit(5), decision='guided')
        self.assertEqual(['preempt', 'return'],
                         [call.args[1].kind for call in requests])

    def test_select_needs_the_driver_of_context_switches(self):
        audit = self.audit(2, audit_type='ONESHOT')
        with self.assertRaisesRegex(ValueError, 'needs the decision '
                                    'context-switch, not guided'):
            self.run_audit(audit, request='select', decision='guided')

    def assert_no_switch(self, why, **parameters):
        with self.assertLogs(strategy.LOG.logger, 'INFO') as logs:
            solution = self.switch(
                operations.Plan(), operations.Plan(), **parameters)
        self.assertEqual([], solution.actions)
        self.assertNotIn('select', [one.kind for one in self.requests])
        self.assertIn(f'No context switch: {why}', '\n'.join(logs.output))

    def test_no_switch_while_another_plan_is_in_progress(self):
        audit = self.audit(1)
        self.action(self.plan(audit), 'migrate', 1, source='h7')
        self.assert_no_switch('another action plan works on 1', audit=audit,
                              request='auto')
        # Preempted leases return all the same.
        self.assertEqual(['preempt', 'return'],
                         [one.kind for one in self.requests])

    def test_no_switch_without_fresh_reports(self):
        self.cloud.known[fakes.uid(4)] = fakes.server(4, 'h2')
        self.assert_no_switch('no fresh reports of h2')

    def test_no_switch_while_demand_is_unknown(self):
        self.cloud.known[fakes.uid(4)] = fakes.server(4, 'h2')
        self.report('h2', 10.0, instances=())
        self.assert_no_switch('the demand of 1 instances is unknown')

    def test_refused_switch_is_not_carried_out(self):
        both = self.both()
        self.report('h1', 10.0)
        with (self.deciding(self.switch_plan(*both)),
              self.assertLogs(strategy.LOG.logger, 'ERROR') as logs):
            self.checked.return_value = ['half of it']
            solution = self.run_audit(self.audit(1), request='select',
                                      decision='context-switch')
        self.assertEqual([], solution.actions)
        self.assertIn('half of it', logs.output[0])

    def test_switches_have_a_breaker_of_their_own(self):
        settings.CONF.set_override('breaker_minimum', 0, 'secondary_watcher')
        self.addCleanup(settings.CONF.clear_override, 'breaker_minimum',
                        'secondary_watcher')
        both = self.both()
        # Half of the three secondaries is one; the lease has two.
        with self.assertLogs(breaker.LOG.logger, 'WARNING'):
            solution = self.switch(self.switch_plan(*both))
        self.assertEqual([], solution.actions)
        settings.CONF.set_override('select_breaker_percent', 67.0,
                                   'secondary_watcher')
        self.addCleanup(settings.CONF.clear_override,
                        'select_breaker_percent', 'secondary_watcher')
        self.assertEqual(1, len(self.switch(
            self.switch_plan(*both), audit=self.audit(3)).actions))

    def test_indicators_of_a_switch(self):
        both = self.both()
        found = self.switch(self.switch_plan(*both)).efficacy_indicators
        values = {one.name: one.value for one in found}
        self.assertEqual(
            (1536.0, 1024.0, 2, 1, 7.0, 0, 0), tuple(values[name] for name in (
                'switch_cost', 'switch_cost_lower_bound',
                'selected_leases_count', 'bypasses_count',
                'duration_predicted', 'local_resumes_count',
                'remote_resumes_count')))

    def test_conflict_is_logged(self):
        with (mock.patch.dict(strategy._told, clear=True),
              self.assertLogs(strategy.LOG.logger, 'WARNING') as logs):
            self.switch(self.switch_plan(status='infeasible', conflict=(
                'lease p1:l', 'host h1')))
            self.switch(self.switch_plan(status='infeasible', conflict=(
                'lease p1:l', 'host h1')), audit=self.audit(3))
        line, = logs.output     # once, until the result changes
        self.assertIn('infeasible, cost 1536', line)
        self.assertIn('because of lease p1:l, host h1', line)

    def test_missing_solver_is_logged_once(self):
        plan = self.switch_plan(solver_missing=True)
        with (mock.patch.dict(strategy._told, clear=True),
              self.assertLogs(strategy.LOG.logger, 'WARNING') as logs):
            self.switch(plan)
            self.switch(plan, audit=self.audit(3))
        self.assertEqual(1, len(logs.output))
        self.assertIn('pip install secondary-scheduler[optimiser]',
                      logs.output[0])

    def test_values_that_watcher_compares_with_its_database(self):
        """A change of these values makes Watcher cancel all our audits.

        Operators must then create their switches again.  So a change needs a
        reason and an upgrade note, before the new value is written here.
        """
        compared = [
            goal.SecondaryWorkloadsGoal.get_display_name(),
            goal.SecondaryWorkloadsGoal.get_efficacy_specification(
                ).serialize_indicators_specs(),
            strategy.SecondaryWorkloads.get_display_name(),
            strategy.SecondaryWorkloads.get_schema()]
        text = json.dumps(compared, sort_keys=True, default=str)
        self.assertEqual(
            '026db4ba6817',
            hashlib.sha256(text.encode()).hexdigest()[:12])

    def test_names_and_schema_of_the_strategy(self):
        cls = strategy.SecondaryWorkloads
        self.assertEqual('Secondary workloads', cls.get_display_name())
        self.assertEqual('Secondary workloads',
                         cls.get_translatable_display_name())
        self.assertEqual(goal.SecondaryWorkloadsGoal.get_name(),
                         cls.get_goal_name())
        self.assertEqual([], cls.get_config_opts())
        from watcher.common import utils
        given = {}
        utils.StrictDefaultValidatingDraft4Validator(
            cls.get_schema()).validate(given)
        self.assertEqual('auto', given['request'])

    def test_cluster_state_is_the_collectors(self):
        ran = strategy.SecondaryWorkloads({})
        ran._collector_manager = mock.Mock()
        self.assertIs(
            ran._collector_manager.get_cluster_model_collector
            .return_value.cluster_state, ran.cluster_state)
