# SPDX-License-Identifier: Apache-2.0

"""Generated loads have the requested means."""

import unittest

import numpy as np

from secondary_scheduler.simulation import loads


class TestLoads(unittest.TestCase):

    def test_tilted_densities_have_their_mean(self):
        for mean in (4, 20, 34, 50, 66, 80, 92):
            values = loads.tilted(mean, 20_000, np.random.default_rng(1))
            with self.subTest(mean):
                self.assertAlmostEqual(mean, values.mean(), delta=0.6)
                self.assertTrue((values >= 0).all() and (values <= 100).all())

    def test_waves_have_their_mean_and_shape(self):
        for kind in ('square', 'triangle'):
            values = loads.wave(kind, 40, 200, 600, np.random.default_rng(2))
            self.assertEqual((1200, 200), values.shape)
            self.assertAlmostEqual(40, values.mean(), delta=1)
            jumps = np.abs(np.diff(values, axis=0)) > 0
            self.assertEqual(kind == 'triangle', jumps.mean() > 0.5)

    def test_noise_keeps_mean_and_variation(self):
        values = loads.noisy(np.array([40.0, 50.0]), 4000,
                             np.random.default_rng(3), 0.05)
        np.testing.assert_allclose([40, 50], values.mean(axis=0), rtol=0.01)
        np.testing.assert_allclose(0.05, (values.std(axis=0)
                                          / values.mean(axis=0)), rtol=0.1)


class TestSquares(unittest.TestCase):

    MEANS = np.array([[0.0, 5, 50, 97, 100], [3.0, 40, 2, 60, 50]])
    SPREAD = np.array([10.0, 10, 20, 10, 0])

    def load(self):
        return loads.Squares(self.MEANS, self.SPREAD, (1, 2))

    def test_each_window_has_its_mean(self):
        load = self.load()
        rows = np.array([load[step] for step in range(len(load))])
        self.assertEqual((1200, 5), rows.shape)
        np.testing.assert_allclose(self.MEANS, rows.reshape(2, 600, 5).mean(
            axis=1), atol=1e-9)
        self.assertTrue((rows >= 0).all() and (rows <= 100).all())

    def test_values_of_a_window_are_twice_the_spread_apart(self):
        load = self.load()
        column = np.array([load[step][2] for step in range(600)])
        low, high = np.unique(column)
        self.assertAlmostEqual(40, high - low)
        changes = np.flatnonzero(np.diff(column))
        self.assertGreaterEqual(np.diff(changes).min(), 5 * loads.STEPS - 1)
        self.assertGreater(len(changes), 3)

    def test_load_does_not_depend_on_the_order_of_access(self):
        one, other = self.load(), self.load()
        last = one[1199].tolist()
        self.assertEqual(other[0].tolist(), one[0].tolist())
        self.assertEqual(last, other[1199].tolist())
