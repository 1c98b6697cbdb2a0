"""Loads have the means that they are asked for."""

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

    def test_waves(self):
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
