# SPDX-License-Identifier: Apache-2.0

"""Reservations beside jobs."""

import csv

from secondary_scheduler.simulation.experiments import haizea_reservations
from secondary_scheduler.simulation.leases import figures as lease_figures
from tests.unit.simulation.experiments.haizea import HaizeaTest, measured


class ReservationsTest(HaizeaTest):
    def test_suspension_saves_time_beside_reservations(self):
        table = self.data / 'leases.csv'
        document = self.simulate(
            'haizea-e1',
            '--quick',
            '--leases',
            table,
            '--plot',
            self.data / 'plots',
        )
        found = measured(document)
        self.assertEqual(3, found['files'])
        self.assertEqual(found['refused'], found['late'])
        self.assertEqual(0, found['refused'])
        name = haizea_reservations.TABLE[0]
        without, saved = (
            found[f'all_best_effort_s_{name}_{profile}']
            for profile in haizea_reservations.PROFILES[:2]
        )
        self.assertGreater(found[f'suspends_{name}_novm-sr'], 0)
        self.assertEqual(found[f'suspends_{name}_novm-nosr'], 0)
        self.assertLess(saved, without)
        self.assertAlmostEqual(
            100 * (without / found['baseline_s'] - 1),
            found[f'excess_pct_{name}_novm-nosr'],
            delta=1e-6 * abs(100 * (without / found['baseline_s'] - 1)),
        )
        self.assertGreater(
            found['largest_excess_pct_novm-nosr'],
            found['largest_excess_pct_novm-sr'],
        )
        ratios = [
            found[f'ratio_wait_mean_trimmed_s_{one}']
            for one in haizea_reservations.TABLE
        ]
        self.assertEqual(
            sorted(ratios)[1], found['ratio_wait_mean_trimmed_s_median']
        )
        figure = document['figures'][f'excess_pct_{name}_novm-nosr']
        self.assertEqual((5.15, 2.77), (figure['published'], figure['oracle']))
        with table.open() as opened:
            rows = list(csv.DictReader(opened))
        self.assertEqual((*lease_figures.COLUMNS, 'run'), tuple(rows[0]))
        self.assertEqual(60 + 9 * 66, len(rows))
        self.assertEqual({'done'}, {row['state'] for row in rows})
        # One chart for all files, one for each of three, and the figures.
        self.assertEqual(5, len(list((self.data / 'plots').iterdir())))

    def test_reservations_are_drawn_for_each_seed(self):
        document = self.simulate('haizea-e1', '--runs', 2)
        name = 'all_best_effort_s_{}10_4h_medium_novm-sr'
        figures = document['figures']
        self.assertEqual(1, len(figures[name.format('')]['per_run']))
        self.assertEqual(2, len(figures[name.format('drawn_')]['per_run']))
