# SPDX-License-Identifier: Apache-2.0

"""Decision ``guided``."""

import dataclasses
import itertools
import unittest

from secondary_scheduler.decisions.base import Budget, DecisionRequest
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.decisions.provisioning import ProvisioningDecision
from secondary_scheduler.decisions.violations import THESIS, CostProfile
from secondary_scheduler.decisions.what_if import at_once, in_order
from secondary_scheduler.estimation.durations import (
    ConcurrentDurations,
    DurationInput,
    Durations,
)
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.arrivals import Arrival
from secondary_scheduler.model.cluster import (
    HostPolicy,
    InFlight,
    InstanceState,
    Item,
)
from secondary_scheduler.model.vocabulary import PreemptPolicy
from secondary_scheduler.plans import checker
from secondary_scheduler.plans.operations import KINDS, OperationKind
from secondary_scheduler.simulation import profiles
from tests.unit.decisions import worked_example
from tests.unit.decisions.worlds import (
    TOTAL,
    apply,
    cluster,
    host,
    kinds,
    on,
    slots_policy,
    vm,
)


class TestWorkedExample(unittest.TestCase):

    def test_plan_of_the_worked_example_is_valid(self):
        world = worked_example.cluster()
        budget = worked_example.Budget()
        plan = worked_example.decision().decide(
            world, DecisionRequest('preempt'), budget)
        self.assertEqual([], checker.check(world, plan))
        self.assertEqual((), plan.unresolved)
        self.assertFalse(plan.truncated)
        self.assertEqual(16, len(plan.operations))

    def test_worked_example_with_agents_loses_no_work(self):
        """The two lowest leases are suspended; the others run on.

        Agents take surplus instances to the floor at the time limit.
        """
        ours = profiles.OURS
        world = worked_example.cluster()
        plan = GuidedDecision(
            ours.limits, ConcurrentDurations(), ours.counting).decide(
            world, DecisionRequest('preempt'), Budget())
        self.assertEqual([], checker.check(world, plan))
        self.assertEqual((), plan.unresolved)
        self.assertFalse(plan.truncated)
        after = apply(world, plan)
        for name, one in world.hosts.items():
            self.assertLessEqual(len(on(after, name, InstanceState.ACTIVE)),
                                 one.policies[0].threshold, name)
        done = {kind: {one.instance for one in plan.operations
                       if one.kind is kind} for kind in KINDS}
        self.assertEqual({f'VM{number:02}' for lease in (1, 2) for number
                          in worked_example.LEASES[lease]},
                         done.pop(OperationKind.SUSPEND))
        done.pop(OperationKind.MIGRATE)
        self.assertEqual(set(), set().union(*done.values()))

    def test_worked_example_without_floor_must_lose_work(self):
        """No set of whole leases can be suspended within 9 s.

        Either too many instances remain, or the suspends take too long: all
        at once, as in the thesis, or even longer one by one.  At least as
        many instances as in the plan above must be suspended.
        """
        sizes = [len(one) for one in worked_example.LEASES.values()]
        room = sum(worked_example.THRESHOLDS.values())
        ways = {sum(down) for count in range(len(sizes) + 1)
                for down in itertools.combinations(sizes, count)}
        enough = {down for down in ways if sum(sizes) - down <= room}
        self.assertEqual(7, min(enough))
        for down in enough:
            self.assertGreater(min(ConcurrentDurations().predict_all(
                [DurationInput('suspend')] * down)), 9)


class Case(unittest.TestCase):

    def decide(self, world, kind='preempt', hosts=(), units=5000, **values):
        """Decide, by default without agents that hold policies."""
        budget = Budget(units)
        values.setdefault('profile', CostProfile())
        plan = GuidedDecision(**values).decide(
            world, DecisionRequest(kind, hosts), budget)
        lanes = values.get('limits', LoadLimits()).lanes
        self.assertEqual([], checker.check(world, plan, lanes))
        self.assertEqual(budget.truncated, plan.truncated)
        return plan

    def crowded(self, *things, threshold=1, **values):
        """Return a cluster with a violated host and other things."""
        return cluster(host('h', policies=(
            slots_policy(threshold, violated=True),), **values), *things)


