# SPDX-License-Identifier: Apache-2.0

"""Sharing of a host, and slowdown of its primary."""

import json
import pathlib
import unittest

from hypothesis import given
from hypothesis import strategies as st
import numpy as np

from secondary_scheduler.simulation import profiles, sharing

MEASURED = (pathlib.Path(__file__).parents[3]
            / 'benchmarks/data/contention.json')
PARTIES = st.lists(st.tuples(st.floats(0, 100), st.floats(0.01, 10)),
                   min_size=1, max_size=12)


class TestMaxMin(unittest.TestCase):

    def shares(self, *parties):
        demand, weight = (np.array(one) for one in zip(*parties, strict=True))
        return demand, weight, sharing.max_min(demand, weight)

    @given(PARTIES)
    def test_shares_are_within_demand_and_use_the_capacity(self, parties):
        demand, _weight, share = self.shares(*parties)
        self.assertTrue((share <= demand + 1e-9).all())
        self.assertAlmostEqual(min(100.0, demand.sum()), share.sum(),
                               places=6)

    @given(PARTIES)
    def test_unsatisfied_party_has_the_largest_share_by_weight(self, parties):
        demand, weight, share = self.shares(*parties)
        for one in np.flatnonzero(share < demand - 1e-6):
            self.assertTrue((share[one] / weight[one]
                             >= share / weight - 1e-6).all())

    def test_shares_of_small_examples(self):
        np.testing.assert_allclose(
            [60, 30, 10],
            self.shares((80.0, 2.0), (50.0, 1.0), (10.0, 1.0))[2])
        np.testing.assert_allclose([90], self.shares((90.0, 1.0))[2])

    @given(PARTIES, st.floats(0, 120), st.floats(0, 40))
    def test_share_host_equals_max_min_shares(self, parties, primary, burden):
        guests = np.array([demand for demand, _weight in parties])
        _demand, _weight, together = self.shares(
            (primary, 2.0), (burden, 1.0), *((one, 0.1) for one in guests))
        apart = sharing.share_host(primary, burden, guests, (2.0, 1.0, 0.1))
        np.testing.assert_allclose(together, (*apart, *guests), atol=1e-6)


class TestSpeed(unittest.TestCase):

    def test_primary_alone_has_full_speed(self):
        own = np.array([10.0, 68.6, 99.0])
        np.testing.assert_allclose(1, sharing.speed(own, own, 0.69))

    def test_speed_of_small_examples(self):
        np.testing.assert_allclose(
            [1 - 0.69 * 0.214, 1 - 0.69 * 0.1, 1],
            sharing.speed(np.array([90.0, 90.0, 60.0]),
                          np.array([30.0, 80.0, 30.0]), 0.69))

    def test_contention_of_ours_is_the_measured_one(self):
        """It was measured with ``benchmarks/contention.py``."""
        measured = json.loads(MEASURED.read_text())
        self.assertEqual(measured['k'], profiles.OURS.contention)
        self.assertTrue(0 < measured['low'] < measured['k']
                        < measured['high'])
