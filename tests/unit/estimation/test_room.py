import dataclasses
import math
import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.estimation import room
from secondary_scheduler.estimation.durations import Durations
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import HostPolicy, InstanceState
from secondary_scheduler.plans.operations import OperationKind
from tests.unit.decisions import worlds
from tests.unit.decisions.worlds import (
    TOTAL,
    cluster,
    cpu_policy,
    host,
    slots_policy,
    vm,
)


class TestCapacity(unittest.TestCase):

    def test_cpu(self):
        # 20 + 5 n <= 90 - 1, and the same with a share of 10
        self.assertEqual(13, room.capacity(host('h'), 5, 1))
        self.assertEqual(6, room.capacity(host('h'), 10, 1))

    def test_exactly_full_is_not_too_full(self):
        self.assertEqual(1, room.capacity(host('h', 84.0), 5, 1))
        self.assertEqual(0, room.capacity(host('h', 84.01), 5, 1))
        self.assertEqual(3, room.capacity(host('h', 88.7), 0.1, 1))

    def test_primary_alone_above_the_threshold(self):
        self.assertEqual(0, room.capacity(host('h', 95.0), 5, 1))
        self.assertEqual(0, room.capacity(host('h', 95.0), 0, 1))

    def test_no_share_no_limit(self):
        self.assertEqual(room.UNLIMITED, room.capacity(host('h'), 0, 1))

    def test_the_strictest_policy_counts(self):
        both = host('h', policies=(cpu_policy(), slots_policy(2)))
        self.assertEqual(2, room.capacity(both, 5, 1))
        both = host('h', policies=(cpu_policy(), cpu_policy(40.0)))
        self.assertEqual(3, room.capacity(both, 5, 1))

    def test_what_is_not_known_has_no_room(self):
        self.assertEqual(0, room.capacity(host('h', None), 5, 1))
        self.assertEqual(0, room.capacity(host('h', policies=()), 5, 1))
        disk = HostPolicy('disk_in <= 60% for 9s', 'disk_in', 60, 9)
        for use, expected in (({}, 0), ({'disk_in': 41.0}, 3)):
            self.assertEqual(expected, room.capacity(
                host('h', policies=(disk,), usage=use), 5, 1))
        strange = HostPolicy('net <= 3 for 5s', 'net', 3, 5)
        self.assertEqual(0, room.capacity(
            host('h', policies=(strange,)), 5, 1))


