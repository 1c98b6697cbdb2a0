# SPDX-License-Identifier: Apache-2.0

"""Decision ``context-switch`` in situations of practice."""

import dataclasses
import unittest

from secondary_scheduler.decisions.base import (
    Budget,
    DecisionRequest,
    SwitchOptions,
)
from secondary_scheduler.decisions.context_switch import (
    ContextSwitchDecision,
)
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.decisions.switch_improvement import UnsuitablePlan
from secondary_scheduler.estimation.durations import ConcurrentDurations
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import (
    InFlight,
    InstanceState,
    LeaseMembers,
)
from secondary_scheduler.model.constraints import Fence, Root, Spread
from secondary_scheduler.model.lease_order import Aged, FirstCome
from secondary_scheduler.model.vocabulary import PreemptPolicy
from secondary_scheduler.plans import checker
from secondary_scheduler.plans.operations import (
    Operation,
    OperationKind,
    Plan,
)
from tests.unit.decisions import worlds
from tests.unit.decisions.worlds import cpu_policy, slots_policy, vm

SUSPENDED, SHELVED = InstanceState.SUSPENDED, InstanceState.SHELVED
OPTIONS = SwitchOptions(minimum_run_s=0.0, headroom=0.0)


def host(name, **values):
    """Return a host of one CPU and 1 GiB, all of which secondaries may use."""
    values.setdefault('policies', (cpu_policy(100.0),))
    values.setdefault('total', {**worlds.TOTAL, vocabulary.MEMORY_MB: 1024})
    return worlds.host(name, values.pop('primary', 0.0),
                       **{'cpus': 1.0, **values})


def busy(uuid, where, lease, **values):
    return vm(uuid, where, **{'lease': lease, 'memory_mb': 512,
                              'wanted_cpu': 1.0, **values})


def down(uuid, where, lease, state=SUSPENDED, **values):
    return busy(uuid, where, lease, state=state, preempted=True, **values)


class Case(unittest.TestCase):

    def decide(self, world, kind='select', hosts=(), options=OPTIONS,
               lanes=2, **values):
        limits = LoadLimits(margin=0.0, lanes=lanes)
        plan = ContextSwitchDecision(limits, **values).decide(
            world, DecisionRequest(kind, hosts, options), Budget())
        self.assertEqual([], checker.check(world, plan, lanes))
        return plan

    def kinds(self, *things, **values):
        return worlds.kinds(self.decide(worlds.cluster(*things), **values))


