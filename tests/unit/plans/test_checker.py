# SPDX-License-Identifier: Apache-2.0

"""Faults of plans that the checker finds."""

import dataclasses
import itertools
import unittest

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import (
    HostPolicy,
    InFlight,
    InstanceState,
    Item,
)
from secondary_scheduler.plans.checker import check
from secondary_scheduler.plans.operations import (
    KINDS,
    Operation,
    OperationKind,
    Plan,
)
from tests.unit.decisions.worlds import TOTAL, cluster, host, vm

SMALL = {**TOTAL, vocabulary.SLOT: 1}


def op(number, kind, uuid, source, target=None, start=0.0, lasts=5.0,
       after=(), lease=None):
    return Operation(number, kind, uuid, lease or f'lease-{uuid}', source,
                     target, start, lasts, after)


class Case(unittest.TestCase):

    def good(self, world, *operations):
        self.assertEqual([], check(world, Plan(operations)))

    def bad(self, words, world, *operations):
        faults = check(world, Plan(operations))
        self.assertTrue(any(words in fault for fault in faults),
                        f'{words!r} not in {faults}')


class TestSizes(Case):

    def setUp(self):
        self.hosts = host('large', 85.0, cpus=64.0), host(
            'small', 10.0, cpus=4.0)
        self.move = op(1, OperationKind.MIGRATE, 'v', 'large', 'small')

    def test_instance_too_large_for_a_smaller_host_is_found(self):
        self.bad('"cpu <= 90% for 10s" leaves 3.2 CPUs on host small, of '
                 'which instances from hosts of another size use 5.1 CPUs',
                 cluster(*self.hosts, vm('v', 'large', cpu=5.1)), self.move)
        for cpu in (3.2, None):
            self.good(cluster(*self.hosts, vm('v', 'large', cpu=cpu)),
                      self.move)

    def test_busy_instance_of_a_small_host_fits_a_larger_one(self):
        self.good(cluster(*self.hosts, vm('v', 'small', cpu=1.8)),
                  op(1, OperationKind.MIGRATE, 'v', 'small', 'large'))

    def test_agent_throttles_instance_from_an_equal_host(self):
        self.good(cluster(host('large', 85.0), host('small', 60.0),
                          vm('v', 'large', cpu=40.0)), self.move)

    def test_newcomers_count_together(self):
        world = cluster(*self.hosts, vm('v', 'large', cpu=2.0),
                        vm('w', 'large', cpu=2.0),
                        vm('own', 'small', cpu=3.0))
        self.good(world, self.move)
        self.bad('use 4 CPUs', world, self.move, op(
            2, OperationKind.MIGRATE, 'w', 'large', 'small', 5.0, after=(1,)))

    def test_policy_of_100_percent_always_holds(self):
        policy = HostPolicy('net_in <= 100% for 9s', 'net_in', 100.0, 9)
        hosts = [host(name, policies=(policy,), usage={'net_in': 50.0},
                      capacities={'net_in': speed})
                 for name, speed in (('large', 1250.0), ('small', 125.0))]
        self.good(cluster(*hosts, vm('v', 'large', usage={'net_in': 500.0})),
                  self.move)


