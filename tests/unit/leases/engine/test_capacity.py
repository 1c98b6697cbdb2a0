# SPDX-License-Identifier: Apache-2.0

"""Capacity that hosts can be counted on to lend."""

import unittest

from secondary_scheduler.leases.engine import capacity
from secondary_scheduler.leases.engine.values import LeaseHost


def lendable(amounts, window=3600.0, risk=0.5, period=2.0):
    """Return the estimate for a host with these lendable slots in turn."""
    found = capacity.LendableCapacity(window, risk)
    for number, slots in enumerate(amounts):
        one = (slots,) * 4
        found.add_samples({'h': LeaseHost('h', (9,) * 4, one)},
                          number * period)
    return found


class LendableCapacityTest(unittest.TestCase):

    def test_risk_decides_on_a_host_closed_for_a_tenth_of_the_time(self):
        amounts = [0 if number % 100 < 10 else 8 for number in range(5000)]
        for risk, expected in ((0.0, 0), (0.05, 0), (0.2, 8)):
            with self.subTest(risk):
                self.assertEqual((expected,) * 4, lendable(
                    amounts, risk=risk).amounts_of('h'))

    def test_samples_before_the_window_do_not_count(self):
        self.assertEqual((8,) * 4, lendable(
            [0] * 4000 + [8] * 2000).amounts_of('h'))

    def test_number_of_samples_is_bounded(self):
        found = lendable(range(50_000), window=86_400.0)
        self.assertLessEqual(len(found._seen['h']._seen), 128)

    def test_host_that_is_not_observed_lends_nothing(self):
        found = lendable([8])
        found.add_samples({}, 2.0)
        self.assertEqual((0,) * 4, found.amounts_of('h'))


if __name__ == '__main__':
    unittest.main()
