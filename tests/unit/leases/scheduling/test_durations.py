# SPDX-License-Identifier: Apache-2.0

"""Durations of operations (Sotomayor 2010, section 7.1)."""

import unittest

import numpy as np

from secondary_scheduler.leases.scheduling.durations import OperationTimes

LOCAL_SUSPEND, GLOBAL_SUSPEND = 61.86, 63.67
LOCAL_RESUME, GLOBAL_RESUME = 66.27, 81.27


def migration_time(before, after, **other):
    return OperationTimes(**other).migration_time(
        (np.array(before),), (np.array(after),), (1000,)
    )


class TransferTimeTest(unittest.TestCase):
    def test_published_values_of_equation_7_2(self):
        """4 hosts with the same number of VMs on each."""
        for each, shared, command, rate, expected in (
            (1, False, 0, LOCAL_SUSPEND, (8.28, 12.42, 16.55)),
            (1, False, 1, LOCAL_SUSPEND, (12.28, 16.42, 20.55)),
            (8, False, 0, LOCAL_SUSPEND, (66.21, 99.32)),
            (8, False, 1, LOCAL_SUSPEND, (98.21, 131.32)),
            (1, True, 0, GLOBAL_SUSPEND, (32.17, 48.25, 64.33)),
            (1, True, 1, GLOBAL_SUSPEND, (36.17, 52.25, 68.33)),
            (4, True, 0, GLOBAL_SUSPEND, (128.66, 193.00, 257.33)),
            (4, True, 1, GLOBAL_SUSPEND, (144.66, 209.00, 273.33)),
            (8, True, 0, GLOBAL_SUSPEND, (257.33, 385.99)),
            (8, True, 1, GLOBAL_SUSPEND, (289.33, 417.99)),
            (8, False, 1, LOCAL_RESUME, (93.81, 124.71)),
            (8, True, 1, GLOBAL_RESUME, (233.60, 334.40)),
        ):
            with self.subTest(
                each=each,
                shared=shared,
                command=command,
                rate=rate,
                expected=expected,
            ):
                durations = OperationTimes(shared=shared, command=command)
                for memory, seconds in zip(
                    (512, 768, 1024), expected, strict=False
                ):
                    found = durations.transfer_time(
                        (np.full(4, each),), (memory,), rate
                    )
                    self.assertAlmostEqual(seconds, found, delta=0.011)

    def test_planned_times_are_whole_seconds(self):
        durations = OperationTimes(suspend_rate=50, resume_rate=64)
        vms = (np.array([1, 0, 1]),)
        self.assertEqual(21, durations.suspend_time(vms, (1024,)))
        self.assertEqual(16, durations.resume_time(vms, (1024,)))

    def test_minimum_overheads_are_those_of_one_vm_per_host(self):
        durations = OperationTimes(suspend_rate=50, resume_rate=64, margin=0.5)
        spread = (np.array([1, 1, 1]),)
        self.assertEqual(
            (
                durations.resume_time(spread, (1024,)),
                durations.suspend_time(spread, (1024,)),
            ),
            durations.minimum_overheads((3,), (1024,)),
        )
        self.assertEqual(
            (60, 60),
            OperationTimes(shared=True).minimum_overheads((3,), (1000,)),
        )

    def test_margin_extends_planned_suspensions(self):
        vms = (np.array([1, 0, 1]),)
        durations = OperationTimes(
            suspend_rate=50, resume_rate=50, margin=0.25
        )
        self.assertEqual(25, durations.suspend_time(vms, (1000,)))
        self.assertEqual(20, durations.resume_time(vms, (1000,)))


class MigrationTimeTest(unittest.TestCase):
    def test_moves_between_different_hosts_run_in_parallel(self):
        self.assertEqual(
            10,
            migration_time([1, 1, 0, 0], [0, 0, 1, 1], migration_rate=100.0),
        )

    def test_host_takes_part_in_one_move_at_a_time(self):
        self.assertEqual(
            20, migration_time([2, 0, 0], [0, 1, 1], migration_rate=100.0)
        )

    def test_unchanged_placement_takes_no_time(self):
        self.assertEqual(
            0, migration_time([1, 0], [1, 0], migration_rate=None)
        )

    def test_disabled_migration_is_infeasible(self):
        self.assertIsNone(migration_time([1, 0], [0, 1], migration_rate=None))

    def test_migration_on_shared_storage_takes_no_time(self):
        self.assertEqual(0, migration_time([1, 0], [0, 1], migration_rate=0.0))
