# SPDX-License-Identifier: Apache-2.0

"""Order of the queue of waiting leases."""

import unittest

from secondary_scheduler.decisions.waiting import priority, queue
from secondary_scheduler.model.cluster import InstanceState, LeaseMembers
from secondary_scheduler.model.lease_order import Aged, Priority
from tests.unit.decisions.test_provisioning import leased, new
from tests.unit.decisions.worlds import cluster, host, vm


class TestQueue(unittest.TestCase):

    def test_priority_grows_with_size_unless_given(self):
        self.assertEqual(6.5, priority(LeaseMembers('l'), 3))
        self.assertEqual(9.0, priority(LeaseMembers('l', owner_priority=8), 2))
        self.assertEqual(2, priority(LeaseMembers('l', 2), 30))

    def order(self, world, **values):
        return [one.lease for one in queue(
            world, **{'order': Priority()} | values)]

    def test_priority_then_first_come(self):
        world = leased(
            cluster(*(new(f'{name}{one}', name) for name, size in (
                ('a', 1), ('b', 4), ('c', 1), ('d', 2), ('e', 1))
                for one in range(size))),
            LeaseMembers('a', waited_s=5), LeaseMembers(
                'b'), LeaseMembers('c', waited_s=9),
            LeaseMembers('d', 1), LeaseMembers('e', 9))
        self.assertEqual(['e', 'b', 'c', 'a', 'd'], self.order(world))

    def test_known_arrival_counts_instead_of_the_wait(self):
        world = leased(
            cluster(new('a', 'old'), new('b', 'recent')),
            LeaseMembers('old', waited_s=1, age_s=900),
            LeaseMembers('recent', waited_s=60, age_s=90))
        self.assertEqual(['old', 'recent'], self.order(world))

    def test_ageing_raises_waiting_leases(self):
        world = leased(
            cluster(new('a', 'old'), new('b', 'high')),
            LeaseMembers('old', 1, waited_s=7200),
            LeaseMembers('high', 4),
        )
        self.assertEqual(['high', 'old'], self.order(world))
        self.assertEqual(['high', 'old'], self.order(world, order=Aged(1.4)))
        self.assertEqual(['old', 'high'], self.order(world, order=Aged(1.6)))

    def test_only_complete_waiting_leases_are_queued(self):
        world = cluster(
            host('h'),
            vm('a', 'h', InstanceState.SUSPENDED, preempted=True),
            vm('b', 'h', InstanceState.SUSPENDED),
            vm('c', 'h'),
            new('d', 'd'),
            new('e', 'e', blocked=True),
            new('r', 'r', cooling_down=True),
            new('s', 's'),
            vm('t', 'h', InstanceState.OTHER, lease='s',
               return_failed=True),
            vm('u', 'h', InstanceState.SUSPENDED, lease='u', preempted=True,
               return_failed=True),
            vm('v', 'h', lease='d', preempt_failed=True),
            new('f', 'f'),
            vm('g', 'h', InstanceState.BUSY, lease='f'),
        )
        self.assertEqual(['lease-a'], self.order(world))
        self.assertEqual(['d', 'lease-a'], self.order(
            leased(world, *map(LeaseMembers, 'defrsu'))))
