# SPDX-License-Identifier: Apache-2.0

"""Policies on all hosts of an aggregate together."""

import dataclasses
from unittest import mock

from secondary_scheduler.watcher import (
    cluster_state,
    scope,
    settings,
)
from tests.unit.watcher import fakes
from tests.unit.watcher.report_case import ReportCase


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