class TestStructure(Case):

    def setUp(self):
        self.world = cluster(host('h'), host('x'), vm('a', 'h'), vm('b', 'h'))
        self.suspend = op(1, OperationKind.SUSPEND, 'a', 'h')

    def test_empty_and_simple_plans_are_valid(self):
        self.good(self.world)
        self.good(self.world, self.suspend)
        self.assertFalse(Plan())
        self.assertTrue(Plan((self.suspend,)))

    def test_unknown_names_are_found(self):
        self.bad('instance is unknown', self.world,
                 op(1, OperationKind.SUSPEND, 'z', 'h'))
        self.bad('host gone is unknown', self.world,
                 op(1, OperationKind.MIGRATE, 'a', 'h', 'gone'))
        self.bad('its lease is lease-a', self.world,
                 op(1, OperationKind.SUSPEND, 'a', 'h', lease='l'))
        self.assertEqual(['unresolved host gone is unknown'],
                         check(self.world, Plan(unresolved=('gone',))))

    def test_faulty_ids_are_found(self):
        self.bad('same id', self.world, self.suspend,
                 op(1, OperationKind.SUSPEND, 'b', 'h'))
        self.bad('waits for 7', self.world,
                 op(1, OperationKind.SUSPEND, 'a', 'h', after=(7,)))

    def test_cycles_are_found(self):
        self.bad('cycle', self.world,
                 op(1, OperationKind.SUSPEND, 'a', 'h', after=(1,)))
        self.bad('cycle', self.world,
                 op(1, OperationKind.SUSPEND, 'a', 'h', after=(2,)),
                 op(2, OperationKind.SUSPEND, 'b', 'h', after=(1,)))

    def test_faulty_times_are_found(self):
        second = op(2, OperationKind.SUSPEND, 'b', 'h', start=5.0, after=(1,))
        self.good(self.world, self.suspend, second)
        self.bad('starts before operation 1', self.world, self.suspend,
                 dataclasses.replace(second, start_s=4.9))
        for change in ({'start_s': -1.0}, {'duration_s': 0.0},
                       {'duration_s': float('inf')},
                       {'start_s': float('nan')}):
            faults = check(self.world, Plan((
                dataclasses.replace(self.suspend, **change),)))
            self.assertTrue(any('is no time' in one for one in faults))


