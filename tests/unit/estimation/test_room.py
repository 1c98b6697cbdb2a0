# SPDX-License-Identifier: Apache-2.0

"""Capacity of hosts in secondaries."""

import unittest

from secondary_scheduler.estimation import room
from secondary_scheduler.model.cluster import HostPolicy
from tests.unit.decisions.worlds import cpu_policy, host, slots_policy


class TestCapacity(unittest.TestCase):

    def test_capacity_by_cpu(self):
        # 20 + 5 n <= 90 - 1, and the same with a share of 10
        self.assertEqual(13, room.capacity(host('h'), 5, 1))
        self.assertEqual(6, room.capacity(host('h'), 10, 1))

    def test_exactly_full_host_fits(self):
        self.assertEqual(1, room.capacity(host('h', 84.0), 5, 1))
        self.assertEqual(0, room.capacity(host('h', 84.01), 5, 1))
        self.assertEqual(3, room.capacity(host('h', 88.7), 0.1, 1))

    def test_no_capacity_if_the_primary_exceeds_the_threshold(self):
        self.assertEqual(0, room.capacity(host('h', 95.0), 5, 1))
        self.assertEqual(0, room.capacity(host('h', 95.0), 0, 1))

    def test_share_of_zero_is_unlimited(self):
        self.assertEqual(room.UNLIMITED, room.capacity(host('h'), 0, 1))

    def test_strictest_policy_counts(self):
        both = host('h', policies=(cpu_policy(), slots_policy(2)))
        self.assertEqual(2, room.capacity(both, 5, 1))
        both = host('h', policies=(cpu_policy(), cpu_policy(40.0)))
        self.assertEqual(3, room.capacity(both, 5, 1))

    def test_unknown_use_has_no_capacity(self):
        self.assertEqual(0, room.capacity(host('h', None), 5, 1))
        self.assertEqual(0, room.capacity(host('h', policies=()), 5, 1))
        disk = HostPolicy('disk_in <= 60% for 9s', 'disk_in', 60, 9)
        for use, expected in (({}, 0), ({'disk_in': 41.0}, 3)):
            self.assertEqual(expected, room.capacity(
                host('h', policies=(disk,), usage=use), 5, 1))
        strange = HostPolicy('net <= 3 for 5s', 'net', 3, 5)
        self.assertEqual(0, room.capacity(
            host('h', policies=(strange,)), 5, 1))
