# SPDX-License-Identifier: Apache-2.0

"""Properties of the guided decision that hold on every cluster."""

import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.decisions import violations
from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.estimation.durations import ConcurrentDurations
from secondary_scheduler.model.cluster import Cluster, InstanceState
from secondary_scheduler.plans import checker
from secondary_scheduler.plans.operations import OperationKind
from tests.unit.decisions import worlds
from tests.unit.decisions.test_properties import COUNTING, REQUESTS

DRIVERS = st.sampled_from([
    GuidedDecision(),
    GuidedDecision(durations=ConcurrentDurations(),
                   profile=violations.THESIS)])
#: Enough for nearly all searches, and small enough for many examples.
UNITS = 2000


def decide(cluster, request, driver, units=UNITS):
    return driver.decide(cluster, request, Budget(units))


def _used(cluster, name, there, policy):
    place = cluster.at(name)
    if policy.static:
        return sum(one.holds(policy.resource) for one in there)
    if policy.resource == 'cpu':
        return place.cpu_primary + 5 * len(there)
    used = place.primary_use(policy.resource)
    return (100.0 if used is None else used) + sum(
        cluster.percent(name, policy.resource, one) for one in there)


class TestPlans(unittest.TestCase):

    @given(worlds.clusters(failed=0.1), st.sampled_from(REQUESTS), DRIVERS,
           st.sampled_from([0, 3, 40, UNITS]))
    def test_no_plan_fails_the_checker(self, cluster, request, driver, units):
        plan = decide(cluster, request, driver, units)
        self.assertEqual([], checker.check(
            cluster, plan, driver.limits.lanes))

    @given(worlds.constrained_clusters(), st.sampled_from(REQUESTS), DRIVERS)
    def test_constraints_hold_in_any_order_of_operations(
            self, cluster, request, driver):
        self.assertEqual([], checker.check(
            cluster, decide(cluster, request, driver), driver.limits.lanes))

    @given(worlds.clusters(), st.sampled_from(REQUESTS), DRIVERS)
    def test_plan_does_not_depend_on_the_order_of_hosts(
            self, cluster, request, driver):
        turned = Cluster(dict(reversed(cluster.hosts.items())),
                         dict(reversed(cluster.instances.items())),
                         items=dict(reversed(cluster.items.items())))
        self.assertEqual(decide(cluster, request, driver),
                         decide(turned, request, driver))

    @given(worlds.clusters(), st.sampled_from(REQUESTS), DRIVERS)
    def test_cluster_remains_unchanged(self, cluster, request, driver):
        hosts, instances = dict(cluster.hosts), dict(cluster.instances)
        decide(cluster, request, driver)
        self.assertEqual((hosts, instances),
                         (cluster.hosts, cluster.instances))

    @given(worlds.clusters(violations=False), DRIVERS)
    def test_plan_is_empty_without_a_violation(self, cluster, driver):
        plan = decide(cluster, DecisionRequest('preempt'), driver)
        self.assertFalse(plan)
        self.assertEqual((), plan.unresolved)


class TestRepairs(unittest.TestCase):

    @given(worlds.planted_clusters(), DRIVERS,
           st.sampled_from([0, 10, UNITS]))
    def test_repairable_violations_are_ended(self, planted, driver,
                                                    units):
        cluster, repair = planted
        if not repair:
            return
        plan = decide(cluster, DecisionRequest('preempt'), driver, units)
        self.assertEqual([], checker.check(
            cluster, plan, driver.limits.lanes))
        self.assertTrue(plan)
        self.assertEqual((), plan.unresolved)
        after = worlds.apply(cluster, plan)
        for name, host in cluster.hosts.items():
            slots = min(p.threshold for p in host.policies
                        if p.resource == 'slots')
            self.assertLessEqual(len(worlds.on(after, name, *COUNTING)),
                                 slots)

    @given(worlds.planted_clusters())
    def test_no_lease_is_preempted_for_a_lower_one(self, planted):
        cluster, _repair = planted
        driver = GuidedDecision()
        plan = decide(cluster, DecisionRequest('preempt'), driver, 100_000)
        down = {o.lease for o in plan.operations
                if o.kind is not OperationKind.MIGRATE}
        if plan.truncated:
            return
        rank = {one.lease: one.priority for one in cluster.instances.values()}
        violated = {name for name, host in cluster.hosts.items()
                    if host.violated}
        for lease in down:
            # Some violated host has an instance of at least that rank.
            self.assertTrue(any(
                one.host in violated and rank[one.lease] >= rank[lease]
                for one in cluster.instances.values()))

    @given(worlds.clusters(), st.sampled_from([0, 40, UNITS]), DRIVERS)
    def test_only_excluded_instances_run_against_a_policy(
            self, cluster, units, driver):
        plan = decide(cluster, DecisionRequest('preempt'), driver, units)
        after = worlds.apply(cluster, plan)
        for name in (*cluster.hosts, *cluster.items):
            place, hosts = cluster.at(name), cluster.hosts_of(name)
            cooling_down = name in cluster.hosts and place.blocked
            due = [p for p in place.policies
                   if p.violated and (p.static or not cooling_down)]
            if not due:
                continue
            left = [one for host in hosts
                    for one in worlds.on(after, host, InstanceState.ACTIVE)]
            free = [one for one in left if not any(
                worlds.left_alone(cluster, peer)
                for peer in cluster.members(one.lease))]
            if name in plan.unresolved or not free:
                continue
            for policy in due:
                there = [one for host in hosts
                         for one in worlds.on(after, host, *COUNTING)]
                self.assertLessEqual(
                    _used(cluster, name, there, policy),
                    policy.threshold - (policy.resource == 'cpu') + 1e-6)

    @given(worlds.clusters(), DRIVERS)
    def test_unresolved_hosts_are_late_or_have_excluded_instances(
            self, cluster, driver):
        plan = decide(cluster, DecisionRequest('preempt'), driver)
        after = worlds.apply(cluster, plan)
        for name in plan.unresolved:
            if name in cluster.items:
                continue
            host = cluster.hosts[name]
            ends = [o.start_s + o.duration_s for o in plan.operations
                    if o.source == name]
            beyond_reach = any(
                worlds.left_alone(
                    cluster, one) or one.state is InstanceState.OTHER
                for i in worlds.on(after, name, *COUNTING)
                for one in cluster.members(i.lease))
            self.assertTrue(host.blocked or beyond_reach
                            or max(ends, default=0) > 3)

    @given(worlds.clusters())
    def test_drain_clears_the_host(self, cluster):
        plan = decide(cluster, DecisionRequest(
            'drain', ('h0',)), GuidedDecision())
        after = worlds.apply(cluster, plan)
        if not plan.unresolved:
            self.assertEqual([], worlds.on(after, 'h0', *COUNTING))
