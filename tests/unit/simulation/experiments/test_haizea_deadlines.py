# SPDX-License-Identifier: Apache-2.0

"""Jobs with deadlines."""

from tests.unit.simulation.experiments.haizea import HaizeaTest, measured


class DeadlinesTest(HaizeaTest):
    def test_deadlines_are_met(self):
        document = self.simulate('haizea-e2')
        found = measured(document)
        self.assertFalse(
            any(
                value
                for name, value in found.items()
                if name.startswith('deadlines_missed')
            )
        )
        for cell in ('late_tight', 'early_loose'):
            asked = {
                found[f'asked_spare_{cell}_{profile}']
                for profile in ('maximum-nop', 'maximum-nosr', 'maximum')
            }
            self.assertEqual(1, len(asked))
        self.assertGreater(
            found['asked_spare_late_tight_maximum'],
            found['asked_spare_early_loose_maximum'],
        )
        self.assertEqual(60, found['accepted_early_loose_maximum'])
        for what in ('deadlines', 'starts'):
            self.assertLessEqual(0, found[f'orders_of_{what}_maximum'])
            self.assertLessEqual(found[f'orders_of_{what}_maximum'], 6)
        again = self.simulate('haizea-e2', '--quick')['figures']
        self.assertEqual(
            {name: document['figures'][name] for name in again}, again
        )
