# SPDX-License-Identifier: Apache-2.0

"""Data that a live migration copies beyond the guest's memory."""

import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.estimation import precopy
from secondary_scheduler.model.cluster import CLEAN, DirtyMemory

RATES = st.floats(0.5, 5000)


def always_new(rate):
    """Return writes of a rate in MiB/s, always to other memory."""
    return DirtyMemory(rate, 5 * rate)


class TestPrecopy(unittest.TestCase):

    def test_sum_of_rounds(self):
        # 800 MiB at 80 MiB/s, with writes of 40: half as much in each round,
        # until at most 80 * 0.5 / 11 = 3.6 MiB are left for the pause.
        self.assertAlmostEqual(sum(800 / 2**n for n in range(1, 9)) / 80,
                               precopy.longer_s(800, always_new(40), 80))

    def test_each_page_counts_once(self):
        # 4/5 of a working set of 50 MiB are left after a second.
        dirty = DirtyMemory(10, 50 * (1 - 0.8**5))
        for seconds in (0.1, 1, 5, 20):
            self.assertAlmostEqual(50 * (1 - 0.8**seconds),
                                   precopy.written_mb(dirty, seconds))
        self.assertAlmostEqual(0.25, precopy.written_mb(
            always_new(10), 0.025))
        self.assertAlmostEqual(400, precopy.written_mb(always_new(10), 40))

    def test_small_working_set(self):
        for dirty in (DirtyMemory(20, 20), DirtyMemory(20, 15)):  # by chance
            for seconds in (0.01, 1, 60):
                self.assertAlmostEqual(20, precopy.written_mb(dirty, seconds))
            # The rest is larger than the first pause that Nova allows.
            self.assertFalse(precopy.converges(1000, dirty, 100))
            self.assertTrue(precopy.converges(1000, dirty, 500))

    def test_occasional_writes(self):
        self.assertEqual(20, precopy.written_mb(DirtyMemory(0, 10), 10))

    def test_idle_guest_is_copied_once(self):
        self.assertEqual(0, precopy.longer_s(4096, CLEAN, 100))
        self.assertEqual(0, precopy.longer_s(0, always_new(100), 100))
        self.assertTrue(precopy.converges(4096, CLEAN, 100))

    def test_guest_that_writes_too_fast_does_not_converge(self):
        self.assertTrue(precopy.converges(1000, always_new(80), 100))
        for dirty in (100, 1e4):
            self.assertFalse(precopy.converges(1000, always_new(dirty), 100))
            # Its agent takes such a guest to the floor.
            self.assertEqual(0, precopy.longer_s(1000, always_new(dirty),
                                                 100))

    @given(st.integers(0, 1 << 20), RATES, st.floats(0.5, 6), RATES,
           st.floats(1, 3))
    def test_more_bandwidth_never_prolongs_a_migration(
            self, memory, rate, spread, bandwidth, factor):
        dirty = DirtyMemory(rate, rate * spread)
        longer = precopy.longer_s(memory, dirty, bandwidth)
        self.assertLessEqual(0, longer)
        self.assertLessEqual(longer, precopy.ROUNDS * memory / bandwidth)
        # With more bandwidth it converges as well, and sooner.
        if precopy.converges(memory, dirty, bandwidth):
            self.assertTrue(precopy.converges(memory, dirty,
                                              bandwidth * factor))
            self.assertLessEqual(precopy.longer_s(
                memory, dirty, bandwidth * factor), longer + 1e-6)
