# SPDX-License-Identifier: Apache-2.0

"""Storage of learned prices."""

import dataclasses
import unittest
from unittest import mock

from secondary_scheduler.leases.api.db import schedules
from secondary_scheduler.leases.engine import pricing_store
from secondary_scheduler.leases.engine.values import Postponed
from secondary_scheduler.leases.scheduling.pricing import Adaptive
from tests.unit.leases.engine import fakes


class PricingStoreTest(unittest.TestCase):

    def setUp(self):
        self.world = fakes.World(self, self.options())

    def options(self):
        return dataclasses.replace(fakes.OPTIONS, settings=(
            dataclasses.replace(fakes.OPTIONS.settings, pricing=Adaptive())))

    def rate(self):
        """Return at which rate a lease is quoted with the next pass."""
        quote = self.world.quote(1, duration=30)
        self.world.step()
        return self.world.service.quotes.get(quote).rate

    def test_learned_price_outlives_the_engine(self):
        self.world.ask(1, duration=30, max_rate=0.2)
        self.world.step()
        self.assertEqual(0.5, self.rate())
        self.world.options = self.options()
        self.world.restart()
        self.assertEqual(0.5, self.rate())

    def test_unreadable_state_of_pricing_is_reset(self):
        for garbage in ('{', '[1]', '{"rate": 1}',
                        '{"rate": 2, "users": {"a": {"x": 1}}}'):
            with self.subTest(garbage), mock.patch.object(
                    schedules, 'read_learned', return_value=garbage):
                self.world.options = self.options()
                self.world.restart()
                with self.assertLogs(pricing_store.__name__, 'WARNING'):
                    self.assertEqual(1.0, self.rate())

    def test_price_of_an_unwritten_pass_is_forgotten(self):
        other = self.world.another()
        other.run_pass()
        self.world.ask(1, duration=30, max_rate=0.2)
        overtaken = schedules.Overtaken('test')
        with mock.patch.object(schedules, 'write_pass', side_effect=overtaken):
            with self.assertRaises(Postponed):
                other.run_pass()
        self.assertEqual(0.5, self.rate())


if __name__ == '__main__':
    unittest.main()
