# SPDX-License-Identifier: Apache-2.0

"""Images that are copied to hosts."""

from secondary_scheduler.simulation.experiments import haizea_reservations
from tests.unit.simulation.experiments.haizea import HaizeaTest, measured


class ImagesTest(HaizeaTest):
    def test_reuse_of_images_saves_time(self):
        document = self.simulate('haizea-e3', '--quick')
        found = measured(document)
        name = haizea_reservations.TABLE[0]

        def wait(case):
            return found[f'wait_mean_trimmed_s_{name}_{case}']

        def turnaround(case):
            return found[f'turnaround_mean_trimmed_s_{name}_uniform_{case}']

        # 60 jobs with forty images of seven minutes each, or of 41 s.
        self.assertGreater(turnaround('vm-mult-bw100'), turnaround('vm-mult'))
        self.assertGreater(turnaround('vm-mult'), turnaround('vm-predeploy'))
        self.assertGreater(turnaround('vm-predeploy'), 0)
        self.assertLess(
            wait('uniform_vm-reuse-bw100'), wait('uniform_vm-mult-bw100')
        )
        self.assertLess(
            wait('skewed_vm-reuse-bw100'), wait('uniform_vm-reuse-bw100')
        )
        self.assertEqual(
            wait('uniform_vm-mult') / wait('uniform_vm-predeploy'),
            found[f'ratio_wait_mean_trimmed_s_{name}_uniform_vm-mult'],
        )
        self.assertFalse(
            any(
                value
                for figure, value in found.items()
                if figure.startswith('reservations_late')
            )
        )
        self.assertEqual(
            6180,
            document['figures'][
                f'wait_mean_trimmed_s_{name}_uniform_vm-predeploy'
            ]['published'],
        )
