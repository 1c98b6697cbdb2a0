# SPDX-License-Identifier: Apache-2.0

"""Costs of suspending and resuming."""

from tests.unit.simulation.experiments.haizea import HaizeaTest, measured


class SuspensionsTest(HaizeaTest):
    def test_times_are_relative_to_instant_suspension(self):
        document = self.simulate('haizea-e5', '--quick')
        found = measured(document)
        for workload in ('t00', 't30'):
            self.assertEqual(
                1, found[f'normalized_{workload}_1_1024_suspend-instant']
            )
        slower = {
            name: value
            for name, value in found.items()
            if name.startswith('normalized_t30') and 'mbps' not in name
        }
        self.assertGreater(
            sorted(slower.values())[1], 1
        )  # the first is the yardstick
        self.assertEqual(max(slower.values()), found['worst_t30'])
        self.assertEqual(
            found['normalized_t30_1_4096_suspend-global'],
            found['worst_t30_suspend-global_4096'],
        )
        self.assertAlmostEqual(
            100
            * (
                found['normalized_t30_1_1024_suspend-global-100mbps']
                / found['normalized_t30_1_1024_suspend-global']
                - 1
            ),
            found['difference_pct_t30_1_1024'],
            delta=1e-6
            * abs(
                100
                * (
                    found['normalized_t30_1_1024_suspend-global-100mbps']
                    / found['normalized_t30_1_1024_suspend-global']
                    - 1
                )
            ),
        )
        self.assertEqual(
            1.04,
            document['figures']['normalized_t30_1_1024_suspend-global'][
                'published'
            ],
        )
