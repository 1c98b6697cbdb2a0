# SPDX-License-Identifier: Apache-2.0

"""Decisions on hosts of different size, replayed in absolute units."""

import dataclasses
import unittest

from hypothesis import given
from hypothesis import strategies as st

from benchmarks import absolute
from secondary_scheduler.decisions import violations
from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.decisions.provisioning import ProvisioningDecision
from secondary_scheduler.estimation.durations import ConcurrentDurations
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import Cluster, InstanceState
from secondary_scheduler.plans import checker
from secondary_scheduler.plans.operations import OperationKind
from tests.unit.decisions import worlds
from tests.unit.decisions.test_properties import REQUESTS
from tests.unit.decisions.worlds import host, vm

#: Instances count with their use only, and are only migrated.
RIGID = LoadLimits(minimum_share=0.0, useful_share=0.0, margin=0.0)
MOVES = GuidedDecision(RIGID, profile=dataclasses.replace(
    violations.with_agents(RIGID), preempts=False))
DRIVERS = [GuidedDecision()]


def moves(plan):
    """Return the migrations of a plan in the order of their starts."""
    return [(one.instance, one.target) for one in sorted(
        plan.operations, key=lambda one: (one.start_s, one.id))
        if one.kind is OperationKind.MIGRATE]


class TestAbsoluteReplay(unittest.TestCase):

    @given(worlds.hot_clusters())
    def test_no_target_is_overloaded_and_no_single_move_is_missed(
            self, cluster):
        plan = MOVES.decide(cluster, DecisionRequest('preempt'), Budget())
        outcome = absolute.replay(cluster, moves(plan))
        self.assertEqual(([], [], []), (
            outcome.overloaded, outcome.infeasible, outcome.relievable))
        self.assertEqual(sorted(outcome.violated), sorted(plan.unresolved))
        self.assertEqual([], checker.check(cluster, plan, RIGID.lanes))

    @given(worlds.hot_clusters(), st.sampled_from(DRIVERS))
    def test_instance_from_another_size_fits_beside_the_primary(
            self, cluster, driver):
        plan = driver.decide(cluster, DecisionRequest('preempt'), Budget())
        self.assertEqual([], checker.check(cluster, plan))
        self.assertEqual((), plan.unresolved)
        came = {}
        for uuid, target in moves(plan):
            one = cluster.instances[uuid]
            for resource in 'cpu', 'net_out':
                sizes = {absolute.size(cluster.hosts[name], resource)
                         for name in (one.host, target)}
                if len(sizes) > 1:
                    came.setdefault((target, resource), []).append(one)
        for (target, resource), those in came.items():
            for name, limit, slack in absolute.limits(cluster.hosts[target]):
                if name == resource:
                    self.assertLessEqual(
                        absolute.used(those)[resource], limit + slack)

    @given(worlds.clusters(failed=0.1, alike=True),
           st.sampled_from(REQUESTS), st.sampled_from([
               *DRIVERS, ProvisioningDecision(spreads=False),
               GuidedDecision(durations=ConcurrentDurations(),
                              profile=violations.THESIS)]),
           st.sampled_from([0.04, 0.32, 1.28, 7.0]))
    def test_same_plan_on_equal_hosts_of_any_size(self, cluster, request,
                                                  driver, times):
        # On hosts of 100 CPUs one CPU is one percent.
        self.assertEqual(
            driver.decide(cluster, request, Budget(2000)),
            driver.decide(worlds.scaled(cluster, times), request,
                          Budget(2000)))


    def test_room_is_checked_again_after_an_ejection(self):
        # The second ejected instance may move to the room of the first.
        for seed in 1086, 1323:
            cluster = worlds.hot_cluster(seed)
            plan = MOVES.decide(cluster, DecisionRequest('preempt'), Budget())
            outcome = absolute.replay(cluster, moves(plan))
            self.assertEqual([], outcome.overloaded)
            self.assertEqual(sorted(outcome.violated),
                             sorted(plan.unresolved))


