# SPDX-License-Identifier: Apache-2.0

"""Options common to the experiments with leases."""

from secondary_scheduler.simulation.experiments import leases
from tests.unit.simulation.experiments.haizea import HaizeaTest, measured


class LeaseOptionsTest(HaizeaTest):
    def test_invalid_input_names_the_valid_one(self):
        for arguments, says in (
            (('--events', 'e.jsonl'), '--leases FILE.csv has the outcome'),
            (
                ('--set', 'profile=ours'),
                'its only profile is --set profile=thesis',
            ),
            (
                ('--set', 'x=3'),
                '--set: there is no option x; there are: backfilling',
            ),
            (('--set', 'suspend_rate=often'), '--set: suspend_rate'),
            (('--leases', '/nowhere/l.csv'), 'No such file'),
        ):
            with self.subTest(arguments=arguments, says=says):
                self.assertIn(
                    says,
                    self.simulate('haizea-e2', '--quick', *arguments, code=2),
                )

    def test_options_are_set_in_each_profile(self):
        document = self.simulate(
            'haizea-e1',
            '--quick',
            '--set',
            'profile=thesis',
            '--set',
            'suspension=false',
        )
        self.assertEqual(
            {'quick': True, 'suspension': 'false'}, document['config']
        )
        self.assertFalse(
            any(
                value
                for name, value in measured(document).items()
                if name.startswith('suspends')
            )
        )

    def test_haizea_durations_change_jobs_in_vms_only(self):
        plain, slipped = (
            measured(self.simulate('haizea-e1', '--quick', *arguments))
            for arguments in ((), ('--set', 'haizea_durations=true'))
        )
        differ = {
            name.rpartition('_')[2]
            for name, value in slipped.items()
            if name.startswith('all_best') and value != plain[name]
        }
        self.assertEqual({'vm-predeploy'}, differ)

    def test_missing_traces_name_the_data_option(self):
        for name in ('haizea-e1', 'haizea-e2', 'haizea-e5', 'haizea-e6'):
            with self.subTest(name=name):
                says = self.simulate(name, code=2, data=self.data / 'empty')
                self.assertIn(str(self.data / 'empty' / leases.FOLDER), says)
                self.assertIn('--data names the folder', says)
