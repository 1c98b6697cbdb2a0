# SPDX-License-Identifier: Apache-2.0

"""Repair of violations by migrations."""

import dataclasses
import unittest

from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks import clusters
from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.decisions.violations import CostProfile
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import (
    HostPolicy,
    InFlight,
    InstanceState,
    Item,
)
from secondary_scheduler.plans import checker
from tests.unit.decisions.worlds import (
    cluster,
    cpu_policy,
    host,
    kinds,
    slots_policy,
    vm,
)

RIGID = LoadLimits(minimum_share=0.0, useful_share=0.0, margin=0.0)
MOVES_ONLY = CostProfile(preempts=False)


def box(name, cores, violated=False, **values):
    """Return a host with a policy on cores."""
    return host(name, policies=(HostPolicy(
        f'cores <= {cores}', 'cores', cores, 60, int(violated), violated),),
        **values)


def decide(world, profile=MOVES_ONLY, units=100_000):
    budget = Budget(units)
    return GuidedDecision(RIGID, profile=profile).decide(
        world, DecisionRequest('preempt'), budget)


class Case(unittest.TestCase):

    def targets(self, *things, **values):
        """Return the targets by instance of a valid plan of migrations."""
        world = cluster(*things)
        self.plan = decide(world, **values)
        self.assertEqual([], checker.check(world, self.plan, RIGID.lanes))
        found = kinds(self.plan)
        self.assertLessEqual({kind for kind, _to in found.values()},
                             {'migrate'})
        return {uuid: target for uuid, (_kind, target) in found.items()}


class TestInstances(Case):

    def test_one_large_instance_rather_than_two_small_ones(self):
        self.assertEqual({'c': 'x'}, self.targets(
            box('h', 4, True), box('x', 8), vm('a', 'h', vcpus=2),
            vm('b', 'h', vcpus=2), vm('c', 'h', vcpus=3)))

    def test_smallest_sufficient_instance_moves(self):
        self.assertEqual({'b': 'x'}, self.targets(
            box('h', 6, True), box('x', 8), vm('a', 'h', vcpus=1),
            vm('b', 'h', vcpus=2), vm('c', 'h', vcpus=5)))

    def test_moves_relieve_all_violated_resources(self):
        both = host('h', policies=(
            HostPolicy('cores <= 4', 'cores', 4, 60, 1, True),
            HostPolicy('memory <= 500', 'memory', 500, 60, 1, True)))
        self.assertEqual({'c', 'd'}, set(self.targets(
            both, box('x', 8), vm('a', 'h', vcpus=3, memory_mb=10),
            vm('b', 'h', vcpus=1, memory_mb=300),
            vm('c', 'h', vcpus=1, memory_mb=240),
            vm('d', 'h', vcpus=2, memory_mb=240))))

    def test_excluded_instances_do_not_move(self):
        for values in ({'blocked': True}, {'migration_failed': True},
                       {'state': InstanceState.BUSY}):
            self.assertEqual({'b': 'x'}, self.targets(
                box('h', 1, True), box('x', 8), vm('a', 'h', **values),
                vm('b', 'h')))


class TestTargets(Case):

    def test_emptiest_host_is_the_target(self):
        self.assertEqual({'a': 'y'}, self.targets(
            box('h', 0, True), box('x', 4), box('y', 8), box('z', 8),
            vm('a', 'h'), vm('b', 'z')))

    def test_target_satisfies_anti_affinity(self):
        self.assertEqual({'a': 'x'}, self.targets(
            box('h', 0, True), box('x', 4), box('y', 8),
            vm('a', 'h', anti_affinity='g'),
            vm('b', 'y', InstanceState.SUSPENDED, anti_affinity='g')))

    def test_ongoing_migration_takes_its_room(self):
        world = cluster(box('h', 0, True), box('x', 1), box('y', 2),
                        vm('a', 'h'), vm('b', 'y', InstanceState.BUSY))
        self.assertEqual(['x'], [
            one.target for one in decide(world).operations])
        world = dataclasses.replace(world, in_flight=(
            InFlight('migrate', 'b', 'y', 'x', 3.0),))
        self.assertEqual(['y'], [
            one.target for one in decide(world).operations])

    def test_ejection_makes_room(self):
        self.assertEqual({'b': 'y', 'a': 'x'}, self.targets(
            box('h', 0, True), box('x', 4), box('y', 3),
            vm('a', 'h', vcpus=4), vm('b', 'x', vcpus=2)))
        order = {one.instance: one for one in self.plan.operations}
        self.assertIn(order['b'].id, order['a'].after)

    def test_chain_of_ejections_makes_room(self):
        self.assertEqual({'c': 'z', 'b': 'y', 'a': 'x'}, self.targets(
            box('h', 0, True), box('x', 4), box('y', 3), box('z', 2),
            vm('a', 'h', vcpus=4), vm('b', 'x', vcpus=3),
            vm('c', 'y', vcpus=2)))

    def test_wait_for_cpu_is_a_dependency(self):
        # There is 70 % on x, and 10 % more after b has left it for y.
        self.assertEqual({'b': 'y', 'a': 'x'}, self.targets(
            box('h', 0, True), host('x', 40.0), host('y', 65.0),
            vm('a', 'h', cpu=45.0), vm('b', 'x', cpu=20.0)))
        order = {one.instance: one for one in self.plan.operations}
        self.assertIn(order['b'].id, order['a'].after)

    def test_unrelieved_host_is_first_in_the_next_round(self):
        # a goes to the host with most room, the only one that fits b.
        self.assertEqual({'a': 'y', 'b': 'x'}, self.targets(
            box('g', 0, True), box('h', 0, True), box('x', 8), box('y', 2),
            vm('a', 'g', vcpus=2), vm('b', 'h', vcpus=7)))


