# SPDX-License-Identifier: Apache-2.0

"""Room on hosts under changes of instances."""

import dataclasses
import math
import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.estimation.cluster_room import Rooms
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import HostPolicy, InstanceState
from tests.unit.decisions import worlds
from tests.unit.decisions.worlds import (
    TOTAL,
    cluster,
    cpu_policy,
    host,
    slots_policy,
    vm,
)


class TestRooms(unittest.TestCase):

    def rooms(self, *things, **limits):
        return Rooms(cluster(*things), LoadLimits(**limits))

    def test_running_instances_are_counted(self):
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

    def test_put_and_take_change_the_room(self):
        rooms = self.rooms(host('h', 79.0))
        one = vm('a', 'h', anti_affinity='g')
        self.assertTrue(rooms.has_useful_share(
            'h') and rooms.satisfies_constraints('h', one))
        rooms.put(one)
        self.assertFalse(rooms.has_useful_share(
            'h') or rooms.satisfies_constraints('h', one))
        self.assertTrue(rooms.has_minimum_share('h'))
        rooms.take(one)
        self.assertTrue(rooms.has_useful_share(
            'h') and rooms.satisfies_constraints('h', one))
        self.assertFalse(rooms.residents('h'))

    def test_useful_share_is_never_below_the_minimum(self):
        rooms = self.rooms(host('h', 80.0), minimum_share=10.0,
                           useful_share=1.0)
        self.assertFalse(rooms.has_useful_share('h'))

    def test_spare_cpu(self):
        rooms = self.rooms(host('h'), vm('a', 'h'), host('n', None),
                           host('s', policies=(slots_policy(3),)))
        self.assertEqual(59.0, rooms.spare('h'))
        self.assertEqual(39.0, rooms.spare('h', more=2))
        self.assertEqual(-math.inf, rooms.spare('n'))
        self.assertEqual(79.0, rooms.spare('s'))

    @given(worlds.clusters(), st.randoms(use_true_random=False))
    def test_emptiest_hosts_come_first_after_changes(self, world, rng):
        rooms = Rooms(world, LoadLimits())
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
    def test_cached_use_is_right_after_changes(self, world, rng):
        def answers(rooms):
            return [(rooms.fits_policies(name, new), rooms.admits(name, new))
                    for name in world.hosts]

        new = vm('new', None, cpu=7.0, usage={'mem': 5.0})
        world = dataclasses.replace(world, in_flight=())
        asked, other = (Rooms(world, LoadLimits()) for _one in 'ab')
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

    def test_newcomer_must_fit_the_policies(self):
        newcomer = vm('b', None, cpu=10.0)
        for use, expected in ((59.0, True), (59.5, False), (None, True)):
            rooms = self.rooms(host('h'), vm('a', 'h', cpu=use),
                               vm('c', 'h', InstanceState.SUSPENDED, cpu=90.0))
            self.assertEqual(expected, rooms.fits_policies('h', newcomer))

    def test_policies_without_shares_limit_admission(self):
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
        # Unknown use counts as a useful share, suspended instances as none.
        self.assertTrue(admits('pressure', 60.0, 40.0, there))
        self.assertFalse(admits('pressure', 59.0, 40.0, there))
        self.assertTrue(admits('pressure', 59.0, 40.0, vm(
            'old', 'h', InstanceState.SUSPENDED)))
        self.assertFalse(admits('pressure', 100.0, None))
        # Agents throttle disk and network to shares.
        self.assertTrue(admits('disk_in', 59.0, 58.0, there))

    def test_newcomer_must_fit_the_inventory(self):
        small = host('h', total={**TOTAL, vocabulary.VCPU: 4},
                     reserved={vocabulary.VCPU: 1})
        rooms = self.rooms(
            small, vm('a', 'h', InstanceState.SUSPENDED, vcpus=2))
        self.assertTrue(rooms.has_inventory('h', vm('b', None)))
        self.assertFalse(rooms.has_inventory('h', vm('b', None, vcpus=2)))

    def test_unclaimed_resources_may_be_overdrawn(self):
        rooms = self.rooms(host('h', reserved={vocabulary.DISK_GB: 50}))
        self.assertTrue(rooms.has_inventory('h', vm('b', None, disk_gb=0)))
        self.assertFalse(rooms.has_inventory('h', vm('b', None)))
        self.assertFalse(self.rooms(host('h', total={})).has_inventory(
            'h', vm('b', None)))