class TestSelect(Case):

    def test_sample_of_the_seed(self):
        # Hermenier 2009, figure 6, with vjob3 shelved.
        plan = self.decide(worlds.cluster(
            *map(host, ('n1', 'n2', 'n3')),
            busy('vm1', 'n1', 'j1', priority=9),
            busy('vm2', 'n2', 'j1', priority=9),
            busy('vm3', 'n3', 'j2', priority=8, memory_mb=256),
            busy('vm4', 'n3', 'j2', priority=8, memory_mb=256),
            down('vm5', None, 'j3', SHELVED, priority=7)))
        self.assertEqual(
            {'vm3': ('suspend', None), 'vm4': ('suspend', None),
             'vm5': ('unshelve', 'n3')}, worlds.kinds(plan))
        claim = plan.switch
        self.assertEqual(('cost', 768, 768, 'optimal', 2, 0), (
            claim.objective, claim.value, claim.bound, claim.status,
            claim.selected, claim.bypasses))
        first, second, third = plan.operations
        self.assertEqual((0.0, 1.0), (first.start_s, second.start_s))
        self.assertEqual((1, 2), third.after)

    def test_suspended_instance_keeps_its_claims(self):
        self.assertEqual({}, self.kinds(
            host('n1'), busy('a', 'n1', 'j1'), down('b', 'n1', 'j2'),
            down('c', None, 'j3', SHELVED, wanted_cpu=0.0)))

    def test_idle_instances_share_a_host(self):
        self.assertEqual({'b': ('resume', 'n1')}, self.kinds(
            host('n1'), busy('a', 'n1', 'j1', wanted_cpu=0.5),
            down('b', 'n1', 'j2', wanted_cpu=0.5)))

    def test_higher_lease_displaces_lower_ones(self):
        things = (host('n1'), busy('a', 'n1', 'low', priority=3),
                  down('b', 'n1', 'high', priority=8))
        self.assertEqual({'a': ('suspend', None), 'b': ('resume', 'n1')},
                         self.kinds(*things))
        self.assertEqual({}, self.kinds(*things, kind='return'))

    def test_equal_lease_does_not_displace(self):
        self.assertEqual({}, self.kinds(
            host('n1'), busy('b', 'n1', 'b'), down('a', 'n1', 'a')))

    def test_margin_and_minimum_run_time_prevent_displacement(self):
        for margin, minimum, running_s, displaced in (
                (0.0, 0.0, 10.0, True), (4.0, 0.0, 10.0, True),
                (6.0, 0.0, 10.0, False), (0.0, 60.0, 10.0, False),
                (0.0, 60.0, 90.0, True), (0.0, 60.0, None, True)):
            found = self.kinds(
                host('n1'),
                busy('a', 'n1', 'low', priority=3, running_s=running_s),
                down('b', 'n1', 'high', priority=8),
                options=SwitchOptions(minimum_run_s=minimum, headroom=0.0,
                                      displacement_margin=margin))
            self.assertEqual(displaced, bool(found), (margin, minimum))

    def test_overload_suspends_the_last_lease_as_a_whole(self):
        self.assertEqual({'c': ('suspend', None), 'd': ('suspend', None)},
                         self.kinds(
            host('n1'), host('n2'), host('n3'),
            busy('a', 'n1', 'j1', priority=9),
            busy('b', 'n2', 'j1', priority=9),
            busy('c', 'n1', 'j2', priority=3),
            busy('d', 'n3', 'j2', priority=3)))

    def test_instance_moves_instead_of_a_suspension(self):
        self.assertEqual({'b': ('migrate', 'n2')}, self.kinds(
            host('n1'), host('n2'), busy('a', 'n1', 'j1', priority=9),
            busy('b', 'n1', 'j2', memory_mb=256)))

    def test_instance_resumes_at_home_and_migrates(self):
        plan = self.decide(worlds.cluster(
            host('n1'), host('n2'), busy('a', 'n1', 'j1', priority=9,
                                         migration_failed=True),
            down('b', 'n1', 'j2', memory_mb=256)))
        self.assertEqual([('resume', 'n1'), ('migrate', 'n2')], [
            (str(one.kind), one.target) for one in plan.operations])

    def test_switch_without_migrations_needs_no_search(self):
        world = worlds.cluster(
            host('n1'), host('n2'), busy('a', 'n1', 'j1', priority=9),
            busy('b', 'n1', 'j2', memory_mb=256),
            busy('c', 'n2', 'j2', memory_mb=128),
            down('d', None, 'j3', SHELVED, wanted_cpu=0.0))
        for objective, value in (('cost', 384), ('span', 256),
                                 ('memory', 384)):
            budget = Budget(0)
            plan = ContextSwitchDecision(LoadLimits(margin=0.0)).decide(
                world, DecisionRequest('select', (), dataclasses.replace(
                    OPTIONS, objective=objective)), budget)
            self.assertEqual((value, value, 'optimal'), (
                plan.switch.value, plan.switch.bound, plan.switch.status))
            self.assertFalse(budget.truncated)

    def test_lease_starts_only_with_headroom(self):
        for use, starts in ((0.45, True), (0.55, False)):
            things = (host('n1'), busy('a', 'n1', 'j1', wanted_cpu=use),
                      down('b', 'n1', 'j2', wanted_cpu=0.4))
            self.assertEqual(starts, bool(self.kinds(
                *things, options=SwitchOptions(headroom=0.1))))
            self.assertTrue(self.kinds(*things))

    def test_lease_that_does_not_fit_does_not_block_the_next(self):
        self.assertEqual({'c': ('resume', 'n1')}, self.kinds(
            host('n1'), down('a', 'n1', 'j1', priority=9, memory_mb=256),
            down('b', 'n1', 'j1', priority=9, memory_mb=256),
            down('c', 'n1', 'j2', priority=3)))

    def test_order_decides_among_leases(self):
        world = dataclasses.replace(worlds.cluster(
            host('n1'), down('a', 'n1', 'a'), down('b', 'n1', 'b')), leases={
                'a': LeaseMembers('a', 5.0, age_s=9000.0),
                'b': LeaseMembers('b', 6.0, age_s=0.0)})
        for order, first in ((Aged(0.3), 'b'), (Aged(0.5), 'a'),
                             (FirstCome(), 'a')):
            self.assertEqual({first: ('resume', 'n1')}, worlds.kinds(
                self.decide(world, order=order)))

    def test_aged_lease_keeps_its_rank_when_it_runs(self):
        world = dataclasses.replace(worlds.cluster(
            host('n1'), busy('a', 'n1', 'a'), down('b', 'n1', 'b')), leases={
                'a': LeaseMembers('a', 5.0, age_s=9000.0),
                'b': LeaseMembers('b', 6.0, age_s=0.0)})
        self.assertFalse(self.decide(world, order=Aged(0.5)))


    def test_lease_without_a_way_up_displaces_no_other_one(self):
        # The first lease resumes at home only, where another one has the slot.
        plan = self.decide(worlds.cluster(
            host('n1', policies=(cpu_policy(100.0), slots_policy(1))),
            host('n2'), busy('a', 'n1', 'j1', wanted_cpu=0.1, memory_mb=256,
                             blocked=True),
            down('b', 'n1', 'high', priority=9),
            busy('c', 'n2', 'low', priority=2)))
        self.assertEqual({}, worlds.kinds(plan))
        self.assertEqual(('nothing_to_do', ('lease high',), 1), (
            plan.switch.status, plan.switch.conflict, plan.switch.selected))


