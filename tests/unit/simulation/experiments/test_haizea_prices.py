# SPDX-License-Identifier: Apache-2.0

"""Pricing strategies."""

from unittest import mock

from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.pricing import Constant
from secondary_scheduler.simulation.experiments import haizea_prices, leases
from secondary_scheduler.simulation.leases.run import LeaseSimulation
from secondary_scheduler.simulation.workloads.requests import TraceRequest
from tests.unit.leases.scheduling.builders import site, terms
from tests.unit.simulation.experiments.haizea import HaizeaTest, measured


class PricesTest(HaizeaTest):
    def test_parts_of_the_revenue_add_up(self):
        document = self.simulate('haizea-e6', '--quick')
        found = measured(document)
        for cell in ('early_tight_uniform', 'early_loose_rich'):
            for profile in haizea_prices.STRATEGIES:
                self.assertAlmostEqual(
                    100,
                    sum(
                        found[f'{part}_pct_{cell}_{profile}']
                        for part in haizea_prices.PARTS
                    ),
                    delta=1e-6 * abs(100),
                )
            self.assertEqual(0, found[f'missed_price_pct_{cell}_maximum'])
            self.assertEqual(
                0, found[f'missed_underpricing_pct_{cell}_maximum']
            )
        self.assertEqual(
            found['median_rate_constant'], found['best_rate_constant']
        )
        self.assertEqual(1, found['median_rate_constant'])
        self.assertAlmostEqual(
            100, found['best_revenue_pct_constant'], delta=1e-6 * abs(100)
        )
        self.assertLess(0, found['adaptive_rate_cheap'])
        self.assertLess(
            found['adaptive_rate_cheap'], found['adaptive_rate_rich']
        )
        self.assertLess(found['adaptive_rate_rich'], 10)

    def test_revenue_that_does_not_add_up_is_an_error(self):
        asked = TraceRequest('a', 0, terms(1, 10, max_rate=2.0), 10)
        outcomes = LeaseSimulation(
            site(1), Settings(pricing=Constant(0.5)), [asked]
        ).run()
        run = leases.Run('some', 'constant', 1, [asked])
        found = haizea_prices._row(run, outcomes, (0, 20))
        self.assertEqual(
            (25, 75, 50 / leases.HOSTS),
            (
                found['revenue_pct'],
                found['missed_underpricing_pct'],
                found['utilization_pct'],
            ),
        )
        with (
            mock.patch.object(
                haizea_prices, 'PARTS', ('revenue', 'missed_price')
            ),
            self.assertRaisesRegex(haizea_prices.BooksError, 'some_constant'),
        ):
            haizea_prices._row(run, outcomes, (0, 20))
