# SPDX-License-Identifier: Apache-2.0

"""Options of the group [secondary_leases]."""

import pathlib
import tempfile
import unittest

from oslo_config import cfg

from secondary_scheduler.conf import leases
from secondary_scheduler.simulation.leases import profiles

OLD = {
    'worthwhile': ('minimum_run_factor', '2.5', 2.5),
    'rearranging': ('deadline_replanning_orders', 'deadline', ['deadline']),
    'exclusion': ('suspend_serialization', 'global', 'global'),
    'enactment_overhead': ('command_latency', '1.5', 1.5),
    'order_lead': ('action_plan_lead_time', '7', 7.0),
}


class OldNamesTest(unittest.TestCase):
    def write(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / 'leases.conf'
        path.write_text(text)
        return str(path)

    def test_old_option_names_are_read(self):
        path = self.write(
            '[secondary_leases]\n'
            + ''.join(f'{old} = {OLD[old][1]}\n' for old in OLD)
        )
        conf = cfg.ConfigOpts()
        leases.register_opts(conf)
        conf([], default_config_files=[path], default_config_dirs=[])
        for name, _, value in OLD.values():
            with self.subTest(name=name):
                self.assertEqual(value, conf.secondary_leases[name])

    def test_profiles_may_use_old_names(self):
        path = self.write('[secondary_leases]\nrearranging = deadline\n')
        settings = profiles.read_profile(path).settings
        self.assertEqual(('deadline',), settings.deadline_replanning_orders)

    def test_changes_of_profiles_may_use_old_names(self):
        path = self.write('[secondary_leases]\n')
        settings = profiles.read_profile(
            path, [('worthwhile', '2.5')]).settings
        self.assertEqual(2.5, settings.minimum_run_factor)
