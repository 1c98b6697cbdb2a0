# SPDX-License-Identifier: Apache-2.0

"""Durations of operations of which not all run at the same time."""

import unittest

from secondary_scheduler.estimation.durations import (
    ConcurrentDurations,
    DurationInput,
)
from secondary_scheduler.estimation.overlaps import predict_overlapping


def suspends(count):
    return [DurationInput('suspend', f'h{number}') for number in range(count)]


class PredictOverlappingTest(unittest.TestCase):

    def predict(self, jobs, starts, ongoing=()):
        durations = ConcurrentDurations()
        alone = [durations.predict_all([job])[0] for job in jobs]
        return predict_overlapping(jobs, starts, alone, durations, ongoing)

    def test_operations_at_the_same_time_compete(self):
        self.assertEqual([206.0] * 200,
                         self.predict(suspends(200), [0.0] * 200))

    def test_operation_after_the_others_is_alone(self):
        found = self.predict(suspends(200), [0.0] * 199 + [300.0])
        self.assertEqual([205.0] * 199 + [7.0], found)

    def test_partial_overlap_counts(self):
        self.assertEqual([8.0, 8.0], self.predict(suspends(2), [0.0, 6.0]))
        self.assertEqual([7.0, 7.0], self.predict(suspends(2), [0.0, 7.0]))

    def test_ongoing_operations_compete_until_they_end(self):
        ongoing = [DurationInput('suspend', 'x')]
        self.assertEqual([8.0, 7.0], self.predict(
            suspends(2), [0.0, 20.0], ongoing))

    def test_many_different_starts_are_predicted_together(self):
        starts = [10.0 * number for number in range(200)]
        found = self.predict(suspends(200), starts)
        # At most the operations of one 64th of the time count as rivals.
        self.assertLessEqual(max(found), 11.0)
        self.assertGreaterEqual(min(found), 7.0)

    def test_no_operations_have_no_durations(self):
        self.assertEqual([], self.predict([], []))