class TestExcluded(Case):

    def test_leases_with_excluded_members_are_left_alone(self):
        high = down('x', None, 'high', SHELVED, priority=9)
        for values in ({'state': InstanceState.BUSY}, {'blocked': True},
                       {'cooling_down': True}, {'preempt_failed': True},
                       {'preempt_policy': PreemptPolicy.STOP},
                       {'state': InstanceState.OTHER}):
            with self.subTest(values):
                self.assertEqual({}, self.kinds(
                    host('n1'), busy('a', 'n1', 'j1', **values), high))

    def test_guaranteed_lease_is_not_displaced(self):
        world = worlds.cluster(
            host('n1'), busy('a', 'n1', 'a'),
            down('b', 'n1', 'b', priority=9))
        self.assertTrue(self.decide(world))
        self.assertFalse(self.decide(dataclasses.replace(world, leases={
            'a': LeaseMembers('a', 5.0, guaranteed=True)})))

    def test_unknown_demand_leaves_the_leases_of_its_host_alone(self):
        high = down('x', None, 'high', SHELVED, priority=9)
        for things in ((host('n1', primary=None), busy('a', 'n1', 'j1')),
                       (host('n1', policies=()), busy('a', 'n1', 'j1')),
                       (host('n1'), busy('a', 'n1', 'j1'), busy(
                           'b', 'n1', 'j2', wanted_cpu=None))):
            self.assertEqual({}, self.kinds(*things, high))

    def test_closed_hosts_take_no_instance(self):
        for values in ({'usable': False}, {'blocked': True},
                       {'policies': (cpu_policy(100.0, 1),)},
                       {'policies': (cpu_policy(100.0, 4, True),)}):
            with self.subTest(values):
                self.assertEqual({}, self.kinds(
                    host('n1', **values), down('a', 'n1', 'j1'),
                    down('b', None, 'j2', SHELVED)))

    def test_only_requested_hosts_change(self):
        things = [host('n1'), host('n2'), down('a', 'n1', 'j1'),
                  down('b', 'n2', 'j2')]
        self.assertEqual({'b': ('resume', 'n2')}, self.kinds(
            *things, hosts=('n2',)))

    def test_instance_in_flight_takes_room_on_both_hosts(self):
        world = worlds.cluster(
            host('n1'), host('n2'), busy('a', 'n1', 'j1',
                                         state=InstanceState.BUSY),
            down('b', None, 'j2', SHELVED))
        self.assertFalse(self.decide(dataclasses.replace(
            world, in_flight=(InFlight('migrate', 'a', 'n1', 'n2', 3.0),))))
        self.assertTrue(self.decide(world))

    def test_instance_that_its_owner_suspended_does_not_return(self):
        self.assertEqual({}, self.kinds(
            host('n1'), busy('a', 'n1', 'j1', state=SUSPENDED)))

    def test_member_in_error_does_not_protect_its_lease(self):
        self.assertEqual({'a': ('suspend', None), 'c': ('resume', 'n1')},
                         self.kinds(
            host('n1'), host('n2'), busy('a', 'n1', 'j1', memory_mb=256),
            busy('b', 'n2', 'j1', state=InstanceState.OTHER),
            down('c', 'n1', 'j2', priority=9)))

    def test_members_return_to_a_lease_that_is_never_displaced(self):
        self.assertEqual({'b': ('resume', 'n2')}, self.kinds(
            host('n1'), host('n2'),
            busy('a', 'n1', 'j1', preempt_policy=PreemptPolicy.STOP),
            down('b', 'n2', 'j1', preempt_policy=PreemptPolicy.STOP)))

    def test_half_of_a_lease_is_preempted_if_a_return_failed(self):
        self.assertEqual({'a': ('suspend', None)}, self.kinds(
            host('n1'), busy('a', 'n1', 'j1'),
            down('b', 'n1', 'j1', return_failed=True)))

    def test_members_of_an_anti_affinity_group_stay_apart(self):
        self.assertEqual({}, self.kinds(
            host('n1'), busy('a', 'n1', 'j1', wanted_cpu=0.1,
                             anti_affinity='g'),
            down('b', None, 'j2', SHELVED, anti_affinity='g')))

    def test_holds_of_the_lease_schedule_keep_instances_out(self):
        for held, comes in ((1, False), (0, True)):
            self.assertEqual(comes, bool(self.kinds(
                host('n1', held={vocabulary.VCPU: held}),
                down('b', None, 'j2', SHELVED))))

    def test_holds_of_the_lease_schedule_displace_nothing(self):
        self.assertEqual({}, self.kinds(
            host('n1', held={vocabulary.VCPU: 1}), busy('a', 'n1', 'j1')))

    def test_policies_on_slots_count_running_instances(self):
        self.assertEqual({'b': ('suspend', None)}, self.kinds(
            host('n1', policies=(cpu_policy(100.0), slots_policy(1))),
            busy('a', 'n1', 'j1', wanted_cpu=0.1, priority=8),
            busy('b', 'n1', 'j2', wanted_cpu=0.1)))

    def test_empty_cluster_and_closed_cluster_need_nothing(self):
        for things in ((), (host('n1', usable=False),)):
            plan = self.decide(worlds.cluster(*things))
            self.assertEqual(((), 'nothing_to_do'), (
                plan.operations, plan.switch.status))

    def test_broken_constraint_is_repaired(self):
        world = dataclasses.replace(
            worlds.cluster(*map(host, ('node10', 'node2')), *(
                busy(one, 'node10', one, wanted_cpu=0.1, memory_mb=128)
                for one in 'ab')),
            constraints=(Spread(frozenset('ab')),))
        one, = self.decide(world).operations
        self.assertEqual(('migrate', 'node2'), (str(one.kind), one.target))
        self.assertFalse(self.decide(worlds.apply(world, Plan((one,)))))

    def test_broken_anti_affinity_group_is_repaired(self):
        self.assertEqual({'b': ('migrate', 'n2')}, self.kinds(
            host('n1'), host('n2'),
            busy('a', 'n1', 'a', wanted_cpu=0.1, anti_affinity='g'),
            busy('b', 'n1', 'b', wanted_cpu=0.1, anti_affinity='g',
                 memory_mb=128)))

    def test_constraint_beyond_repair_blocks_nothing_else(self):
        world = worlds.cluster(
            host('n1'), host('n2'), *(
                busy(one, 'n1', one, wanted_cpu=0.1) for one in 'ab'),
            down('c', 'n2', 'c'), down('d', 'n2', 'd', wanted_cpu=5.0))
        world = dataclasses.replace(world, constraints=(
            Spread(frozenset('ab')), Root(frozenset('ab')),
            Fence(frozenset('d'), frozenset({'n1'}))))
        one, = self.decide(world).operations
        self.assertEqual(('resume', 'c'), (str(one.kind), one.instance))

    def test_unknown_objective_lists_the_known_ones(self):
        with self.assertRaisesRegex(ValueError, 'cost, span, memory, time'):
            self.decide(worlds.cluster(host('n1')),
                        options=SwitchOptions('best'))