class TestRooms(unittest.TestCase):

    def rooms(self, *things, **limits):
        return room.Rooms(cluster(*things), room.LoadLimits(**limits))

    def test_who_runs(self):
        rooms = self.rooms(
            host('h'),
            *(
                vm(
                    state.value,
                    None if state is InstanceState.SHELVED else 'h',
                    state,
                )
                for state in InstanceState
            ),
        )
        self.assertEqual(3, rooms.running('h'))
        self.assertEqual(5, len(rooms.residents('h')))

    def test_put_and_take(self):
        rooms = self.rooms(host('h', 79.0))
        one = vm('a', 'h', anti_affinity='g')
        self.assertTrue(rooms.has_useful_share(
            'h') and rooms.satisfies_anti_affinity('h', one))
        rooms.put(one)
        self.assertFalse(rooms.has_useful_share(
            'h') or rooms.satisfies_anti_affinity('h', one))
        self.assertTrue(rooms.has_minimum_share('h'))
        rooms.take(one)
        self.assertTrue(rooms.has_useful_share(
            'h') and rooms.satisfies_anti_affinity('h', one))
        self.assertFalse(rooms.residents('h'))

    def test_useful_share_is_never_below_the_minimum(self):
        rooms = self.rooms(host('h', 80.0), minimum_share=10.0,
                           useful_share=1.0)
        self.assertFalse(rooms.has_useful_share('h'))

    def test_surplus(self):
        rooms = self.rooms(host('h', 80.0), vm('a', 'h'), vm('b', 'h'),
                           vm('c', 'h', InstanceState.SUSPENDED), vm('d', 'h'))
        self.assertEqual(2, rooms.surplus('h'))
        self.assertEqual(0, self.rooms(host('h')).surplus('h'))

    def strained(self, count, primary=20.0, **values):
        values.setdefault('violated', True)
        return self.rooms(host('h', primary, **values),
                          *(vm(f'v{one}', 'h') for one in range(count)))

    def test_surplus_where_local_means_have_failed(self):
        # 6 would have a useful share, 13 the minimum: one goes, or down to 6
        self.assertEqual([0, 1, 1, 1, 3, 8], [
            self.strained(count).surplus('h')
            for count in (0, 1, 6, 7, 9, 14)])
        self.assertEqual(0, self.strained(9, violated=False).surplus('h'))
        self.assertEqual(2, self.strained(2, 95.0).surplus('h'))
        self.assertEqual(2, self.strained(2, None).surplus('h'))

    def test_as_few_as_can_be_hold_too_much(self):
        for most, count in ((9, 0), (8, 1), (6, 1), (5, 2), (1, 3), (0, 4)):
            policy = HostPolicy('', 'cores', most, 60, 1, True)
            self.assertEqual(
                count,
                self.rooms(
                    host('h', policies=(policy,)),
                    *(
                        vm(f'v{vcpus}-{one}', 'h', vcpus=vcpus)
                        for one, vcpus in enumerate((1, 3, 3, 2))
                    ),
                    vm('d', 'h', InstanceState.SUSPENDED, vcpus=4),
                ).surplus('h'),
                most,
            )

    def test_it_comes_to_an_end_while_they_go(self):
        rooms, left = self.strained(8), []
        for number in range(8):
            if not rooms.surplus('h'):
                break
            left.append(rooms.surplus('h'))
            rooms.take(vm(f'v{number}', 'h'))
        self.assertEqual([2, 1], left)
        rooms = self.strained(3)
        rooms.take(vm('v0', 'h'))
        self.assertEqual(0, rooms.surplus('h'))
        rooms.put(vm('v0', 'h'))    # withdrawn
        self.assertEqual(1, rooms.surplus('h'))

    def test_other_violations_leave_the_minimum_share(self):
        slots = (cpu_policy(), slots_policy(7, violated=True))
        self.assertEqual(0, self.strained(7, policies=slots).surplus('h'))
        self.assertEqual(2, self.strained(9, policies=slots).surplus('h'))
        self.assertEqual(0, self.strained(9, blocked=True).surplus('h'))

    def test_spare(self):
        rooms = self.rooms(host('h'), vm('a', 'h'), host('n', None),
                           host('s', policies=(slots_policy(3),)))
        self.assertEqual(59.0, rooms.spare('h'))
        self.assertEqual(39.0, rooms.spare('h', more=2))
        self.assertEqual(-math.inf, rooms.spare('n'))
        self.assertEqual(79.0, rooms.spare('s'))

    @given(worlds.clusters(), st.randoms(use_true_random=False))
    def test_the_emptiest_first_whatever_changes(self, world, rng):
        rooms = room.Rooms(world, room.LoadLimits())
        for instance in [None, *world.instances.values()]:
            if instance is not None:
                (rooms.put if rng.random() < 0.3 else rooms.take)(
                    dataclasses.replace(instance, host=rng.choice(
                        [instance.host, *world.hosts])))
            self.assertEqual(
                sorted((name for name in world.hosts
                        if rooms.has_useful_share(name)),
                       key=lambda name: (-rooms.spare(name), name)),
                list(rooms.emptiest()))

    @given(worlds.clusters(), st.randoms(use_true_random=False))
    def test_use_is_kept_whatever_changes(self, world, rng):
        def answers(rooms):
            return [(rooms.fits_policies(name, new), rooms.admits(name, new))
                    for name in world.hosts]

        new = vm('new', None, cpu=7.0, usage={'mem': 5.0})
        world = dataclasses.replace(world, in_flight=())
        asked, other = (room.Rooms(world, room.LoadLimits()) for _one in 'ab')
        for one in world.instances.values():
            answers(asked)
            moved = dataclasses.replace(
                one,
                host=rng.choice(sorted(world.hosts)),
                state=rng.choice(
                    [InstanceState.ACTIVE, InstanceState.SUSPENDED]
                ),
            )
            for rooms in (asked, other):
                rooms.take(one)
                rooms.put(moved)
        self.assertEqual(answers(other), answers(asked))

    def test_sustains(self):
        newcomer = vm('b', None, cpu=10.0)
        for use, expected in ((59.0, True), (59.5, False), (None, True)):
            rooms = self.rooms(host('h'), vm('a', 'h', cpu=use),
                               vm('c', 'h', InstanceState.SUSPENDED, cpu=90.0))
            self.assertEqual(expected, rooms.fits_policies('h', newcomer))

    def test_admits_what_other_policies_let_in(self):
        def admits(resource, threshold, primary, *there, **comes):
            policy = HostPolicy(resource, resource, threshold, 9)
            return self.rooms(
                host('h', policies=(cpu_policy(), policy), usage={
                    resource: primary}), *there).admits(
                        'h', vm('new', None, **comes))

        there = vm('old', 'h', usage={'mem': 30.0}, vcpus=2)
        for resource, most in (('mem', 40.0), ('cores', 3)):
            new = {'usage': {'mem': 10.0}, 'vcpus': 1}
            self.assertTrue(admits(resource, most, 0.0, there, **new))
            self.assertFalse(admits(resource, most - 1, 0.0, there, **new))
        # who is not known takes a useful share, who is down takes nothing
        self.assertTrue(admits('pressure', 60.0, 40.0, there))
        self.assertFalse(admits('pressure', 59.0, 40.0, there))
        self.assertTrue(admits('pressure', 59.0, 40.0, vm(
            'old', 'h', InstanceState.SUSPENDED)))
        self.assertFalse(admits('pressure', 100.0, None))
        # of disk and network there are shares
        self.assertTrue(admits('disk_in', 59.0, 58.0, there))

    def test_inventory(self):
        small = host('h', total={**TOTAL, vocabulary.VCPU: 4},
                     reserved={vocabulary.VCPU: 1})
        rooms = self.rooms(
            small, vm('a', 'h', InstanceState.SUSPENDED, vcpus=2))
        self.assertTrue(rooms.has_inventory('h', vm('b', None)))
        self.assertFalse(rooms.has_inventory('h', vm('b', None, vcpus=2)))

    def test_what_is_not_asked_for_may_be_overdrawn(self):
        rooms = self.rooms(host('h', reserved={vocabulary.DISK_GB: 50}))
        self.assertTrue(rooms.has_inventory('h', vm('b', None, disk_gb=0)))
        self.assertFalse(rooms.has_inventory('h', vm('b', None)))
        self.assertFalse(self.rooms(host('h', total={})).has_inventory(
            'h', vm('b', None)))


class TestDurations(unittest.TestCase):

    def test_every_kind_has_one(self):
        self.assertEqual([5, 3, 3, 2, 5, 10, 15],
                         [Durations().predict(kind) for kind in OperationKind])
