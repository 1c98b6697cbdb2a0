# SPDX-License-Identifier: Apache-2.0

"""Pricing policies."""

import json
import unittest

from secondary_scheduler.leases.scheduling.pricing import (
    Adaptive,
    Constant,
    Maximum,
    Random,
    price,
)
from tests.unit.leases.scheduling.builders import terms


class AdaptiveTest(unittest.TestCase):
    def test_rate_follows_accepted_and_refused_rates(self):
        """User A would pay 2, user B 0.3."""
        pricing = Adaptive()
        asked = terms(1, 10)
        self.assertEqual(1.0, pricing.rate(asked))
        pricing.observe('A', 1.0, True)
        self.assertEqual(1.5, pricing.rate(asked))
        pricing.observe('B', 1.5, False)
        # The upper one of the estimates 0.75 and 1.5.
        self.assertEqual(1.5, pricing.rate(asked))

    def test_estimate_is_fixed_between_both_bounds(self):
        pricing = Adaptive()
        pricing.observe('A', 1.0, True)
        pricing.observe('A', 1.5, False)
        self.assertEqual(1.25, pricing.rate(terms(1, 10)))
        # A rate accepted between them fixes the estimate.
        pricing.observe('A', 1.25, True)
        pricing.observe('A', 0.5, False)
        self.assertEqual(1.25, pricing.rate(terms(1, 10)))

    def test_lowest_refused_and_highest_accepted_rates_count(self):
        pricing = Adaptive()
        pricing.observe('A', 4.0, False)
        pricing.observe('A', 3.0, False)
        pricing.observe('A', 3.5, False)
        self.assertEqual(1.5, pricing.rate(terms(1, 10)))
        pricing.observe('B', 2.0, True)
        pricing.observe('B', 1.0, True)
        self.assertEqual(3.0, pricing.rate(terms(1, 10)))

    def test_rate_converges_for_one_user(self):
        pricing, acceptable = Adaptive(), 7.3
        for _ in range(60):
            rate = pricing.rate(terms(1, 10))
            pricing.observe('A', rate, rate <= acceptable)
        self.assertLess(0.6 * acceptable, pricing.rate(terms(1, 10)))
        self.assertLessEqual(pricing.rate(terms(1, 10)), acceptable)

    def test_learned_state_is_restored(self):
        pricing, other, asked = Adaptive(), Adaptive(rate=9.0), terms(1, 10)
        self.assertIsNone(pricing.learned())
        for user, rate, accepted in (
            ('A', 1.0, True),
            ('A', 1.5, False),
            ('A', 1.25, True),
            ('B', 3.0, False),
        ):
            pricing.observe(user, rate, accepted)
        other.observe('C', 9.0, True)
        other.recall(json.loads(json.dumps(pricing.learned())))
        self.assertEqual(pricing.rate(asked), other.rate(asked))
        self.assertEqual(1.5, pricing.rate(asked))
        for one in (pricing, other):
            one.observe('A', 0.5, False)
            one.observe('B', 2.0, False)
        self.assertEqual(pricing.rate(asked), other.rate(asked))
        self.assertEqual(1.25, pricing.rate(asked))
        other.recall(None)
        self.assertEqual((9.0, None), (other.rate(asked), other.learned()))

    def test_rate_is_a_quantile_of_the_estimates(self):
        for quantile, rate in ((0.0, 0.5), (0.5, 1.5), (1.0, 1.5)):
            with self.subTest(quantile=quantile, rate=rate):
                pricing = Adaptive(quantile=quantile)
                pricing.observe('A', 1.0, True)
                pricing.observe('B', 1.0, False)
                self.assertEqual(rate, pricing.rate(terms(1, 10)))


class OtherPoliciesTest(unittest.TestCase):
    def test_price_is_rate_times_nodes_and_duration(self):
        self.assertEqual(150.0, price(terms(3, 100), 0.5))

    def test_other_policies_do_not_learn(self):
        asked = terms(1, 10, user='anna', max_rate=4.0)
        constant, maximum = Constant(2.0), Maximum()
        for pricing, rate in ((constant, 2.0), (maximum, 4.0)):
            pricing.observe('anna', 1.0, False)
            self.assertEqual(rate, pricing.rate(asked))
        first, second = Random(seed=3), Random(seed=3)
        rates = [first.rate(asked) for _ in range(50)]
        self.assertEqual([second.rate(asked) for _ in range(50)], rates)
        self.assertGreaterEqual(min(rates), 0.1)
        self.assertLessEqual(max(rates), 10.0)
        self.assertGreater(len(set(rates)), 40)
