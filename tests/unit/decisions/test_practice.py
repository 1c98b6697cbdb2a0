# SPDX-License-Identifier: Apache-2.0

"""Decision ``guided`` in situations of practice."""

import dataclasses
import unittest

from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.estimation.durations import Durations
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import (
    HostPolicy,
    InstanceState,
    LeaseMembers,
)
from secondary_scheduler.model.lease_order import Aged
from secondary_scheduler.model.vocabulary import PreemptPolicy
from secondary_scheduler.plans import checker
from tests.unit.decisions.worlds import (
    TOTAL,
    apply,
    cluster,
    cpu_policy,
    host,
    kinds,
    slots_policy,
    vm,
)

FULL = {'total': {**TOTAL, vocabulary.SLOT: 0}}


class Case(unittest.TestCase):

    def decide(self, world, kind='preempt', hosts=(), units=1000, **values):
        budget = Budget(units)
        plan = GuidedDecision(**values).decide(
            world, DecisionRequest(kind, hosts), budget)
        lanes = values.get('limits', LoadLimits()).lanes
        self.assertEqual([], checker.check(world, plan, lanes))
        self.assertEqual(budget.truncated, plan.truncated)
        return plan


class TestPreempt(Case):

    def test_lowest_priority_is_suspended(self):
        world = cluster(
            host('h', 69.0, violated=True), vm('a', 'h', priority=3),
            vm('b', 'h', priority=9), vm('c', 'h', priority=7))
        plan = self.decide(world)
        self.assertEqual({'a': ('suspend', None)}, kinds(plan))
        self.assertEqual((), plan.unresolved)

    def test_instance_with_failed_migration_is_suspended(self):
        world = cluster(host('h', 79.0, violated=True), host('idle', 20.0),
                        vm('a', 'h', priority=3, migration_failed=True))
        self.assertEqual({'a': ('suspend', None)},
                         kinds(self.decide(world)))

    def test_closed_hosts_are_no_targets(self):
        for values in ({'usable': False}, {'blocked': True},
                       {'primary': None}, {'violated': True},
                       {'policies': ()}, FULL,
                       {'reserved': {vocabulary.MEMORY_MB: 4000}}):
            with self.subTest(values):
                world = cluster(host('h', 95.0, violated=True),
                                host('other', **values), vm('a', 'h'))
                self.assertEqual({'a': ('suspend', None)},
                                 kinds(self.decide(world)))

    def test_all_leave_if_the_primary_exceeds_the_threshold(self):
        world = cluster(host('h', 99.0, violated=True),
                        *(vm(uuid, 'h', priority=10) for uuid in 'abc'))
        self.assertEqual(3, len(kinds(self.decide(world))))

    def test_lease_is_preempted_as_a_whole(self):
        world = cluster(
            host('h', 79.0, violated=True), host('x', **FULL),
            vm('a', 'h', lease='l', priority=2), vm('b', 'x', lease='l'),
            vm('c', 'h', priority=8),
            vm('d', 'x', InstanceState.SUSPENDED, lease='l'))
        self.assertEqual({'a': ('suspend', None), 'b': ('suspend', None)},
                         kinds(self.decide(world)))

    def test_migration_is_withdrawn_if_the_lease_is_preempted(self):
        world = cluster(
            host('h', 95.0, violated=True),
            host('x', 20.0, total={**TOTAL, vocabulary.VCPU: 2}),
            vm('a', 'h', lease='l'), vm('b', 'h', lease='l', vcpus=4))
        plan = self.decide(world)
        self.assertEqual({'a': ('suspend', None), 'b': ('suspend', None)},
                         kinds(plan))
        self.assertEqual(2, len(plan.operations))

    def test_flavor_decides_preemption(self):
        world = cluster(host('h', 95.0, violated=True), *(
            vm(policy.value, 'h', preempt_policy=policy)
            for policy in PreemptPolicy))
        self.assertEqual(
            {'suspend': ('suspend', None), 'shelve': ('shelve', None),
             'stop': ('stop', None), 'delete': ('stop', None)},
            kinds(self.decide(world)))

    def test_excluded_instances_are_left_alone(self):
        world = cluster(
            host('h', 95.0, violated=True),
            vm('busy', 'h', InstanceState.BUSY), vm(
                'other', 'h', InstanceState.OTHER),
            vm('blocked', 'h', blocked=True))
        plan = self.decide(world)
        self.assertEqual({}, kinds(plan))
        self.assertEqual(('h',), plan.unresolved)

    def test_busy_instances_take_room(self):
        world = cluster(
            host('h', 79.0, violated=True), vm('a', 'h', InstanceState.BUSY),
            vm('b', 'h', priority=9))
        plan = self.decide(world)
        self.assertEqual({'b': ('suspend', None)}, kinds(plan))
        self.assertEqual((), plan.unresolved)

    def test_lease_with_a_busy_member_is_not_split(self):
        world = cluster(
            host('h', 79.0, violated=True), host('x'),
            vm('a', 'h', lease='l', priority=1, vcpus=9),
            vm('b', 'x', InstanceState.BUSY, lease='l', priority=1),
            vm('c', 'h', priority=9, vcpus=9))
        self.assertEqual({'c': ('suspend', None)}, kinds(self.decide(world)))

    def test_member_in_error_does_not_protect_its_lease(self):
        world = cluster(
            host('h', 95.0, violated=True),
            host('x', **FULL),
            vm('a', 'h', lease='l'),
            vm('b', 'x', InstanceState.OTHER, lease='l'),
        )
        self.assertEqual({'a': ('suspend', None)}, kinds(self.decide(world)))

    def test_owner_cannot_raise_a_lease(self):
        world = cluster(
            host('h', 79.0, violated=True), host('x', **FULL),
            vm('a', 'h', lease='l', priority=10),
            vm('b', 'x', lease='l', priority=1),
            vm('c', 'h', priority=5))
        self.assertEqual({'a', 'b'}, set(kinds(self.decide(world))))

    def test_surplus_by_slots_leaves(self):
        world = cluster(
            host('h', policies=(slots_policy(1, violated=True),),
                 blocked=True),
            vm('a', 'h', priority=2), vm('b', 'h'))
        self.assertEqual({'a': ('suspend', None)}, kinds(self.decide(world)))

    def test_cooling_down_applies_to_dynamic_policies_only(self):
        a = vm('a', 'h', cooling_down=True)
        self.assertFalse(self.decide(cluster(
            host('h', 95.0, violated=True), a)))
        self.assertEqual({'a': ('suspend', None)}, kinds(self.decide(
            cluster(host('h', policies=(slots_policy(0, True),)), a))))

    def test_blocked_host_is_left_to_its_agent(self):
        world = cluster(host('h', 95.0, violated=True, blocked=True),
                        vm('a', 'h'))
        plan = self.decide(world)
        self.assertEqual({}, kinds(plan))
        self.assertEqual(('h',), plan.unresolved)

    def test_one_leaves_a_violated_host_even_if_all_fit(self):
        for primary in (20.0, 70.0):
            world = cluster(
                host('h', primary, violated=True), vm('a', 'h', priority=3),
                vm('b', 'h', priority=9))
            self.assertEqual({'a': ('suspend', None)},
                             kinds(self.decide(world)))
            self.assertEqual((), self.decide(world).unresolved)

    def test_local_means_are_tried_first(self):
        # There is no room at the minimum share, but no violation yet.
        world = cluster(host('h', 95.0, policies=(cpu_policy(failed=3),)),
                        vm('a', 'h'))
        self.assertFalse(self.decide(world))

    def test_slots_violation_does_not_affect_cpu(self):
        world = cluster(
            host('h', 79.0, policies=(
                cpu_policy(), slots_policy(2, violated=True))),
            vm('a', 'h', priority=2), vm('b', 'h'), vm('c', 'h'))
        self.assertEqual({'a': ('suspend', None)}, kinds(self.decide(world)))

    def test_only_surplus_slots_leave_a_blocked_host(self):
        world = cluster(
            host('h', 20.0, blocked=True, policies=(
                cpu_policy(failed=4, violated=True),
                slots_policy(2, violated=True))),
            vm('a', 'h', priority=2), vm('b', 'h'), vm('c', 'h'))
        plan = self.decide(world)
        self.assertEqual({'a': ('suspend', None)}, kinds(plan))
        self.assertFalse(self.decide(apply(world, plan)))

    def test_host_is_unresolved_if_busy_instances_exceed_the_policy(self):
        policy = HostPolicy('cores <= 2', 'cores', 2, 60, 1, True)
        for busy, left in ((2, ()), (3, ('h',))):
            world = cluster(
                host('h', policies=(policy,)), vm('b', 'h'),
                vm('a', 'h', InstanceState.BUSY, vcpus=busy))
            plan = self.decide(world)
            self.assertEqual({'b': ('suspend', None)}, kinds(plan))
            self.assertEqual(left, plan.unresolved)

    def test_only_requested_hosts_are_relieved(self):
        world = cluster(host('h', 95.0, violated=True), vm('a', 'h'),
                        host('i', 95.0, violated=True), vm('b', 'i'))
        self.assertEqual({'b'}, set(kinds(self.decide(
            world, hosts=('i', 'gone')))))
        self.assertEqual({}, kinds(self.decide(world, hosts=('gone',))))
        self.assertEqual({'a', 'b'}, set(kinds(self.decide(world))))

    def test_shelved_peer_frees_its_inventory(self):
        world = cluster(
            host('h', 95.0, violated=True),
            host('x', total={**TOTAL, vocabulary.SLOT: 1}),
            vm('a', 'h', priority=9), vm('b', 'h', lease='m'),
            vm('c', 'x', lease='m', preempt_policy=PreemptPolicy.SHELVE))
        plan = self.decide(world)
        self.assertEqual({'a': ('migrate', 'x'), 'b': ('suspend', None),
                          'c': ('shelve', None)}, kinds(plan))
        order = {o.instance: o for o in plan.operations}
        self.assertIn(order['c'].id, order['a'].after)

    def test_target_satisfies_anti_affinity(self):
        world = cluster(
            host('h', 95.0, violated=True), host('x', 20.0),
            host('y', 50.0), vm('a', 'h', anti_affinity='g'),
            vm('b', 'x', InstanceState.SUSPENDED, anti_affinity='g'))
        self.assertEqual({'a': ('migrate', 'y')}, kinds(self.decide(world)))

    def test_limits_decide_how_many_leave(self):
        world = cluster(host('h', 79.0, violated=True),
                        *(vm(uuid, 'h') for uuid in 'abc'))
        for limits, count in (
            (LoadLimits(), 2),
            (LoadLimits(useful_share=5.0), 1),
            (LoadLimits(margin=6.0), 3),
            (LoadLimits(minimum_share=11.0), 3),
        ):
            with self.subTest(limits):
                self.assertEqual(count, len(kinds(
                    self.decide(world, limits=limits))))


