"""What a live migration copies beyond the memory there is."""

import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.estimation import precopy
from secondary_scheduler.model.cluster import CLEAN, DirtyMemory

RATES = st.floats(0.5, 5000)


def always_new(rate):
    """Write so many MiB/s, each to other memory."""
    return DirtyMemory(rate, 5 * rate)


class TestPrecopy(unittest.TestCase):

    def test_rounds_by_hand(self):
        # 1000 MiB at 100 MiB/s and 50 written: 1000, 500, 250, 125, 62.5,
        # and the last 31.25 are below the 50 of half a second's pause.
        self.assertEqual(1968.75, precopy.copied_mb(1000, always_new(50), 100))
        self.assertAlmostEqual(9.6875,
                               precopy.longer_s(1000, always_new(50), 100))

    def test_the_same_memory_counts_once(self):
        # 20 MiB in 1 s, and 4 more in 4: a round of 10 s writes to 29.
        self.assertEqual(29, DirtyMemory(20, 24).within(10))
        self.assertEqual(5, DirtyMemory(20, 24).within(0.25))
        self.assertEqual(20, DirtyMemory(20, 15).within(10))   # by chance
        self.assertEqual(1029, precopy.copied_mb(1000, DirtyMemory(20, 24),
                                                 100))

    def test_who_writes_nothing_is_copied_once(self):
        self.assertEqual(4096, precopy.copied_mb(4096, CLEAN, 100))
        self.assertEqual(0, precopy.longer_s(0, always_new(100), 100))

    def test_what_fits_into_the_pause_is_copied_once(self):
        self.assertEqual(40, precopy.copied_mb(40, always_new(1000), 100))

    def test_who_writes_faster_never_gets_there(self):
        self.assertTrue(precopy.converges(1000, always_new(80), 100))
        for dirty in (100, 1e4):    # all memory again and again, no more
            self.assertFalse(precopy.converges(1000, always_new(dirty), 100))
            self.assertEqual((precopy.ROUNDS + 1) * 1000, precopy.copied_mb(
                1000, always_new(dirty), 100))

    @given(st.integers(0, 1 << 20), RATES, st.floats(1, 5), RATES,
           st.floats(1, 3))
    def test_never_less_and_more_for_more(self, memory, rate, spread,
                                          bandwidth, factor):
        dirty = DirtyMemory(rate, rate * spread)
        more = DirtyMemory(*(factor * one for one in dirty))
        copied = precopy.copied_mb(memory, dirty, bandwidth)
        self.assertLessEqual(memory, copied)
        self.assertLessEqual(copied, (precopy.ROUNDS + 1) * memory)
        self.assertLessEqual(copied * (1 - 1e-9), precopy.copied_mb(
            memory, more, bandwidth))
        self.assertLessEqual(
            precopy.longer_s(memory, dirty, bandwidth * factor)
            * (1 - 1e-9), precopy.longer_s(memory, dirty, bandwidth))