class TestOperations(Case):

    def overloaded(self, count):
        """Return hosts with one lease too many on each."""
        return worlds.cluster(*(
            thing for number in range(count) for thing in (
                host(f'n{number}'),
                busy(f'a{number}', f'n{number}', f'a{number}', priority=9),
                busy(f'b{number}', f'n{number}', f'b{number}'))))

    def test_limited_plan_leaves_the_rest_to_the_next_round(self):
        world, rounds = self.overloaded(5), []
        while plan := self.decide(world, options=dataclasses.replace(
                OPTIONS, most_operations=2)):
            rounds.append((len(plan.operations), plan.switch.selected))
            self.assertEqual(len(rounds) < 3, plan.switch.bound is None)
            world = worlds.apply(world, plan)
        self.assertEqual([(2, 8), (2, 6), (1, 5)], rounds)

    def test_lease_comes_with_those_that_free_its_room(self):
        world = worlds.cluster(
            host('n1'), host('n2'),
            busy('a', 'n1', 'low', priority=2, memory_mb=256),
            busy('b', 'n2', 'low', priority=2, memory_mb=256),
            down('c', 'n1', 'high', priority=9, memory_mb=256))
        plan = self.decide(world, options=dataclasses.replace(
            OPTIONS, most_operations=1))
        # A lease that alone exceeds the limit is not left out for ever.
        self.assertEqual({'a', 'b', 'c'}, set(worlds.kinds(plan)))

    def test_durations_count_operations_at_the_same_time_only(self):
        plan = self.decide(self.overloaded(3),
                           durations=ConcurrentDurations())
        self.assertEqual([9.0] * 3, [
            one.duration_s for one in plan.operations])
        world = worlds.cluster(
            host('n1'), *(busy(f'a{number}', 'n1', f'a{number}',
                               memory_mb=128, priority=number)
                          for number in range(4)))
        plan = self.decide(world, lanes=1, durations=ConcurrentDurations())
        self.assertEqual([(0.0, 7.0), (7.0, 7.0), (14.0, 7.0)], [
            (one.start_s, one.duration_s) for one in plan.operations])

    def test_other_requests_are_decided_by_guided(self):
        world = worlds.cluster(
            worlds.host('n1', 95.0, violated=True), vm('a', 'n1'))
        for kind, hosts in (('preempt', ()), ('drain', ('n1',))):
            request = DecisionRequest(kind, hosts)
            plan = ContextSwitchDecision().decide(world, request, Budget())
            self.assertTrue(plan)
            self.assertEqual(plan, GuidedDecision().decide(
                world, request, Budget()))