class TestLimits(Case):

    def test_host_is_relieved_completely_or_not_at_all(self):
        self.assertEqual({}, self.targets(
            box('h', 0, True), box('x', 1), vm('a', 'h'), vm('b', 'h')))
        self.assertEqual(('h',), self.plan.unresolved)

    def test_late_relief_is_no_relief(self):
        policy = HostPolicy('', 'cpu', 90.0, 10, 4, True, 4)
        things = (host('h', 95.0, policies=(policy,)), host('x'),
                  vm('a', 'h'))
        self.assertEqual({}, self.targets(*things))
        self.assertEqual({'a': ('suspend', None)}, kinds(
            decide(cluster(*things), CostProfile())))

    def test_overhead_of_the_migration_counts(self):
        # The migration uses 30 % on its source, where the limit is 89 %.
        policies = (cpu_policy(), HostPolicy(
            'slots <= 0', 'slots', 0, 60, 1, True))
        for primary, moved in ((50.0, True), (62.0, False)):
            self.assertEqual(moved, bool(self.targets(
                host('h', primary, policies=policies), host('x'),
                vm('a', 'h', cpu=5.0))))

    def test_lease_is_not_moved_if_it_may_be_preempted(self):
        things = (box('g', 0, True), box('h', 0, True), box('x', 2),
                  vm('a', 'g', lease='l', vcpus=1),
                  vm('b', 'h', lease='l', vcpus=3))
        self.assertEqual({'a': 'x'}, self.targets(*things))
        world = cluster(*things)
        plan = decide(world, CostProfile())
        self.assertEqual([], checker.check(world, plan, RIGID.lanes))
        self.assertEqual({'a': ('suspend', None), 'b': ('suspend', None)},
                         kinds(plan))

    def test_violated_host_is_no_target_even_after_relief(self):
        # g has room for d after c has left, but not yet in Placement.
        def short(name, violated, memory):
            return host(name, policies=tuple(
                HostPolicy(resource, resource, most, 60, int(fails), fails)
                for resource, most, fails in (
                    ('cores', 4, violated == 'cores'),
                    ('memory', memory, violated == 'memory'))))

        things = (
            short('g', 'memory', 500), vm('a', 'g', memory_mb=400),
            vm('c', 'g', memory_mb=256), short('h', 'cores', 800),
            vm('d', 'h', vcpus=2, memory_mb=100),
            vm('e', 'h', vcpus=3, memory_mb=100), box('x', 2))
        self.assertEqual({'c': 'x'}, self.targets(*things))
        self.assertEqual(('h',), self.plan.unresolved)
        plan = decide(cluster(*things), CostProfile())
        self.assertEqual({'c': ('migrate', 'x'), 'd': ('suspend', None)},
                         kinds(plan))

    def test_repair_gets_half_of_the_budget(self):
        budget = Budget(11)
        with budget.half() as part:
            self.assertEqual(5, part.units)
            while part.spend():
                pass
        self.assertEqual((6, False), (budget.units, budget.truncated))


