# SPDX-License-Identifier: Apache-2.0

"""Disks run one operation at a time."""

import unittest

import numpy as np

from secondary_scheduler.leases.scheduling.disks import Disks

FIRST, SECOND, BOTH = map(np.array, ([0], [1], [0, 1]))


class DisksTest(unittest.TestCase):
    def setUp(self):
        self.disks = Disks(2)
        for start, end in ((10, 20), (30, 40)):
            self.disks.take(self.disks.operation(FIRST, start, end))

    def test_first_idle_time(self):
        for hosts, start, expected in (
            (FIRST, 0, 0),
            (FIRST, 6, 20),
            (FIRST, 25, 25),
            (FIRST, 26, 40),
            (SECOND, 6, 6),
            (BOTH, 6, 20),
            (FIRST, 50, 50),
        ):
            with self.subTest(hosts=hosts, start=start, expected=expected):
                self.assertEqual(
                    expected, self.disks.idle_from(hosts, start, 5)
                )

    def test_last_idle_time(self):
        for hosts, end, expected in (
            (FIRST, 10, 10),
            (FIRST, 11, 10),
            (FIRST, 35, 30),
            (FIRST, 24, 10),
            (SECOND, 35, 35),
            (BOTH, 35, 30),
            (FIRST, 45, 45),
        ):
            with self.subTest(hosts=hosts, end=end, expected=expected):
                self.assertEqual(
                    expected, self.disks.idle_until(hosts, end, 5)
                )

    def test_ignored_operation_does_not_count(self):
        own = self.disks.operation(SECOND, 50, 60)
        self.disks.take(own)
        self.assertEqual(50, self.disks.idle_until(SECOND, 60, 5))
        self.assertEqual(60, self.disks.idle_until(SECOND, 60, 5, own))

    def test_removed_and_past_operations_do_not_count(self):
        mine = self.disks.operation(SECOND, 10, 20)
        self.disks.take(mine)
        self.assertEqual(20, self.disks.idle_from(SECOND, 15, 5))
        self.disks.give(mine)
        self.assertEqual(15, self.disks.idle_from(SECOND, 15, 5))
        self.disks.take(mine)
        self.disks.advance(20)
        self.disks.give(mine)
        self.assertEqual(12, self.disks.idle_from(FIRST, 12, 5))
        self.assertEqual(40, self.disks.idle_from(FIRST, 28, 5))

    def test_shared_storage_is_one_disk(self):
        disks = Disks(1)
        disks.take(disks.operation(FIRST, 10, 20))
        self.assertEqual(20, disks.idle_from(SECOND, 6, 5))
