# SPDX-License-Identifier: Apache-2.0

"""Experiment with losses of each kind."""

import unittest

from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.experiments import losses as experiment
from secondary_scheduler.simulation.experiments.base import Context


class TestLosses(unittest.TestCase):

    def test_each_kind_of_loss_occurs_without_invalid_policies(self):
        found = experiment.run_losses(Context(profiles.OURS, (2,)))
        for kind, name in (('instance', 'crashes'), ('host', 'hosts_lost'),
                           ('agent', 'agents_lost')):
            self.assertGreater(found[f'{name}_{kind}'][0], 0)
            self.assertEqual(0, found[f'{name}_none'][0])
        for kind in ('none', 'instance', 'host', 'agent'):
            self.assertEqual(0, found[f'invalidations_{kind}'][0])
        for kind in ('none', 'agent'):
            self.assertEqual(0, found[f'work_lost_core_s_{kind}'][0])
