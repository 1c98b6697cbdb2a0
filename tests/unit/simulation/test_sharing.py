"""Sharing, contention and queues, by their laws."""

import json
import pathlib
import unittest

from hypothesis import given
from hypothesis import strategies as st
import numpy as np

from secondary_scheduler.simulation import profiles, queueing, sharing
from secondary_scheduler.simulation.experiments import hlt

MEASURED = (pathlib.Path(__file__).parents[3]
            / 'benchmarks/data/contention.json')
PARTIES = st.lists(st.tuples(st.floats(0, 100), st.floats(0.01, 10)),
                   min_size=1, max_size=12)


class TestMaxMin(unittest.TestCase):

    def shares(self, *parties):
        demand, weight = (np.array(one) for one in zip(*parties, strict=True))
        return demand, weight, sharing.max_min(demand, weight)

    @given(PARTIES)
    def test_no_more_than_there_is_nor_than_is_wanted(self, parties):
        demand, _weight, share = self.shares(*parties)
        self.assertTrue((share <= demand + 1e-9).all())
        self.assertAlmostEqual(min(100.0, demand.sum()), share.sum(),
                               places=6)

    @given(PARTIES)
    def test_who_gets_less_has_at_least_as_much_by_weight(self, parties):
        demand, weight, share = self.shares(*parties)
        for one in np.flatnonzero(share < demand - 1e-6):
            self.assertTrue((share[one] / weight[one]
                             >= share / weight - 1e-6).all())

    def test_by_hand(self):
        np.testing.assert_allclose(
            [60, 30, 10],
            self.shares((80.0, 2.0), (50.0, 1.0), (10.0, 1.0))[2])
        np.testing.assert_allclose([90], self.shares((90.0, 1.0))[2])

    @given(PARTIES, st.floats(0, 120), st.floats(0, 40))
    def test_hosts_share_like_their_parties(self, parties, primary, burden):
        guests = np.array([demand for demand, _weight in parties])
        _demand, _weight, together = self.shares(
            (primary, 2.0), (burden, 1.0), *((one, 0.1) for one in guests))
        apart = sharing.share_host(primary, burden, guests, (2.0, 1.0, 0.1))
        np.testing.assert_allclose(together, (*apart, *guests), atol=1e-6)


class TestSpeed(unittest.TestCase):

    def test_alone_nothing_is_lost(self):
        own = np.array([10.0, 68.6, 99.0])
        np.testing.assert_allclose(1, sharing.speed(own, own, 0.69))

    def test_by_hand(self):
        np.testing.assert_allclose(
            [1 - 0.69 * 0.214, 1 - 0.69 * 0.1, 1],
            sharing.speed(np.array([90.0, 90.0, 60.0]),
                          np.array([30.0, 80.0, 30.0]), 0.69))

    def test_ours_loses_what_was_measured(self):
        """The factor is that of ``benchmarks/contention.py``."""
        measured = json.loads(MEASURED.read_text())
        self.assertEqual(measured['k'], profiles.OURS.contention)
        self.assertTrue(0 < measured['low'] < measured['k']
                        < measured['high'])


class TestQueue(unittest.TestCase):

    def test_calibrated_on_the_published_mean(self):
        load = np.tile(hlt.LOADS, (1800, 1))
        means = [queueing.waiting(load, np.ones_like(load), (seed, 3))[
            hlt.WARM_UP:].mean() for seed in range(1, 6)]
        self.assertAlmostEqual(8.93, np.mean(means), delta=0.05 * 8.93)

    def test_same_events_at_any_speed(self):
        load = np.tile(hlt.LOADS, (300, 1))
        full = queueing.waiting(load, np.ones_like(load), (1,))
        slow = queueing.waiting(load, np.full_like(load, 0.95), (1,))
        self.assertTrue((slow >= full - 1e-9).all())
        self.assertGreater(slow.mean(), full.mean())

    def test_nothing_waits_without_work(self):
        self.assertEqual(0, queueing.waiting(
            np.zeros((9, 2)), np.ones((9, 2)), (1,)).sum())
