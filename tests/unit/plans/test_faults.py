# SPDX-License-Identifier: Apache-2.0

"""Injected faults of every kind, in plans that no decision has made.

SECONDARY_FAULTS is the number of plans of each kind (default 100).
"""

import os
import unittest

from secondary_scheduler.plans.checker import check
from tests.unit.plans import faults

COUNT = int(os.environ.get('SECONDARY_FAULTS', '100'))


class TestFaults(unittest.TestCase):

    def test_many_kinds_of_fault_are_injected(self):
        self.assertGreaterEqual(len(faults.FAULTS), 12)

    def test_every_fault_is_found(self):
        for name in faults.FAULTS:
            missed = []
            for seed in range(COUNT):
                cluster, good, bad, lanes = faults.spoiled(name, seed)
                found = check(cluster, good, lanes)
                self.assertEqual([], found, f'{name} {seed}')
                if not check(cluster, bad, lanes):
                    missed.append(seed)
            with self.subTest(name):
                self.assertEqual([], missed)
