# SPDX-License-Identifier: Apache-2.0

"""Predictions for one more secondary, in reports and in comparisons."""

import json
import math
import unittest

from secondary_scheduler.model import arrivals
from secondary_scheduler.model.arrivals import Arrival
from tests.unit.model.test_reports import report

#: Bytes that a report may have per second.
RATE = 500
#: Default of ``report_interval``, in seconds.
INTERVAL = 5


class TestArrivals(unittest.TestCase):

    def test_performance_falls_with_slowdown_and_with_harm(self):
        self.assertEqual(1.0, Arrival(1.0, 0.0).performance)
        self.assertEqual(0.5, Arrival(2.0, 0.0).performance)
        # Another vCPU that becomes twice as slow counts the same.
        self.assertAlmostEqual(0.5, Arrival(1.0, math.log(2)).performance)
        self.assertEqual(0.0, Arrival(1e6, 1e6).performance)

    def test_hosts_without_prediction_have_the_mean(self):
        self.assertEqual([1.0, 0.75, 0.5],
                         arrivals.fill_unknown([1.0, None, 0.5]))
        self.assertEqual([], arrivals.fill_unknown([None, None]))

    def test_report_carries_few_classes_with_short_names(self):
        found = arrivals.limit_arrivals({
            '': Arrival(1.0, 0.0), 'x' * 101: Arrival(1.0, 0.0),
            **{f'{number:03}'.ljust(100, 'y'): Arrival(
                1.23456, math.pi + number) for number in range(99)}})
        self.assertEqual(16, len(found))
        self.assertEqual((1.23, 3.142), found['000'.ljust(100, 'y')])
        self.assertEqual(found, arrivals.read_arrivals(
            json.loads(json.dumps(found))))
        text = json.dumps(report(arrivals=found).to_dict())
        self.assertLess(len(text), RATE * INTERVAL)

    def test_report_bounds_what_readers_reject(self):
        """Of very many vCPUs on one CPU, as beside a burst of primaries."""
        found = arrivals.limit_arrivals({'web': Arrival(46 * 1.25 ** 45,
                                                        math.inf)})
        self.assertEqual({'web': (1e6, 1e6)}, arrivals.read_arrivals(found))

    def test_malformed_predictions_are_rejected(self):
        good = {'web': [1.2, 0.1]}
        self.assertEqual({'web': (1.2, 0.1)}, arrivals.read_arrivals(good))
        for wrong in (
                None, [], 'web', {'web': 1.2}, {'web': '12'}, {'web': [1.2]},
                {'web': [1.2, 0.1, 0.1]}, {'web': {'slowdown': 1.2}},
                {'web': [0.99, 0.1]}, {'web': [1.2, -0.1]},
                {'web': [math.nan, 0.1]}, {'web': [1.2, math.nan]},
                {'web': [math.inf, 0.1]}, {'web': [1.2, 10 ** 400]},
                {'web': [True, 0.1]}, {'web': ['1.2', 0.1]},
                {'web': [None, 0.1]}, {'': [1.2, 0.1]}, {5: [1.2, 0.1]},
                {'x' * 101: [1.2, 0.1]},
                {str(number): [1.2, 0.1] for number in range(17)}):
            with self.subTest(wrong), self.assertRaises(ValueError):
                arrivals.read_arrivals(wrong)