class TestGuided(Case):

    def test_higher_lease_migrates_and_lower_one_is_suspended(self):
        free = host('x', policies=(slots_policy(1),))
        world = self.crowded(free, vm('a', 'h', priority=8),
                             vm('b', 'h', priority=3),
                             vm('c', 'h', priority=5))
        # The higher lease of the two that leave gets the room.
        self.assertEqual({'a': ('migrate', 'x'), 'b': ('suspend', None)},
                         kinds(self.decide(world)))

    def test_higher_prediction_of_performance_wins_among_hosts_with_room(self):
        one, two = slots_policy(1), slots_policy(2)
        hosts = [host('x', policies=(two,), arrivals={'web': Arrival(2, 0)}),
                 host('y', policies=(one,), arrivals={'web': Arrival(1, 0)}),
                 host('z', policies=(slots_policy(0),),
                      arrivals={'web': Arrival(1, 0)})]
        for moves_first in (False, True):
            for workload_class, target in (
                    ('web', 'y'), ('db', 'x'), (None, 'x')):
                with self.subTest(moves_first, target=target):
                    self.assertEqual({'a': ('migrate', target)}, kinds(
                        self.decide(self.crowded(*hosts, vm(
                            'a', 'h', workload_class=workload_class),
                            threshold=0), profile=CostProfile(
                                moves_first=moves_first))))

    def test_shelved_instance_returns_where_it_is_predicted_to_be_fast(self):
        hosts = [host('x', primary=0.0, arrivals={'web': Arrival(1, 0.5)}),
                 host('y', arrivals={'web': Arrival(1, 0.01)}),
                 # About as fast, and emptier.
                 host('z', primary=10.0, arrivals={'web': Arrival(1, 0.02)})]
        world = cluster(*hosts, vm(
            'a', None, InstanceState.SHELVED, preempted=True,
            workload_class='web'))
        self.assertEqual({'a': ('unshelve', 'z')},
                         kinds(self.decide(world, 'return')))

    def test_instances_of_one_plan_do_not_all_go_to_the_fastest_host(self):
        hosts = [host('x', primary=0.0, arrivals={'web': Arrival(1, 0.1)}),
                 *(host(name, primary=10.0, arrivals={
                     'web': Arrival(1, 0.15)}) for name in 'yz')]
        plan = self.decide(cluster(*hosts, *(vm(
            name, None, InstanceState.SHELVED, preempted=True,
            workload_class='web') for name in 'abc')), 'return')
        self.assertEqual({('unshelve', name) for name in 'xyz'},
                         set(kinds(plan).values()))

    def test_lower_lease_elsewhere_is_preempted(self):
        world = self.crowded(
            host('x', policies=(slots_policy(1),)), vm('a', 'h', priority=8),
            vm('b', 'x', priority=3), threshold=0)
        plan = self.decide(world)
        self.assertEqual({'a': ('migrate', 'x'), 'b': ('suspend', None)},
                         kinds(plan))
        order = {one.instance: one for one in plan.operations}
        self.assertIn(order['b'].id, order['a'].after)

    def test_equal_or_higher_lease_is_not_preempted(self):
        for priority in (8, 9):
            world = self.crowded(
                host('x', policies=(slots_policy(1),)),
                vm('a', 'h', priority=8), vm('b', 'x', priority=priority),
                threshold=0)
            self.assertEqual({'a': ('suspend', None)},
                             kinds(self.decide(world)))

    def test_largest_instances_leave_first(self):
        world = self.crowded(
            host('x', policies=(slots_policy(9),)), *(
                vm(uuid, 'h', lease='l', vcpus=vcpus)
                for uuid, vcpus in (('a', 1), ('b', 4), ('c', 2))))
        self.assertEqual({'b', 'c'}, set(kinds(self.decide(
            world, profile=THESIS))))
        # By repair before the search, the small instances suffice.
        self.assertEqual({'a', 'c'}, set(kinds(self.decide(world))))

    def test_flavor_decides_preemption_unless_time_is_short(self):
        guests = [vm(policy.value, 'h', preempt_policy=policy)
                  for policy in PreemptPolicy]
        self.assertEqual(
            {'suspend': ('suspend', None), 'shelve': ('shelve', None),
             'stop': ('stop', None), 'delete': ('stop', None)},
            kinds(self.decide(self.crowded(*guests, threshold=0))))
        urgent = HostPolicy('slots <= 0 for 6s', 'slots', 0, 6, 1, True)
        self.assertEqual(
            {'suspend': ('suspend', None), 'shelve': ('stop', None)},
            kinds(
                self.decide(
                    cluster(host('h', policies=(urgent,)), *guests[:2]),
                    limits=LoadLimits(lanes=2),
                )
            ),
        )

    def test_operations_have_deadlines(self):
        world = self.crowded(vm('a', 'h'), vm('b', 'x'), host('x'),
                             threshold=0, primary=99.0)
        self.assertEqual([57.0], [
            one.deadline_s for one in self.decide(world).operations])
        self.assertEqual(57.0, CostProfile().deadline(slots_policy(0, True)))
        late = HostPolicy('', 'cpu', 90, 10, failed=6, sensitivity=4)
        self.assertEqual(2.0, CostProfile().deadline(late))
        self.assertEqual(6.0, THESIS.deadline(
            dataclasses.replace(late, failed=3)))

    def test_violation_that_cannot_end_in_time_is_unresolved(self):
        policy = HostPolicy('', 'cpu', 90.0, 10, 9, True, 4)
        world = cluster(host('h', 95.0, policies=(policy,)), host('x'),
                        vm('a', 'h'))
        plan = self.decide(world)
        self.assertEqual({'a': ('stop', None)}, kinds(plan))
        self.assertEqual(('h',), plan.unresolved)
        self.assertIsNone(plan.operations[0].deadline_s)

    def test_no_instance_is_stopped_if_agents_hold_policies(self):
        policy = HostPolicy('', 'cpu', 90.0, 10, 9, True, 4)
        patient = CostProfile(agents_hold=True)
        world = cluster(host('h', 95.0, policies=(policy,)), host('x'),
                        vm('a', 'h'))
        self.assertEqual({'a': ('migrate', 'x')},
                         kinds(self.decide(world, profile=patient)))
        world = self.crowded(vm('a', 'h'), vm('b', 'h'), threshold=0)
        plan = self.decide(world, profile=patient, units=0)
        self.assertEqual({OperationKind.SUSPEND}, {one.kind for one in
                                                   plan.operations})

    def test_operations_per_host_are_limited(self):
        world = self.crowded(vm('a', 'h'), vm('b', 'h'), threshold=0)
        for lanes, after in ((1, [(), (1,)]), (2, [(), ()])):
            plan = self.decide(world, limits=LoadLimits(lanes=lanes))
            self.assertEqual(after, [one.after for one in plan.operations])

    def test_late_host_does_not_affect_others(self):
        policy = HostPolicy('', 'cpu', 90.0, 10, 9, True, 4)
        world = self.crowded(host('i', 95.0, policies=(policy,)),
                             vm('a', 'i', priority=9), vm('b', 'h'),
                             threshold=0)
        self.assertEqual({'a': ('stop', None), 'b': ('suspend', None)},
                         kinds(self.decide(world)))

    def test_lost_violation_does_not_affect_other_leases(self):
        # Two concurrent stops of 2 s each in 4 s: the fifth is too late.
        world = self.crowded(
            host('i', 95.0, violated=True), vm('b', 'h', priority=1),
            *(vm(uuid, 'i', priority=9) for uuid in 'vwxyz'), threshold=0)
        plan = self.decide(world, profile=CostProfile(deadline_guard=2.0),
                           durations=Durations(suspend=3.0))
        self.assertEqual(('suspend', None), kinds(plan)['b'])
        self.assertEqual(('i',), plan.unresolved)

    def test_ongoing_migration_takes_its_room(self):
        small = {**TOTAL, vocabulary.SLOT: 1}
        world = self.crowded(
            host('x', total=small), vm('a', 'h'), host('y', total=small),
            vm('b', 'y', InstanceState.BUSY), threshold=0)
        self.assertEqual({'a': ('migrate', 'x')}, kinds(self.decide(world)))
        world = dataclasses.replace(world, in_flight=(
            InFlight('migrate', 'b', 'y', 'x', 3.0),))
        self.assertEqual({'a': ('suspend', None)}, kinds(self.decide(world)))

    def test_schedule_may_be_chained_or_parallel(self):
        # A suspend and then a migration take 3 + 5 s, at once only 5 s.
        policy = HostPolicy('', 'slots', 0, 8, 1, True)
        world = cluster(
            host('h', policies=(policy,)), vm('a', 'h', priority=8),
            host('x', policies=(slots_policy(1),)), vm('b', 'x'))
        for schedule, expected in ((in_order, 'stop'), (at_once, 'suspend')):
            self.assertEqual(expected, kinds(self.decide(
                world, profile=CostProfile(0.0, schedule)))['b'][0])

    def test_enough_instances_leave_for_cpu(self):
        # 60 + 3 x 15 > 89; with one less it is 90, with two less 75.
        world = cluster(
            host('h', 60.0, violated=True), host('x', 20.0),
            *(vm(uuid, 'h', cpu=15.0, priority=priority)
              for uuid, priority in (('a', 3), ('b', 9), ('c', 7))))
        self.assertEqual(2, len(kinds(self.decide(world))))
        self.assertEqual((), self.decide(world).unresolved)

    def test_fired_trigger_overrides_mean_values(self):
        for primary in (0.0, 20.0, 70.0):
            world = cluster(host('h', primary, violated=True),
                            vm('a', 'h', cpu=0.0), vm('b', 'h', cpu=1.0))
            self.assertEqual(1, len(kinds(self.decide(world))))

    def test_overhead_excludes_a_target(self):
        # The migration itself uses 12 % there for longer than one check.
        for primary, target in ((77.0, 'migrate'), (77.5, 'suspend')):
            world = self.crowded(host('x', primary), vm('a', 'h', cpu=5.0),
                                 threshold=0)
            self.assertEqual(target, kinds(self.decide(world))['a'][0])

    def test_overhead_excludes_no_target_with_agents(self):
        # 77.5 + 5, without the overhead of the migration.
        world = self.crowded(host('x', 77.5), vm('a', 'h', cpu=5.0),
                             threshold=0)
        self.assertEqual({'a': ('migrate', 'x')},
                         kinds(self.decide(world, profile=None)))

    def test_target_must_have_room_in_all_resources(self):
        net = HostPolicy('', 'net_out', 75, 15, 5, True, 5)
        calm = dataclasses.replace(net, failed=0, violated=False)
        world = cluster(
            host('h', policies=(net,), usage={'net_out': 60.0}),
            host('x', policies=(calm,), usage={'net_out': 70.0}),
            host('y', policies=(calm,), usage={'net_out': 20.0}),
            host('z', policies=(calm,)),
            vm('a', 'h', usage={'net_out': 20.0}))
        self.assertEqual({'a': ('migrate', 'y')}, kinds(self.decide(world)))

    def test_violation_of_an_item_is_ended(self):
        def decide(part, *policies):
            rack = Item('rack', ('h1', 'h2'), policies, part,
                        {'net_out': 50.0})
            world = cluster(rack, *(host(f'h{one}') for one in range(1, 5)), *(
                vm(name, where, cpu=10.0, usage={'net_out': 40.0})
                for name, where in (('a', 'h1'), ('b', 'h1'), ('c', 'h2'))))
            plan = GuidedDecision().decide(world, DecisionRequest('preempt'),
                                           Budget())
            self.assertEqual([], checker.check(world, plan, 1))
            self.assertEqual((), plan.unresolved)
            return kinds(plan)

        # Migrations within the rack gain nothing.
        two = decide(0.5, slots_policy(1, violated=True))
        self.assertEqual(2, len(two))
        self.assertLessEqual({target for _kind, target in two.values()},
                             {'h3', 'h4'})
        # 50 + 0.5 * (3 * 40) is 110; two of 20 leave to reach 70.
        uplink = HostPolicy('net_out <= 80% for 15s', 'net_out', 80, 15, 5,
                            True)
        self.assertEqual(2, len(decide(0.5, uplink)))
        self.assertEqual(1, len(decide(
            0.5, dataclasses.replace(uplink, threshold=90.0))))
        self.assertEqual({}, decide(0.1, dataclasses.replace(
            uplink, violated=False, failed=0)))

    def test_lowest_leases_leave_an_item(self):
        def decide(*others):
            rack = Item('rack', ('h1', 'h2'), (slots_policy(12, True),))
            world = cluster(rack, *others, *(
                host(name, policies=(slots_policy(12),))
                for name in ('h1', 'h2')), *(
                vm(f'{one:02}', f'h{one % 2 + 1}', priority=one)
                for one in range(24)))
            plan = GuidedDecision().decide(
                world, DecisionRequest('preempt', ('h1',)), Budget())
            self.assertEqual([], checker.check(world, plan, 1))
            self.assertEqual((), plan.unresolved)
            return kinds(plan)

        lowest = {f'{one:02}' for one in range(12)}
        self.assertEqual(dict.fromkeys(lowest, ('suspend', None)), decide())
        moved = decide(host('h3', policies=(slots_policy(5),)))
        self.assertEqual(lowest, moved.keys())
        self.assertEqual({f'{one:02}' for one in range(5)}, {
            uuid for uuid, (kind, _target) in moved.items()
            if kind == 'migrate'})

    def test_full_item_excludes_its_hosts(self):
        rack = Item('rack', ('h2', 'h3'), (slots_policy(1),))
        world = cluster(
            rack, host('h1', policies=(slots_policy(0, violated=True),)),
            *(host(name, policies=(slots_policy(9),))
              for name in ('h2', 'h3', 'h4')), vm('a', 'h1'), vm('b', 'h3'))
        plan = GuidedDecision().decide(
            world, DecisionRequest('preempt'), Budget()
        )
        self.assertEqual({'a': ('migrate', 'h4')}, kinds(plan))
        waits = dataclasses.replace(world, instances={
            **world.instances, 'a': vm('a', 'h2', InstanceState.SUSPENDED,
                                       preempted=True)})
        for decision in GuidedDecision(), ProvisioningDecision():
            self.assertFalse(decision.decide(
                waits, DecisionRequest('return'), Budget()))

    def test_closed_hosts_are_no_targets(self):
        for values in ({'usable': False}, {'blocked': True},
                       {'primary': None}, {'violated': True},
                       {'policies': ()}):
            world = self.crowded(host('other', **values), vm('a', 'h'),
                                 threshold=0)
            self.assertEqual({'a': ('suspend', None)},
                             kinds(self.decide(world)))

    def test_busy_and_blocked_leases_are_left_alone(self):
        for peer in (vm('p', 'x', InstanceState.BUSY, lease='lease-a'),
                     vm('p', 'x', blocked=True, lease='lease-a')):
            world = self.crowded(peer, vm('a', 'h'), host('x', 99.0),
                                 threshold=0)
            plan = self.decide(world)
            self.assertFalse(plan)
            self.assertEqual(('h',), plan.unresolved)

    def test_other_instances_leave_for_one_out_of_reach(self):
        for state in (InstanceState.BUSY, InstanceState.OTHER):
            world = self.crowded(vm('a', 'h', state, priority=1),
                                 vm('b', 'h', priority=9))
            plan = self.decide(world)
            self.assertEqual({'b': ('suspend', None)}, kinds(plan))
            self.assertEqual((), plan.unresolved)

    def test_cooling_down_applies_to_dynamic_policies_only(self):
        # Peers on other hosts are preempted with the lease.
        for recent in ({'a'}, {'p'}, {'a', 'p'}):
            guests = [vm(uuid, where, lease='l', cooling_down=uuid in recent)
                      for uuid, where in (('a', 'h'), ('p', 'x'))]
            x = host('x', policies=(slots_policy(1),))
            for profile in (None, CostProfile()):
                world = self.crowded(x, *guests, threshold=0)
                self.assertEqual(
                    dict.fromkeys('ap', ('suspend', None)),
                    kinds(self.decide(world, profile=profile)))
                world = cluster(host('h', 95.0, violated=True), x, *guests)
                plan = self.decide(world, profile=profile)
                self.assertFalse(plan)
                self.assertEqual(('h',), plan.unresolved)
        world = self.crowded(host('x'), vm('a', 'h', cooling_down=True),
                             threshold=0)
        self.assertEqual({'a': ('migrate', 'x')}, kinds(self.decide(world)))

    def test_cooling_down_lease_elsewhere_is_not_preempted(self):
        world = self.crowded(
            host('x', policies=(slots_policy(1),)), vm('a', 'h', priority=8),
            vm('b', 'x', priority=3, cooling_down=True), threshold=0)
        self.assertEqual({'a': ('suspend', None)}, kinds(self.decide(world)))
        self.assertEqual(('h',), self.decide(
            cluster(host('h'), vm('a', 'h', cooling_down=True)), 'drain',
            ('h',)).unresolved)

    def test_failed_migration_is_not_retried(self):
        world = self.crowded(vm('a', 'h', migration_failed=True), host('x'),
                             threshold=0)
        self.assertEqual({'a': ('suspend', None)}, kinds(self.decide(world)))

    def test_blocked_host_is_left_to_its_agent_but_for_slots(self):
        world = cluster(host('h', 95.0, violated=True, blocked=True),
                        vm('a', 'h'))
        self.assertEqual(('h',), self.decide(world).unresolved)
        world = self.crowded(vm('a', 'h'), blocked=True, threshold=0)
        self.assertEqual({'a': ('suspend', None)}, kinds(self.decide(world)))

    def test_only_requested_hosts_are_relieved(self):
        world = cluster(host('h', 95.0, violated=True), vm('a', 'h'),
                        host('i', 95.0, violated=True), vm('b', 'i'))
        self.assertEqual({'b'}, set(kinds(self.decide(
            world, hosts=('i', 'gone')))))

    def test_drain_clears_a_host(self):
        world = cluster(
            host('h', 0.0),
            host('x', 60.0),
            vm('a', 'h'),
            vm('b', 'h', priority=1),
            vm('c', 'h', InstanceState.BUSY),
        )
        plan = self.decide(world, 'drain', ('h',))
        self.assertEqual({'a', 'b'}, set(kinds(plan)))
        self.assertEqual(('h',), plan.unresolved)
        self.assertFalse(self.decide(world, 'drain'))

    def test_return_equals_that_of_priority(self):
        world = cluster(host('h'), vm('a', 'h', InstanceState.SUSPENDED,
                                      preempted=True))
        self.assertEqual({'a': ('resume', 'h')},
                         kinds(self.decide(world, 'return')))


class TestBounds(Case):

    def test_all_contributing_leases_are_stopped_without_budget(self):
        world = cluster(host('h', 95.0, violated=True), host('x'),
                        vm('a', 'h'), vm('b', 'h'), vm('c', 'x'))
        plan = self.decide(world, units=0)
        self.assertEqual({'a': ('stop', None), 'b': ('stop', None)},
                         kinds(plan))
        self.assertTrue(plan.truncated)
        self.assertEqual((), plan.unresolved)

    def test_number_of_subsets_is_bounded(self):
        free = host('x', policies=(slots_policy(0),))
        world = self.crowded(
            free, vm('a', 'h', priority=9),
            *(vm(f'v{one}', 'y', priority=1) for one in range(40)),
            host('y', policies=(slots_policy(40),), usable=False),
            threshold=0)
        plan = self.decide(world, units=100_000,
                           profile=CostProfile(subset_leases=6))
        self.assertFalse(plan.truncated)
        self.assertEqual({'a': ('suspend', None)}, kinds(plan))