class TestSizes(unittest.TestCase):

    def decide(self, driver, *things, request='preempt', **values):
        world = worlds.cluster(*things)
        plan = driver.decide(world, DecisionRequest(
            request, **values), Budget())
        self.assertEqual([], checker.check(world, plan))
        return worlds.kinds(plan)

    def test_large_instance_does_not_move_to_a_small_host(self):
        for driver in DRIVERS:
            self.assertEqual({'v': ('suspend', None)}, self.decide(
                driver, host('large', 85.0, True, cpus=64.0),
                host('small', 10.0, cpus=4.0),
                vm('v', 'large', cpu=5.1, vcpus=8)))

    def test_busy_instance_of_a_small_host_moves_to_a_large_one(self):
        for driver in (*DRIVERS, GuidedDecision(RIGID, profile=(
                dataclasses.replace(MOVES.profile, preempts=True)))):
            self.assertEqual({'v': ('migrate', 'large')}, self.decide(
                driver, host('small', 60.0, True, cpus=4.0),
                host('large', 50.0, cpus=64.0),
                vm('v', 'small', cpu=1.8, vcpus=2)))

    def test_instance_counts_with_its_use_on_hosts_of_any_size(self):
        things = (host('full', 85.0, True, cpus=16.0),
                  vm('v', 'full', cpu=4.0))
        for cpus, primary, expected in (
                (16.0, 70.0, ('suspend', None)),
                (16.0, 64.0, ('migrate', 'other')),
                (15.0, 64.0, ('suspend', None)),
                (32.0, 70.0, ('migrate', 'other'))):
            for driver in DRIVERS:
                self.assertEqual({'v': expected}, self.decide(
                    driver, *things, host('other', primary, cpus=cpus)))

    def test_second_newcomer_counts_beside_the_first(self):
        things = (host('large', 87.0, True, cpus=64.0),
                  vm('v', 'large', cpu=1.6), vm('w', 'large', cpu=1.6))
        for driver in DRIVERS:
            found = self.decide(driver, *things,
                                host('small', 20.0, cpus=4.0))
            self.assertLessEqual([one for one, _target in found.values()
                                  ].count('migrate'), 1)

    def test_link_of_another_speed_counts_amounts(self):
        policy = dataclasses.replace(
            worlds.cpu_policy(), text='net_out <= 75% for 15s',
            resource='net_out', threshold=75.0)
        hot = dataclasses.replace(policy, failed=9, violated=True)
        for speed, expected in ((125.0, ('suspend', None)),
                                (1250.0, ('migrate', 'other'))):
            for driver in DRIVERS:
                self.assertEqual({'v': expected}, self.decide(
                    driver, host('hot', 20.0, policies=(
                        worlds.cpu_policy(), hot), usage={'net_out': 60.0},
                        capacities={'net_out': 1250.0}),
                    host('other', 20.0, policies=(
                        worlds.cpu_policy(), policy), usage={'net_out': 10.0},
                        capacities={'net_out': speed}),
                    vm('v', 'hot', cpu=1.0, usage={'net_out': 250.0})))

    def test_shelved_instance_returns_only_where_its_use_fits(self):
        things = (
            host('large', 85.0, cpus=64.0),
            vm('v', None, InstanceState.SHELVED, preempted=True, cpu=5.1),
        )
        for driver in (*DRIVERS, ProvisioningDecision()):
            for cpus, expected in ((4.0, {}),
                                   (64.0, {'v': ('unshelve', 'other')})):
                self.assertEqual(expected, self.decide(
                    driver, *things, host('other', 10.0, cpus=cpus),
                    request='return'))


class TestShared(unittest.TestCase):

    def test_size_of_an_item_is_the_sum_of_its_hosts(self):
        world = worlds.cluster(
            host('a', cpus=12.0), host('b', cpus=4.0),
            worlds.Item('room', ('a', 'b'), (), 0.5))
        self.assertEqual(16.0, world.capacity('room', 'cpu'))
        one = vm('v', 'a', cpu=4.0)
        self.assertEqual([25.0, 100.0, 33.333333333], [
            world.percent(place, 'cpu', one) for place in ('room', 'b', 'a')])

    def test_unknown_capacity_yields_no_percentage(self):
        world = worlds.cluster(host('a', capacities={}),
                               host('b', capacities={'mem': 50.0}))
        one = vm('v', 'b', usage={'mem': 10.0, 'pressure': 7.0})
        self.assertEqual([None, 20.0], [
            world.percent(name, 'mem', one) for name in 'ab'])
        self.assertEqual(7.0, world.percent('a', 'pressure', one))
        self.assertEqual([True, True, True], [
            world.are_alike('a', 'b', resource)
            for resource in ('mem', 'cpu', 'pressure')])
        self.assertIsNone(Cluster({}, {}).capacity(None, 'cpu'))