class TestDrain(Case):

    def drain(self, *things):
        world = worlds.cluster(*things)
        plan = ContextSwitchDecision(LoadLimits(margin=0.0)).drain_hosts(
            world, ['n1'], OPTIONS, Budget())
        self.assertEqual([], checker.check(world, plan, 1))
        return worlds.kinds(plan), plan.unresolved

    def test_running_instances_leave_and_no_lease_starts(self):
        self.assertEqual(
            ({'a': ('migrate', 'n2'), 'b': ('suspend', None)}, ()),
            self.drain(host('n1', usable=False), host('n2'),
                       busy('a', 'n1', 'j1', priority=9, memory_mb=256),
                       busy('b', 'n1', 'j2', memory_mb=256),
                       busy('i', 'n2', 'j4', wanted_cpu=0.0, memory_mb=64),
                       down('c', 'n1', 'j3', memory_mb=128)))

    def test_idle_instance_leaves_too(self):
        self.assertEqual(
            ({'a': ('migrate', 'n2')}, ()),
            self.drain(host('n1', usable=False), host('n2'),
                       busy('a', 'n1', 'j1', wanted_cpu=0.0)))

    def test_host_with_an_excluded_instance_is_unresolved(self):
        self.assertEqual(({}, ('n1',)), self.drain(
            host('n1', usable=False), host('n2'),
            busy('a', 'n1', 'j1', blocked=True)))


class TestImprovePlan(Case):

    def setUp(self):
        self.world = worlds.cluster(
            *map(host, ('n1', 'n2', 'n3')), busy('a', 'n1', 'j1'),
            down('b', 'n2', 'j2'))

    def improve(self, *operations):
        plan = Plan(operations)
        self.assertEqual([], checker.check(self.world, plan))
        return ContextSwitchDecision(LoadLimits(margin=0.0)).improve_plan(
            self.world, plan, OPTIONS, Budget())

    def test_states_are_reached_by_fewer_operations(self):
        given, found = self.improve(
            Operation(1, OperationKind.MIGRATE, 'a', 'j1', 'n1', 'n3',
                      0.0, 5.0),
            Operation(2, OperationKind.RESUME, 'b', 'j2', 'n2', 'n2',
                      5.0, 3.0, (1,)))
        self.assertEqual(1536, given)
        self.assertEqual({'b': ('resume', 'n2')}, worlds.kinds(found))
        self.assertEqual((512, 'optimal'), (
            found.switch.value, found.switch.status))

    def test_plan_that_loses_work_is_no_switch(self):
        for kind in (OperationKind.STOP, OperationKind.SHELVE):
            with self.assertRaisesRegex(UnsuitablePlan, 'loses work'):
                self.improve(Operation(1, kind, 'a', 'j1', 'n1', None,
                                       0.0, 2.0))
