# SPDX-License-Identifier: Apache-2.0

"""Properties of the decision ``context-switch`` that hold on every cluster."""

import dataclasses
import random
import unittest

from hypothesis import example, given
from hypothesis import strategies as st

from secondary_scheduler.decisions.base import (
    Budget,
    DecisionRequest,
    SwitchOptions,
)
from secondary_scheduler.decisions.context_switch import (
    ContextSwitchDecision,
)
from secondary_scheduler.estimation.durations import ConcurrentDurations
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import (
    Cluster,
    InstanceState,
    LeaseMembers,
)
from secondary_scheduler.model.vocabulary import PreemptPolicy
from secondary_scheduler.plans import checker
from secondary_scheduler.plans.operations import OperationKind
from tests.unit.decisions import worlds

UNITS = 2000
KINDS = st.sampled_from(['select', 'return'])


def batch_cluster(seed):
    """Return a cluster of alike hosts and leases of two to four members.

    Hosts may be overloaded, and most leases may be displaced.
    """
    rng = random.Random(seed)
    names = [f'h{number}' for number in range(rng.randint(2, 6))]
    things = [worlds.host(
        name, 0.0, cpus=2.1, policies=(worlds.cpu_policy(100.0),),
        usable=rng.random() > 0.1) for name in names]
    leases = {}
    for number in range(rng.randint(2, 7)):
        lease = f'l{number}'
        leases[lease] = LeaseMembers(
            lease, float(rng.randint(1, 5)), age_s=float(rng.randint(0, 9)),
            guaranteed=rng.random() < 0.1)
        state = rng.choice([InstanceState.ACTIVE, InstanceState.ACTIVE,
                            InstanceState.SUSPENDED, InstanceState.SHELVED])
        policy = rng.choice([PreemptPolicy.SUSPEND] * 9 + list(PreemptPolicy))
        for member in range(rng.randint(2, 4)):
            down = state is not InstanceState.ACTIVE
            things.append(worlds.vm(
                f'{lease}-{member}',
                None if state is InstanceState.SHELVED else rng.choice(names),
                state, lease=lease, preempted=down,
                memory_mb=rng.choice([256, 512, 1024, 2048]),
                wanted_cpu=float(rng.random() < 0.6), preempt_policy=policy,
                running_s=None if down else rng.choice([None, 5.0, 900.0])))
    return dataclasses.replace(worlds.cluster(*things), leases=leases)


CLUSTERS = st.one_of(
    worlds.clusters(failed=0.1),
    st.builds(batch_cluster, st.integers(0, 2**32)))
CONSTRAINED = st.builds(
    lambda seed: worlds.constrain(batch_cluster(seed), seed),
    st.integers(0, 2**32))


def decide(cluster, kind='select', limits=None, options=None,
           durations=None):
    return ContextSwitchDecision(limits, durations).decide(
        cluster, DecisionRequest(kind, (), options or SwitchOptions()),
        Budget(UNITS))


def long_ago(cluster):
    """Return a cluster in which all leases have run long enough."""
    return dataclasses.replace(cluster, instances={
        uuid: dataclasses.replace(one, running_s=None)
        for uuid, one in cluster.instances.items()})


class TestPlans(unittest.TestCase):

    # An instance that wants more than any host of another size has.
    @example(worlds.random_cluster(281, 5, 2, True, 0.1, False), 'select', 1,
             0, 'cost')
    @given(CLUSTERS, KINDS, st.integers(1, 3), st.sampled_from([0, 1, 4]),
           st.sampled_from(['cost', 'span', 'memory', 'time']))
    def test_no_plan_fails_the_checker(self, cluster, kind, lanes, most,
                                       objective):
        plan = decide(cluster, kind, LoadLimits(lanes=lanes), SwitchOptions(
            objective, most_operations=most), ConcurrentDurations())
        self.assertEqual([], checker.check(cluster, plan, lanes))

    # A member arrives where another one of its ``gather`` migrates to.
    @example(worlds.constrain(batch_cluster(2 ** 24), 2 ** 24), 'select', 2)
    @given(CONSTRAINED, KINDS, st.integers(1, 3))
    def test_constraints_hold_at_every_instant(self, cluster, kind, lanes):
        plan = decide(cluster, kind, LoadLimits(lanes=lanes))
        self.assertEqual([], checker.check(cluster, plan, lanes))

    @given(CLUSTERS, KINDS)
    def test_plan_does_not_depend_on_the_order_of_hosts(self, cluster, kind):
        turned = Cluster(dict(reversed(cluster.hosts.items())),
                         dict(reversed(cluster.instances.items())),
                         dict(reversed(cluster.leases.items())),
                         items=dict(reversed(cluster.items.items())))
        self.assertEqual(decide(cluster, kind), decide(turned, kind))

    # All leases fit, but with their headroom they need more hosts.
    @example(batch_cluster(1731), 'return')
    @given(CLUSTERS, KINDS)
    def test_constant_demand_leads_to_no_operations(self, cluster, kind):
        cluster = long_ago(cluster)
        for _round in range(4):
            plan = decide(cluster, kind)
            if not plan:
                return
            cluster = worlds.apply(cluster, plan)
        self.fail(f'operations never end: {plan}')

    @given(CLUSTERS)
    def test_return_displaces_nothing(self, cluster):
        plan = decide(cluster, 'return')
        if plan.switch is not None:
            self.assertEqual([], [
                one for one in plan.operations
                if one.kind is OperationKind.SUSPEND])

    @given(st.builds(batch_cluster, st.integers(0, 2**32)))
    def test_no_work_is_lost_and_no_guaranteed_lease_displaced(self, cluster):
        for one in decide(cluster).operations:
            self.assertNotIn(one.kind, (OperationKind.STOP,
                                        OperationKind.SHELVE))
            if one.kind is OperationKind.SUSPEND:
                self.assertFalse(cluster.leases[one.lease].guaranteed)
                self.assertEqual(
                    {PreemptPolicy.SUSPEND}, {
                        peer.preempt_policy
                        for peer in cluster.members(one.lease)})

    @given(st.builds(batch_cluster, st.integers(0, 2**32)),
           st.integers(1, 8))
    def test_limited_plan_is_cut_between_leases(self, cluster, most):
        whole = decide(cluster)
        plan = decide(cluster, options=SwitchOptions(most_operations=most))
        leases = {one.lease for one in plan.operations}
        self.assertEqual(bool(whole), bool(plan))
        for lease in leases:
            self.assertEqual(*(sorted(
                (one.instance, one.kind) for one in found.operations
                if one.lease == lease) for found in (whole, plan)))
