# SPDX-License-Identifier: Apache-2.0

"""Expected durations of operations of leases."""

import random
import statistics
import unittest

from secondary_scheduler.estimation.learning import Point
from secondary_scheduler.leases.engine.estimates import Estimates
from secondary_scheduler.leases.engine.values import LeaseOperation
from tests.unit.leases.engine import fakes

COPIES = (LeaseOperation.SUSPEND, LeaseOperation.RESUME)


def drawn(kind, number, seed=1):
    """Return random operations of a kind."""
    rng = random.Random(seed)
    return [Point(kind, 1, rng.uniform(0.2, 30.0),
                  rng.choice((128, 512, 2048))) for _ in range(number)]


class EstimatesTest(unittest.TestCase):

    def estimates(self, *took):
        return Estimates(fakes.DURATIONS, 10, took)

    def test_options_count_until_five_operations_were_seen(self):
        for kind, expected in ((LeaseOperation.BOOT, 10.0),
                               (LeaseOperation.DELETE, 2.0),
                               (LeaseOperation.SUSPEND, 0.5 + 512 / 50),
                               (LeaseOperation.RESUME, 0.5 + 512 / 50)):
            with self.subTest(kind):
                few = self.estimates(*drawn(kind, 4))
                self.assertEqual(expected, few.expected_seconds(kind, 512))
                self.assertEqual(fakes.DURATIONS, few.fitted_times())
                seen = self.estimates(*drawn(kind, 5))
                self.assertNotEqual(expected, seen.expected_seconds(kind, 512))

    def test_boot_takes_the_median_of_the_last_60(self):
        took = drawn(LeaseOperation.BOOT, 200)
        self.assertEqual(
            statistics.median(one.seconds for one in took[-60:]),
            self.estimates(*took).expected_seconds(LeaseOperation.BOOT, 512))

    def test_copying_takes_the_median_time_in_proportion_to_memory(self):
        for kind in COPIES:
            took = drawn(kind, 200, seed=2)
            last = took[-60:]
            for memory_mb in (128, 700, 4096):
                with self.subTest(f'{kind} of {memory_mb} MiB'):
                    self.assertAlmostEqual(
                        statistics.median(
                            one.seconds * memory_mb / one.memory_mb
                            for one in last),
                        self.estimates(*took).expected_seconds(
                            kind, memory_mb))

    def test_rates_are_medians_beyond_the_time_of_a_command(self):
        took = [*drawn(LeaseOperation.SUSPEND, 100, seed=3),
                *drawn(LeaseOperation.RESUME, 100, seed=4)]
        found = self.estimates(*took).fitted_times()
        for kind, rate in zip(COPIES, (found.suspend_rate, found.resume_rate),
                              strict=True):
            last = [one for one in took if one.kind is kind][-60:]
            self.assertEqual(
                statistics.median(
                    one.memory_mb / max(0.1, one.seconds - 0.5)
                    for one in last), rate)
        self.assertEqual(fakes.DURATIONS.margin, found.margin)

    def test_operations_without_a_duration_are_harmless(self):
        took = [Point(LeaseOperation.DELETE, 1, 0.0, 128)] * 5
        self.assertEqual(0.0, self.estimates(*took).expected_seconds(
            LeaseOperation.DELETE, 128))


if __name__ == '__main__':
    unittest.main()