class TestOperations(Case):

    def test_wrong_states_are_found(self):
        for kind in KINDS:
            right = {
                OperationKind.RESUME: InstanceState.SUSPENDED,
                OperationKind.START: InstanceState.STOPPED,
                OperationKind.UNSHELVE: InstanceState.SHELVED,
            }.get(kind, InstanceState.ACTIVE)
            source = None if kind is OperationKind.UNSHELVE else 'h'
            target = {OperationKind.MIGRATE: 'x', OperationKind.RESUME: 'h',
                      OperationKind.START: 'h',
                      OperationKind.UNSHELVE: 'h'}.get(kind)
            for state in InstanceState:
                world = cluster(host('h'), host('x'), vm('a', source, state))
                one = op(1, kind, 'a', source, target)
                with self.subTest(kind=kind, state=state):
                    if state is right:
                        self.good(world, one)
                    else:
                        self.bad(f'the instance is {state}', world, one)

    def test_blocked_instance_is_left_alone(self):
        self.bad('left alone', cluster(host('h'), vm('a', 'h', blocked=True)),
                 op(1, OperationKind.SUSPEND, 'a', 'h'))

    def test_cooling_down_applies_to_dynamic_policies_only(self):
        down = op(1, OperationKind.SUSPEND, 'a', 'h', lease='l')
        more = op(2, OperationKind.SUSPEND, 'b', 'x', lease='l')
        guests = (vm('a', 'h', lease='l', cooling_down=True),
                  vm('b', 'x', lease='l'))
        static = HostPolicy('', 'slots', 0, 60, 1, True)
        self.bad('left alone', cluster(
            host('h', violated=True), host('x'), *guests), down, more)
        for name in 'hx':
            self.good(cluster(*(host(one, policies=(static,)) if one == name
                                else host(one) for one in 'hx'), *guests),
                      down, more)
        self.good(cluster(Item('rack', ('x', 'y'), (static,)), *map(
            host, 'hxy'), *guests), down, more)
        self.bad('left alone', cluster(host('y', policies=(static,)), *map(
            host, 'hx'), *guests), down, more)

    def test_lease_stays_down_while_a_member_cannot_return(self):
        for state in (InstanceState.SUSPENDED, InstanceState.OTHER):
            down = vm('b', 'h', state, lease='l', return_failed=True)
            self.bad(
                'b cannot come up yet',
                cluster(
                    host('h'),
                    vm('a', 'h', InstanceState.SUSPENDED, lease='l'),
                    down,
                ),
                op(1, OperationKind.RESUME, 'a', 'h', 'h', lease='l'),
            )
            self.good(cluster(host('h'), vm('a', 'h', lease='l'), down),
                      op(1, OperationKind.SUSPEND, 'a', 'h', lease='l'))
        self.good(
            cluster(
                host('h'),
                vm('a', 'h', InstanceState.SUSPENDED, lease='l'),
                vm('b', 'h', lease='l', preempt_failed=True),
            ),
            op(1, OperationKind.RESUME, 'a', 'h', 'h', lease='l'),
        )

    def test_migration_is_not_retried_at_once(self):
        world = cluster(host('h'), host('x'),
                        vm('a', 'h', migration_failed=True))
        self.bad('just failed', world, op(
            1, OperationKind.MIGRATE, 'a', 'h', 'x'))
        self.good(world, op(1, OperationKind.SUSPEND, 'a', 'h'))

    def test_wrong_hosts_are_found(self):
        world = cluster(host('h'), host('x'), vm('a', 'h'),
                        vm('b', 'h', InstanceState.SUSPENDED))
        self.bad('the instance is on h', world,
                 op(1, OperationKind.SUSPEND, 'a', 'x'))
        self.bad('has no target', world, op(
            1, OperationKind.SUSPEND, 'a', 'h', 'h'))
        self.bad('another host', world, op(
            1, OperationKind.MIGRATE, 'a', 'h', 'h'))
        self.bad('another host', world, op(1, OperationKind.MIGRATE, 'a', 'h'))
        self.bad('own host only', world, op(
            1, OperationKind.RESUME, 'b', 'h', 'x'))
        self.bad('needs a host', world, op(1, OperationKind.RESUME, 'b', 'h'))

    def test_closed_targets_are_found(self):
        for values, words in (({'usable': False}, 'not usable'),
                              ({'violated': True}, 'violated'),
                              ({'blocked': True}, 'left alone')):
            world = cluster(host('h'), host('x', **values), vm('a', 'h'),
                            vm('b', 'x', InstanceState.STOPPED))
            self.bad(words, world, op(1, OperationKind.MIGRATE, 'a', 'h', 'x'))
            self.bad(words, world, op(1, OperationKind.START, 'b', 'x', 'x'))
            self.good(world, op(1, OperationKind.SUSPEND, 'a', 'h'))

    def test_several_operations_on_an_instance_are_found(self):
        world = cluster(host('h'), host('x'), vm('a', 'h'),
                        vm('b', 'h', InstanceState.SUSPENDED))
        self.bad('several operations', world,
                 op(1, OperationKind.SUSPEND, 'a', 'h'),
                 op(2, OperationKind.RESUME, 'a', 'h', 'h', 5.0, after=(1,)))
        resume = op(1, OperationKind.RESUME, 'b', 'h', 'h')
        move = op(2, OperationKind.MIGRATE, 'b', 'h', 'x', 5.0, after=(1,))
        self.good(world, resume, move)
        self.good(world, move, resume)
        self.bad('several operations', world, resume,
                 dataclasses.replace(move, after=()))
        self.bad('under way', world, resume,
                 dataclasses.replace(move, after=(), start_s=1.0))

    def test_dependency_may_be_indirect(self):
        world = cluster(host('h'), host('x'), vm('a', 'h'),
                        vm('b', 'h', InstanceState.SUSPENDED))
        self.good(
            world,
            op(1, OperationKind.RESUME, 'b', 'h', 'h'),
            op(2, OperationKind.SUSPEND, 'a', 'h', None, 5.0, after=(1,)),
            op(3, OperationKind.MIGRATE, 'b', 'h', 'x', 10.0, after=(2,)),
        )


