# SPDX-License-Identifier: Apache-2.0

"""Injected faults of every kind, in context switches.

SECONDARY_FAULTS is the number of plans of each kind (default 50).
"""

import os
import unittest

from secondary_scheduler.plans.checker import check
from tests.unit.plans import switch_faults

COUNT = int(os.environ.get('SECONDARY_FAULTS', '50'))


class TestFaults(unittest.TestCase):

    def test_many_kinds_of_fault_are_injected(self):
        self.assertGreaterEqual(len(switch_faults.FAULTS), 8)

    def test_every_fault_is_found_for_its_reason(self):
        for name, (_spoil, reason) in switch_faults.FAULTS.items():
            missed = []
            for seed in range(COUNT):
                cluster, good, bad = switch_faults.spoiled(name, seed)
                found = check(cluster, good, switch_faults.LANES)
                self.assertEqual([], found, f'{name} {seed}')
                faults = check(cluster, bad, switch_faults.LANES)
                if not any(part in fault for fault in faults
                           for part in reason.split('|')):
                    missed.append((seed, faults[:3]))
            with self.subTest(name):
                self.assertEqual([], missed[:3])