class TestDrain(Case):

    def test_all_instances_leave_a_drained_host(self):
        world = cluster(
            host('h', 0.0), host('i', 0.0), host('x', 79.0),
            vm('a', 'h', priority=9), vm('b', 'h', priority=3),
            vm('c', 'h', InstanceState.SUSPENDED))
        plan = self.decide(world, 'drain', ('h', 'i'))
        self.assertEqual({'a': ('migrate', 'x'), 'b': ('suspend', None)},
                         kinds(plan))
        self.assertEqual((), plan.unresolved)

    def test_drain_without_hosts_does_nothing(self):
        world = cluster(host('h'), host('x'), vm('a', 'h'))
        self.assertFalse(self.decide(world, 'drain'))

    def test_host_with_busy_instances_is_unresolved(self):
        world = cluster(host('h'), vm('a', 'h', InstanceState.BUSY))
        self.assertEqual(('h',), self.decide(
            world, 'drain', ('h',)).unresolved)


class TestReturn(Case):

    def down(self, uuid, where='h', state=InstanceState.SUSPENDED, **values):
        return vm(uuid, where, state, preempted=True, **values)

    def test_instances_return_by_their_state(self):
        world = cluster(
            host('h'), self.down('a'), self.down(
                'b', state=InstanceState.STOPPED),
            self.down('c', None, InstanceState.SHELVED))
        self.assertEqual(
            {'a': ('resume', 'h'), 'b': ('start', 'h'),
             'c': ('unshelve', 'h')}, kinds(self.decide(world, 'return')))

    def test_highest_priority_returns_first(self):
        world = cluster(host('h', 70.0), self.down('a', priority=2),
                        self.down('b', priority=8))
        self.assertEqual({'b': ('resume', 'h')},
                         kinds(self.decide(world, 'return')))

    def test_longest_waiting_lease_returns_first_among_equals(self):
        world = dataclasses.replace(
            cluster(host('h', 70.0), self.down('a', lease='a'),
                    self.down('b', lease='b'),
                    self.down('c', lease='c', priority=4)),
            leases={name: LeaseMembers(name, priority, waited_s=3600 * hours)
                    for name, priority, hours in (
                        ('a', 5, 1), ('b', 5, 2), ('c', 4, 4))})
        for ageing, first in ((0.0, 'b'), (0.4, 'b'), (0.6, 'c')):
            self.assertEqual({first: ('resume', 'h')}, kinds(self.decide(
                world, 'return', order=Aged(ageing))))

    def test_lease_without_room_does_not_block_lower_ones(self):
        world = cluster(
            host('h', 70.0), self.down('a', lease='l', priority=9),
            self.down('b', lease='l', priority=9), self.down('c'))
        self.assertEqual({'c': ('resume', 'h')},
                         kinds(self.decide(world, 'return')))

    def test_excluded_instances_do_not_return(self):
        world = cluster(
            host('h'), vm('a', 'h', InstanceState.SUSPENDED),
            self.down('b', blocked=True), self.down('e', cooling_down=True),
            self.down('c', state=InstanceState.BUSY),
            self.down('d', None))
        self.assertFalse(self.decide(world, 'return'))

    def test_only_whole_leases_return(self):
        for peer in (vm('b', 'h', InstanceState.BUSY, lease='l'),
                     vm('b', 'h', lease='l', blocked=True),
                     self.down('b', 'gone', lease='l')):
            world = cluster(host('h'), self.down('a', lease='l'), peer)
            self.assertFalse(self.decide(world, 'return'))

    def test_partial_lease_is_preempted_again(self):
        down = self.down('b', lease='l', return_failed=True)
        world = cluster(host('h'), host('x'), vm('a', 'h', lease='l'),
                        vm('c', 'x', lease='l'))
        for one in (down, dataclasses.replace(
            down, state=InstanceState.OTHER)):
            half = dataclasses.replace(world, instances={
                **world.instances, 'b': one})
            for hosts in ((), ('x',)):
                plan = self.decide(half, 'return', hosts)
                self.assertEqual({'a': ('suspend', None),
                                  'c': ('suspend', None)}, kinds(plan))
            self.assertFalse(self.decide(half, 'return', ('y',)))
            self.assertFalse(self.decide(half))
            waits = apply(half, plan)
            self.assertFalse(self.decide(waits, 'return'))
            # Deleted, rebooted by its owner, or ready for a retry.
            for now in (None, vm('b', 'h', lease='l'),
                        self.down('b', lease='l')):
                instances = {**waits.instances, 'b': now}
                whole = dataclasses.replace(waits, instances={
                    uuid: one for uuid, one in instances.items() if one})
                back = kinds(self.decide(whole, 'return'))
                self.assertLessEqual({'a': ('resume', 'h'),
                                      'c': ('resume', 'x')}.items(),
                                     back.items())
        # Members that were never preempted are left to their owner.
        self.assertFalse(self.decide(dataclasses.replace(world, instances={
            **world.instances,
            'b': vm('b', 'h', InstanceState.OTHER, lease='l'),
            'd': vm('d', 'h', InstanceState.SUSPENDED, lease='l'),
        }), 'return'))

    def test_partial_lease_with_excluded_members_waits(self):
        for values in ({'state': InstanceState.BUSY}, {'blocked': True},
                       {'cooling_down': True}, {'preempt_failed': True}):
            self.assertFalse(self.decide(cluster(
                host('h'), vm('a', 'h', lease='l'),
                vm('c', 'h', **{'lease': 'l', **values}),
                self.down('b', lease='l', return_failed=True)), 'return'))
        for values in ({}, {'blocked': True}):
            plan = self.decide(cluster(
                host('h'), host('x', **values), vm('a', 'x', lease='l'),
                self.down('b', lease='l', return_failed=True)), 'return')
            self.assertEqual(not values, bool(plan))

    def test_partial_lease_runs_on_if_work_would_be_lost(self):
        for policy in PreemptPolicy:
            plan = self.decide(cluster(
                host('h'), vm('a', 'h', lease='l'),
                vm('c', 'h', lease='l', preempt_policy=policy),
                self.down('b', lease='l', return_failed=True)), 'return')
            self.assertEqual(policy is PreemptPolicy.SUSPEND, bool(plan))

    def test_partial_lease_can_be_preempted(self):
        world = cluster(host('h', 95.0, violated=True),
                        vm('a', 'h', lease='l'),
                        self.down('b', lease='l', return_failed=True))
        self.assertEqual({'a': ('suspend', None)}, kinds(self.decide(world)))

    def test_no_return_to_a_closed_or_failing_host(self):
        for values in ({'usable': False}, {'blocked': True},
                       {'violated': True}, {'primary': None},
                       {'policies': (cpu_policy(failed=1),)}):
            with self.subTest(values):
                world = cluster(host('h', **values), host('x'),
                                self.down('a'))
                self.assertFalse(self.decide(world, 'return'))

    def test_instance_resumes_and_migrates(self):
        world = cluster(host('h', 80.0), host('x', 40.0), self.down('a'))
        plan = self.decide(world, 'return')
        self.assertEqual(
            [('resume', 'h', 'h', 0.0, ()), ('migrate', 'h', 'x', 3.0, (1,))],
            [(o.kind, o.source, o.target, o.start_s, o.after)
             for o in plan.operations])
        self.assertFalse(self.decide(apply(world, plan), 'return'))

    def test_no_resume_without_minimum_share(self):
        world = cluster(host('h', 85.0), host('x', 40.0), self.down('a'))
        self.assertFalse(self.decide(world, 'return'))

    def test_no_return_without_room(self):
        world = cluster(host('h', 80.0), host('x', 80.0), self.down('a'))
        self.assertFalse(self.decide(world, 'return'))

    def test_steps_of_an_infeasible_lease_are_undone(self):
        world = cluster(
            host('h'), host('i', 95.0), self.down('a', lease='l'),
            self.down('b', 'i', lease='l'))
        self.assertFalse(self.decide(world, 'return'))

    def test_instances_return_in_place_only_during_a_violation(self):
        world = cluster(
            host('bad', 95.0, violated=True), vm('v', 'bad'),
            host('h', 80.0), host('x'), self.down('a', 'h'),
            self.down('b', None, InstanceState.SHELVED), self.down('c', 'x'),
            vm('d', 'h', origin='x'))
        self.assertEqual({'c': ('resume', 'x')},
                         kinds(self.decide(world, 'return')))

    def test_shelved_instance_with_a_full_host_waits(self):
        world = cluster(host('h', 80.0), host('x'),
                        self.down('a', state=InstanceState.SHELVED))
        self.assertFalse(self.decide(world, 'return'))

    def test_only_requested_hosts_get_returns(self):
        world = cluster(host('h'), host('x'), self.down('a'),
                        self.down('b', 'x'))
        self.assertEqual({'b'}, set(kinds(self.decide(
            world, 'return', ('x',)))))

    def test_migrated_instance_returns_to_its_origin(self):
        world = cluster(host('h', 20.0), host('x', 20.0),
                        vm('a', 'x', origin='h'), vm('b', 'x', origin='h'))
        plan = self.decide(world, 'return')
        self.assertEqual({'a': ('migrate', 'h')}, kinds(plan))
        # One instance on each host is balanced.
        self.assertFalse(self.decide(apply(world, plan), 'return'))

    def test_no_migration_to_a_crowded_or_closed_origin(self):
        for home in (host('h', 50.0), host('h', 81.0), host('h', None),
                     host('h', blocked=True), host('h', **FULL)):
            world = cluster(home, host('x', 30.0), vm('a', 'x', origin='h'))
            self.assertFalse(self.decide(world, 'return'))

    def test_excluded_instances_stay_away_from_their_origin(self):
        for values in ({'state': InstanceState.BUSY}, {'blocked': True},
                       {'state': InstanceState.SUSPENDED}, {'origin': 'gone'}):
            world = cluster(host('h', 0.0), host('x', 50.0),
                            vm('a', 'x', **{'origin': 'h', **values}))
            self.assertFalse(self.decide(world, 'return'))


class TestOrdering(Case):

    def test_operations_per_host_are_limited(self):
        world = cluster(host('h', 99.0, violated=True),
                        *(vm(f'v{one}', 'h') for one in range(5)))
        plan = self.decide(world, durations=Durations(suspend=2.0),
                           limits=LoadLimits(lanes=2))
        self.assertEqual([0, 0, 2, 2, 4],
                         [o.start_s for o in plan.operations])
        self.assertEqual([(), (), (1,), (2,), (3,)],
                         [o.after for o in plan.operations])

    def test_members_of_a_group_migrate_one_by_one(self):
        world = cluster(
            host('h', 95.0, violated=True), host('i', 95.0, violated=True),
            host('x'), host('y'), vm('a', 'h', anti_affinity='g'),
            vm('b', 'i', anti_affinity='g'))
        first, second = self.decide(world).operations
        self.assertEqual((first.id,), second.after)
        self.assertNotEqual(first.target, second.target)
