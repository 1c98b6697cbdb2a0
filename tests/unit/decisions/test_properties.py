# SPDX-License-Identifier: Apache-2.0

"""Properties that hold on every cluster."""

import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.context_switch import (
    ContextSwitchDecision,
)
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.decisions.provisioning import ProvisioningDecision
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import InstanceState
from secondary_scheduler.model.resources import UNTHROTTLED
from secondary_scheduler.model.vocabulary import PreemptPolicy
from secondary_scheduler.plans import checker
from secondary_scheduler.plans.operations import OperationKind
from secondary_scheduler.policies.language import MODELLED
from tests.unit.decisions import worlds

REQUESTS = [
    DecisionRequest('preempt'),
    DecisionRequest('return'),
    DecisionRequest('drain', ('h0',)),
    DecisionRequest('drain', ('h0', 'h2')),
    DecisionRequest('preempt', ('h1',)),
]
COUNTING = (InstanceState.ACTIVE, InstanceState.BUSY, InstanceState.OTHER)


def decide(cluster, request, units=2000):
    return GuidedDecision().decide(cluster, request, Budget(units))


def running(cluster, name):
    return len(worlds.on(cluster, name, *COUNTING))


def surplus(cluster, name, share=5):
    """Count independently how many instances must leave a host."""
    host = cluster.hosts[name]
    there = running(cluster, name)
    for count in range(there, -1, -1):
        if all(_fits(host, policy, count, share) for policy in host.policies):
            return there - count
    return there


def _fits(host, policy, count, share):
    if policy.resource == 'slots':
        return count <= policy.threshold
    if policy.resource in UNTHROTTLED:
        return True     # no shares of these
    used = host.primary_use(policy.resource)
    return None not in (used, host.cpu_primary) and (
        used + share * count
        <= policy.threshold - (policy.resource == 'cpu'))


class TestPlans(unittest.TestCase):

    @given(worlds.clusters(), st.sampled_from(REQUESTS),
           st.sampled_from([GuidedDecision, ProvisioningDecision,
                            ContextSwitchDecision]), st.integers(1, 3))
    def test_concurrent_operations_are_limited(
            self, cluster, request, driver, lanes):
        plan = driver(LoadLimits(lanes=lanes)).decide(cluster, request,
                                                      Budget(2000))
        self.assertEqual([], checker.check(cluster, plan, lanes))
        operations = plan.operations
        for one in operations:
            for name in {one.source, one.target} - {None}:
                there = [o for o in operations
                         if name in (o.source, o.target)
                         and o.start_s <= one.start_s
                         < o.start_s + o.duration_s]
                self.assertLessEqual(len(there), lanes)


class TestReturn(unittest.TestCase):

    @given(worlds.clusters(violations=False))
    def test_second_return_is_empty(self, cluster):
        plan = decide(cluster, DecisionRequest('return'))
        self.assertFalse(decide(worlds.settle(cluster, plan),
                                DecisionRequest('return')))

    @given(worlds.clusters(violations=False))
    def test_returns_come_to_an_end(self, cluster):
        moved = set()
        for _round in range(len(cluster.instances) + 2):
            plan = decide(cluster, DecisionRequest('return'))
            if not plan:
                return
            home = {(o.instance, o.target) for o in plan.operations
                    if o.kind is OperationKind.MIGRATE}
            self.assertFalse(home & moved)
            moved |= home
            cluster = worlds.apply(cluster, plan)
        self.fail('a constant load leads to operations for ever')

    @given(worlds.clusters(failed=0.2))
    def test_leases_with_a_failed_return_do_not_run(self, cluster):
        after = worlds.apply(cluster, decide(
            cluster, DecisionRequest('return')))
        for lease in {one.lease for one in cluster.instances.values()
                      if one.return_failed}:
            left = {one.uuid for one in after.members(lease)
                    if one.state is InstanceState.ACTIVE}
            before = cluster.members(lease)
            self.assertLessEqual(left, {one.uuid for one in before
                                        if one.state is InstanceState.ACTIVE})
            self.assertTrue(not left or any(
                one.blocked or one.cooling_down
                or one.state is InstanceState.BUSY
                or one.uuid in left and (
                    one.preempt_failed or cluster.hosts[one.host].blocked
                    or one.preempt_policy is not PreemptPolicy.SUSPEND)
                for one in before))

    @given(worlds.clusters(violations=False))
    def test_a_return_needs_no_preemption(self, cluster):
        plan = decide(cluster, DecisionRequest('return'))
        after = worlds.apply(cluster, plan)
        for operation in plan.operations:
            if operation.target is not None:
                self.assertLessEqual(surplus(after, operation.target),
                                     surplus(cluster, operation.target))

    @given(worlds.clusters())
    def test_returned_instance_has_a_useful_share(
            self, cluster):
        after = worlds.apply(cluster, decide(
            cluster, DecisionRequest('preempt')))
        calm = worlds.relieved(after, MODELLED)
        back = decide(calm, DecisionRequest('return'))
        again = worlds.apply(calm, back)
        for operation in back.operations:
            name = again.instances[operation.instance].host
            self.assertEqual(0, surplus(again, name, 10))
