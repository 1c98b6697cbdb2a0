"""State of the cluster, from reports and refreshes."""

import dataclasses
from unittest import mock

from secondary_scheduler.watcher import (
    cloud_errors,
    cluster_state,
    scope,
    settings,
)
from tests.unit.watcher import fakes
from tests.unit.watcher.report_case import ReportCase


class ClusterStateTest(ReportCase):
    def test_reports_of_unknown_hosts_are_ignored(self):
        self.seen.refresh()
        self.report('h9')
        self.assertFalse(self.seen.arrived.is_set())
        self.report('h1')
        self.assertTrue(self.seen.arrived.is_set())
        self.assertEqual({'h1'}, set(self.seen.book.hosts()))

    def test_host_is_described_after_the_first_refresh(self):
        self.assertEqual({}, self.seen.describe_host('h1'))
        self.seen.refresh()
        self.assertEqual({'aggregates': ['agg'], 'total': fakes.TOTAL},
                         self.seen.describe_host('h1'))

    def test_failed_refresh_keeps_the_old_facts(self):
        self.seen.refresh()
        self.cloud.down = True
        self.assertRaises(cloud_errors.CloudError, self.seen.refresh)
        self.assertEqual({'h1', 'h2'}, set(self.seen.snapshot.hosts))

    def test_no_cluster_is_built_from_old_facts(self):
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

    def test_decision_refreshes_its_hosts_only(self):
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

    def test_hosts_confirmed_by_their_agent_are_not_refreshed(self):
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
        self.assertEqual(['h1'], asked('h1'), 'an operation is under way')

    def test_servers_that_left_the_hosts_of_a_decision_are_found(self):
        gone = fakes.server(3, 'h1')
        self.cloud.known[gone.uuid] = gone
        self.seen.refresh()
        self.cloud.change(1, host='h2')
        del self.cloud.known[gone.uuid]
        self.seen.refresh_hosts(['h1'])
        self.assertEqual(
            {fakes.uid(1): 'h2', fakes.uid(2): 'h2'},
            {k: s.host for k, s in self.seen.snapshot.servers.items()})
        # The servers of a cleared host are listed, not requested one by one.
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

    def test_many_or_unnamed_hosts_are_refreshed_by_one_list(self):
        self.seen.refresh()
        for names in ((), ('h1', 'h2', 'h3')):
            with mock.patch.object(self.cloud, 'servers_on') as on:
                self.seen.refresh_hosts(names)
            on.assert_not_called()


class AggregatePoliciesTest(ReportCase):
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

    def test_aggregate_policy_exceeded_together_is_violated(self):
        self.report('h1')
        self.tick()
        self.assertEqual([], self.audits())
        with self.assertLogs(cluster_state.LOG.logger, 'WARNING') as logs:
            self.report('h2')
            self.tick()
        self.assertIn('slots <= 2 for 60s in aggregate:agg. 3 run',
                      logs.output[0])
        audit, = self.audits()
        # One host stands for the policy of the aggregate.
        self.assertEqual(['h1'], audit.parameters['hosts'])
        self.assertFalse(self.seen.window.waiting)

    def test_violation_of_an_aggregate_lasts_until_it_ends(self):
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

    def test_migrating_instance_counts_once(self):
        self.servers[2] = dataclasses.replace(self.servers[0], host='h2')
        for host in ('h1', 'h2'):
            self.report(host)
        self.tick()
        self.assertEqual([], self.audits())

    def test_decision_needs_nova_and_agents_to_agree_on_a_violation(self):
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

    def test_decision_knows_operations_in_flight(self):
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

    def test_instances_out_of_scope_reduce_the_threshold(self):
        self.report('h1')
        self.report('h2')
        item, = self.items('h2', 'h3').values()
        self.assertEqual((('h2', 'h3'), 1.0, True), (
            item.hosts, item.policies[0].threshold, item.violated))
        self.assertEqual({}, self.items('h9'))

    def test_hosts_of_other_aggregates_are_not_bound(self):
        self.add(fakes.host('h2', place=scope.HostPlace()))
        self.seen.refresh()
        item, = self.items('h1', 'h2', 'h3').values()
        self.assertEqual(('h1', 'h3'), item.hosts)
        for host in ('h1', 'h2'):
            self.report(host)
        self.tick()
        self.assertEqual([], self.audits())