class TestRoom(Case):

    def test_missing_room_in_any_class_is_found(self):
        for name in vocabulary.RESOURCE_CLASSES:
            world = cluster(host('h'), host('x', total={**TOTAL, name: 0}),
                            vm('a', 'h'))
            self.bad(f'no room in {name}', world,
                     op(1, OperationKind.MIGRATE, 'a', 'h', 'x'))

    def test_reserved_and_suspended_claims_count(self):
        move = op(1, OperationKind.MIGRATE, 'a', 'h', 'x')
        self.bad('no room', cluster(
            host('h'), host('x', reserved={vocabulary.SLOT: 8}),
            vm('a', 'h')), move)
        self.bad('no room', cluster(
            host('h'), host('x', total=SMALL), vm('a', 'h'),
            vm('b', 'x', InstanceState.SUSPENDED)), move)

    def test_instance_may_leave_an_overdrawn_host(self):
        self.good(cluster(host('h', total=SMALL), host('x'), vm('a', 'h'),
                          vm('b', 'h')),
                  op(1, OperationKind.MIGRATE, 'a', 'h', 'x'))

    def test_migration_has_claims_on_both_hosts(self):
        world = cluster(host('h', total=SMALL), host('x', total=SMALL),
                        host('y'), vm('a', 'h'), vm('b', 'x'))
        out = op(1, OperationKind.MIGRATE, 'b', 'x', 'y')
        into = op(2, OperationKind.MIGRATE, 'a', 'h', 'x', 5.0, after=(1,))
        self.good(world, out, into)
        self.bad('no room', world, out,
                 dataclasses.replace(into, start_s=4.9, after=()))

    def test_later_start_is_no_reason_to_have_room(self):
        world = cluster(
            *(host(name, total={**TOTAL, vocabulary.VCPU: vcpus})
              for name, vcpus in (('h', 99), ('x', 10))),
            vm('large', 'x', vcpus=8), vm('a', 'h', vcpus=4),
            vm('b', 'h', vcpus=4))
        out = op(1, OperationKind.MIGRATE, 'large', 'x', 'h')
        first = op(2, OperationKind.MIGRATE, 'a', 'h', 'x', 5.0, after=(1,))
        # Nothing but its estimated start has b arrive after a.
        second = op(3, OperationKind.MIGRATE, 'b', 'h', 'x', 6.0)
        self.good(world, out, first, dataclasses.replace(second, after=(1,)))
        self.bad('operation 3 (migrate of b): nothing makes it wait until '
                 'host x has room', world, out, first, second)

    def test_shelve_frees_inventory_and_suspend_does_not(self):
        world = cluster(host('h'), host('x', total=SMALL), vm('a', 'h'),
                        vm('b', 'x'))
        into = op(2, OperationKind.MIGRATE, 'a', 'h', 'x', 5.0, after=(1,))
        self.good(world, op(1, OperationKind.SHELVE, 'b', 'x'), into)
        self.bad('no room', world, op(
            1, OperationKind.SUSPEND, 'b', 'x'), into)

    def test_unshelve_needs_a_target_with_room(self):
        world = cluster(
            host('x', total=SMALL),
            vm('a', None, InstanceState.SHELVED),
            vm('b', None, InstanceState.SHELVED),
        )
        first = op(1, OperationKind.UNSHELVE, 'a', None, 'x')
        self.good(world, first)
        self.bad('it needs a host to come up on', world, op(
            1, OperationKind.UNSHELVE, 'a', None))
        self.bad('no room', world, first,
                 op(2, OperationKind.UNSHELVE, 'b', None, 'x', 20.0))


class TestGroups(Case):

    def test_two_members_of_a_group_on_a_host_are_found(self):
        world = cluster(host('h'), host('x'), vm('a', 'h', anti_affinity='g'),
                        vm('b', 'x', InstanceState.STOPPED, anti_affinity='g'))
        self.bad('member of group g', world,
                 op(1, OperationKind.MIGRATE, 'a', 'h', 'x'))

    def test_member_may_arrive_after_the_other_has_left(self):
        world = cluster(host('h'), host('x'), host('y'),
                        vm('a', 'h', anti_affinity='g'),
                        vm('b', 'x', anti_affinity='g'))
        out = op(1, OperationKind.MIGRATE, 'b', 'x', 'y')
        into = op(2, OperationKind.MIGRATE, 'a', 'h', 'x', 5.0, after=(1,))
        self.good(world, out, into)
        self.bad('member of group g', world, out,
                 dataclasses.replace(into, after=(), start_s=0.0))

    def test_overlapping_moves_of_a_group_are_found(self):
        world = cluster(host('h'), host('i'), host('x'), host('y'),
                        vm('a', 'h', anti_affinity='g'),
                        vm('b', 'i', anti_affinity='g'))
        self.bad(
            'on the move',
            world,
            op(1, OperationKind.MIGRATE, 'a', 'h', 'x'),
            op(2, OperationKind.MIGRATE, 'b', 'i', 'y', 4.0),
        )
        self.good(world, op(1, OperationKind.MIGRATE, 'a', 'h', 'x'),
                  op(2, OperationKind.MIGRATE, 'b', 'i', 'y', 5.0, after=(1,)))