class TestShared(Case):
    """Items with violated policies, beside violated hosts."""

    def decide(self, *things):
        """Return operations and unresolved places, with preemptions."""
        world = cluster(*things)
        plan = decide(world, CostProfile())
        self.assertEqual([], checker.check(world, plan, RIGID.lanes))
        return kinds(plan), plan.unresolved

    def test_host_is_relieved_despite_a_violated_item(self):
        rack = Item('rack', ('r',), (slots_policy(0, True),))
        self.assertEqual(
            ({'b': ('migrate', 'y'), 'a': ('migrate', 'x'),
              'c': ('migrate', 'y')}, ()),
            self.decide(
                rack, box('h', 0, True), box('r', 8), box('x', 4),
                box('y', 3), vm('a', 'h', vcpus=4, priority=8),
                vm('b', 'x', vcpus=2, priority=3), vm('c', 'r')))

    def test_lease_is_not_moved_if_it_may_be_preempted(self):
        things = (Item('rack', ('r',), (slots_policy(0, True),)),
                  box('h', 0, True), box('r', 8), box('x', 1),
                  vm('a', 'h', lease='l'), vm('b', 'r', lease='l'))
        self.assertEqual(
            (dict.fromkeys('ab', ('suspend', None)), ()),
            self.decide(*things))
        self.assertEqual({'a': 'x'}, self.targets(*things))
        self.assertEqual(('rack',), self.plan.unresolved)

    def test_lease_leaves_violated_item_and_host_together(self):
        self.assertEqual(
            (dict.fromkeys('ab', ('migrate', 'x')), ()), self.decide(
                Item('rack', ('r',), (slots_policy(0, True),)),
                box('h', 0, True), box('r', 8), box('x', 2),
                vm('a', 'h', lease='l'), vm('b', 'r', lease='l')))

    def test_leaving_a_host_leaves_its_items(self):
        self.assertEqual(
            ({'a': ('migrate', 'x')}, ()), self.decide(
                Item('rack', ('h', 'r'), (slots_policy(1, True),)),
                box('h', 0, True), box('r', 8), box('x', 2),
                vm('a', 'h', priority=9), vm('b', 'r', priority=1)))

    def test_hosts_are_not_filled_beyond_their_item(self):
        self.assertEqual({'a': 'x', 'b': 'z'}, self.targets(
            Item('rack', ('x', 'y'), (slots_policy(1),)),
            box('g', 0, True), box('h', 0, True), box('x', 8),
            box('y', 8), box('z', 1), vm('a', 'g'), vm('b', 'h')))

    def test_concurrent_migrations_burden_an_item(self):
        # 25 % are used, and each migration uses 15 %.
        uplink = HostPolicy('net_in <= 50%', 'net_in', 50.0, 15)
        done, left = self.decide(
            Item('rack', ('x', 'y'), (uplink,), 0.5, {'net_in': 25.0}),
            box('g', 0, True), box('h', 0, True), box('x', 1),
            box('y', 1), vm('a', 'g', usage={'net_in': 0.0}),
            vm('b', 'h', usage={'net_in': 0.0}))
        self.assertEqual([('migrate', 'x'), ('suspend', None)],
                         [done[one] for one in 'ab'])
        self.assertEqual((), left)


class TestTight(Case):

    @example(2648, 4)       # relief of a host in both resources or none
    @given(st.integers(0, 2**32), st.integers(4, 24))
    def test_planted_repair_is_found(self, seed, hosts):
        world, planted = clusters.tight(hosts, 6 * hosts, 0.1, seed)
        plan = decide(world, CostProfile())
        self.assertEqual([], checker.check(world, plan, RIGID.lanes))
        self.assertTrue(planted and plan)
        self.assertEqual((), plan.unresolved)
        self.assertEqual(plan, decide(world, CostProfile()))

    def test_no_more_moves_than_planted(self):
        for seed in range(40):
            world, planted = clusters.tight(20, 120, 0.05, seed)
            moved = self.targets(*world.hosts.values(),
                                 *world.instances.values())
            self.assertEqual((), self.plan.unresolved, seed)
            self.assertLessEqual(len(moved), len(planted), seed)

    def test_effort_grows_with_violations_only(self):
        effort = []
        for hosts in (20, 200):
            world, _planted = clusters.tight(hosts, 6 * hosts, 1 / hosts, 3)
            budget = Budget()
            GuidedDecision(RIGID).decide(
                world, DecisionRequest('preempt'), budget)
            effort.append(Budget().units - budget.units)
        self.assertLessEqual(effort[1], effort[0])
