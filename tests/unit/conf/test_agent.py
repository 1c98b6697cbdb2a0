# SPDX-License-Identifier: Apache-2.0

import tempfile
import unittest

from oslo_config import cfg

from secondary_scheduler.conf import agent


class DeprecatedNamesTest(unittest.TestCase):

    def test_old_names_set_the_new_options(self):
        with tempfile.NamedTemporaryFile('w', suffix='.conf') as file:
            file.write('[secondary_agent]\nballoon_least = 60\n'
                       'calm_after = 7\nopen_after = 3\n')
            file.flush()
            conf = cfg.ConfigOpts()
            agent.register_opts(conf)
            conf(['--config-file', file.name])
            with self.assertLogs('oslo_config.cfg', 'WARNING') as logs:
                options = conf.secondary_agent
                self.assertEqual((60.0, 7.0, 3.0), (
                    options.balloon_minimum, options.floor_lift_delay,
                    options.admission_delay))
        for name in ('balloon_least', 'calm_after', 'open_after'):
            self.assertIn(name, '\n'.join(logs.output))