class TestLanes(Case):

    def setUp(self):
        self.world = cluster(host('h'), host('x'), host('y'), *(
            vm(uuid, 'h') for uuid in 'abcd'))

    def crowd(self, lanes, *operations):
        return check(self.world, Plan(operations), lanes)

    def test_operations_in_a_lane_must_wait(self):
        first = op(1, OperationKind.SUSPEND, 'a', 'h')
        second = op(2, OperationKind.MIGRATE, 'b', 'h', 'x', 5.0)
        waits = dataclasses.replace(second, after=(1,))
        # A later start without a dependency does not count.
        self.assertEqual(['too many at a time on h: 2 operations'],
                         self.crowd(1, first, second))
        self.assertEqual([], self.crowd(2, first, second))
        self.assertEqual([], self.crowd(None, first, second))
        self.assertEqual([], self.crowd(1, first, waits))
        self.assertEqual([], self.crowd(1, waits, first))

    def test_arrivals_count_in_lanes(self):
        several = [op(one, OperationKind.MIGRATE, uuid, uuid, 'x')
                   for one, uuid in enumerate('abc', 1)]
        self.world = cluster(host('x'), *map(host, 'abc'), *(
            vm(uuid, uuid) for uuid in 'abc'))
        self.assertEqual(['too many at a time on x: 3 operations'],
                         self.crowd(2, *several))

    def test_any_two_chains_fit_two_lanes(self):
        # Two chains of two, for all choices of the predecessors.
        for third, fourth in itertools.product(
                ((1,), (2,), (1, 2)), repeat=2):
            plan = [
                op(1, OperationKind.SUSPEND, 'a', 'h'),
                op(2, OperationKind.STOP, 'b', 'h'),
                op(3, OperationKind.SUSPEND, 'c', 'h', None, 5.0, after=third),
                op(
                    4, OperationKind.SUSPEND, 'd', 'h', None, 5.0, after=fourth
                ),
            ]
            self.assertEqual(
                2 if {*third, *fourth} == {1, 2} else 3,
                max(count for count in (1, 2, 3)
                    if self.crowd(count - 1, *plan)))
            self.assertEqual([], self.crowd(3, *plan))

    def test_dependency_over_another_host_counts(self):
        self.world = cluster(host('h'), host('x'), vm('a', 'h'),
                             vm('b', 'x'), vm('c', 'h'))
        chain = [
            op(1, OperationKind.SUSPEND, 'a', 'h'),
            op(2, OperationKind.SUSPEND, 'b', 'x', None, 5.0, after=(1,)),
            op(3, OperationKind.SUSPEND, 'c', 'h', None, 10.0, after=(2,)),
        ]
        self.assertEqual([], self.crowd(1, *chain))


