# SPDX-License-Identifier: Apache-2.0

"""Errors of estimated durations."""

import unittest

from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.experiments import (
    EXPERIMENTS,
    estimator,
)
from secondary_scheduler.simulation.experiments.base import Context


def measure(name, profile, *seeds, **values):
    return EXPERIMENTS[name].measure(Context(profile, seeds, **values))


class TestEstimator(unittest.TestCase):

    def test_errors_under_congestion_are_below_20_percent(self):
        found = measure('estimator', profiles.OURS, 1)
        for kind in estimator.KINDS:
            for how in ('', '_learned'):
                error, = found[f'median_error_{kind}_congestion{how}']
                self.assertLess(error, 0.2, kind + how)
