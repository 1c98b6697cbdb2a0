# SPDX-License-Identifier: Apache-2.0

"""HLT experiments reproduce the thesis, and meet the goals for ours."""

import unittest

from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.experiments import (
    EXPERIMENTS,
)
from secondary_scheduler.simulation.experiments.base import Context


def measure(name, profile, *seeds, **values):
    return EXPERIMENTS[name].measure(Context(profile, seeds, **values))


class TestHlt(unittest.TestCase):
    """Acceptance: means of seeds 1 to 5, or of one seed."""

    def test_thesis_is_close_to_the_published_figures(self):
        figures = measure('hlt', profiles.THESIS, 1)
        self.assertAlmostEqual(79.3, figures['cpu_with'][0], delta=3)
        self.assertAlmostEqual(158, figures['results'][0], delta=15)
        self.assertLess(figures['queue_max_with'][0], 500)
        self.assertEqual([0.0], figures['invalidations'])

    def test_ours_uses_idle_cpu_without_losses(self):
        figures = measure('hlt', profiles.OURS, 1, 2, 3, 4, 5)
        self.assertGreaterEqual(sum(figures['cpu_with']), 5 * 90)
        self.assertLessEqual(sum(figures['queue_mean_with']),
                             1.1 * sum(figures['queue_mean_without']))
        for name in ('work_lost_core_s', 'invalidations', 'kills'):
            self.assertEqual([0.0] * 5, figures[name])

    def test_ours_suspends_all_when_secondaries_are_switched_off(self):
        figures = measure('hlt-sequence', profiles.OURS, 1)
        self.assertEqual([48.0], figures['suspends'])
        for name in ('work_lost_core_s', 'invalidations', 'kills'):
            self.assertEqual([0.0], figures[name])