class TestLeases(Case):

    def test_partly_preempted_lease_is_found(self):
        for state in (InstanceState.ACTIVE, InstanceState.BUSY):
            world = cluster(host('h'), vm('a', 'h', lease='l'),
                            vm('b', 'h', state, lease='l'))
            self.bad('b runs on', world,
                     op(1, OperationKind.SUSPEND, 'a', 'h', lease='l'))

    def test_members_that_are_down_do_not_matter(self):
        for state in (InstanceState.SUSPENDED, InstanceState.OTHER):
            world = cluster(host('h'), vm('a', 'h', lease='l'),
                            vm('b', 'h', state, lease='l'))
            self.good(world, op(1, OperationKind.SUSPEND, 'a', 'h', lease='l'))

    def test_one_member_may_migrate(self):
        world = cluster(host('h'), host('x'), vm('a', 'h', lease='l'),
                        vm('b', 'h', lease='l'))
        self.good(world, op(
            1, OperationKind.MIGRATE, 'a', 'h', 'x', lease='l'))

    def test_partly_returned_lease_is_found(self):
        values = {'lease': 'l', 'preempted': True}
        world = cluster(
            host('h'),
            vm('a', 'h', InstanceState.SUSPENDED, **values),
            vm('b', 'h', InstanceState.STOPPED, **values),
        )
        up = op(1, OperationKind.RESUME, 'a', 'h', 'h', lease='l')
        self.bad('b stays down', world, up)
        self.good(world, up, op(
            2, OperationKind.START, 'b', 'h', 'h', lease='l'))

    def test_preempted_and_returned_lease_is_found(self):
        world = cluster(host('h'), vm('a', 'h', lease='l'),
                        vm('b', 'h', InstanceState.SUSPENDED, lease='l'))
        self.bad('both preempted and brought back', world,
                 op(1, OperationKind.SUSPEND, 'a', 'h', lease='l'),
                 op(2, OperationKind.RESUME, 'b', 'h', 'h', lease='l'))


class TestUnderWay(Case):

    def test_ongoing_migration_has_claims_on_two_hosts(self):
        world = cluster(host('h'), host('x', total=SMALL), vm('a', 'h'),
                        vm('b', 'h', InstanceState.BUSY))
        move = op(1, OperationKind.MIGRATE, 'a', 'h', 'x')
        self.good(world, move)
        self.bad('no room', dataclasses.replace(world, in_flight=(
            InFlight('migrate', 'b', 'h', 'x', 3.0),)), move)

    def test_instance_without_host_may_start_on_any(self):
        for kind, state in ((OperationKind.START, InstanceState.STOPPED),
                            (OperationKind.RESUME, InstanceState.SUSPENDED)):
            world = cluster(host('h'), vm('a', None, state),
                            host('x', total={**TOTAL, vocabulary.SLOT: 0}))
            self.good(world, op(1, kind, 'a', None, 'h'))
            self.bad('no room', world, op(1, kind, 'a', None, 'x'))


class TestPolicies(Case):

    def test_violated_static_policy_of_a_target_is_found(self):
        for resource, threshold in (('slots', 1), ('cores', 2),
                                    ('memory', 300)):
            policy = HostPolicy('', resource, threshold, 60)
            world = cluster(host('h'), host('x', policies=(policy,)),
                            vm('a', 'h'), vm('b', 'x', vcpus=2),
                            vm('c', 'x', InstanceState.SUSPENDED))
            self.bad(f'no more {resource}', world,
                     op(1, OperationKind.MIGRATE, 'a', 'h', 'x'))
            self.bad(f'no more {resource}', world,
                     op(1, OperationKind.RESUME, 'c', 'x', 'x'))
            down = op(1, OperationKind.SUSPEND, 'b', 'x')
            self.good(
                world,
                down,
                op(2, OperationKind.RESUME, 'c', 'x', 'x', 5.0, after=(1,)),
            )
            self.bad('nothing makes it wait', world, down,
                     op(2, OperationKind.RESUME, 'c', 'x', 'x', 5.0))


class TestDeadlines(Case):

    def test_deadlines_are_those_of_violated_hosts(self):
        world = cluster(host('h'), vm('a', 'h'), host(
            'bad', violated=True), vm('b', 'bad'))
        self.good(world, dataclasses.replace(
            op(1, OperationKind.SUSPEND, 'b', 'bad'), deadline_s=6.0))
        for uuid, where, deadline, words in (
                ('a', 'h', 6.0, 'leaves no violated host'),
                ('b', 'bad', 4.9, 'after its deadline'),
                ('b', 'bad', 6.1, 'invalid before'),
                ('b', 'bad', float('inf'), 'is no time')):
            self.bad(
                words,
                world,
                dataclasses.replace(
                    op(1, OperationKind.SUSPEND, uuid, where),
                    deadline_s=deadline,
                ),
            )
