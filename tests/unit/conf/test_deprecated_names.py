# SPDX-License-Identifier: Apache-2.0

"""Configuration files that name options as the release before did."""

import tempfile
import unittest
from unittest import mock

from oslo_config import cfg
from oslo_log import versionutils

from secondary_scheduler import conf as options
from secondary_scheduler.cmd import status

#: Value in a file, and the value that is read, by group and deprecated name.
OLD = {
    ('secondary_agent', 'balloon_least'): ('60', 60.0),
    ('secondary_agent', 'calm_after'): ('7.5', 7.5),
    ('secondary_agent', 'open_after'): ('12', 12.0),
    ('secondary_watcher', 'floored_bound'): ('9', 9.0),
    ('secondary_watcher', 'agents_first'): ('true', True),
    ('secondary_leases', 'worthwhile'): ('2', 2.0),
    ('secondary_leases', 'rearranging'): ('deadline', ['deadline']),
    ('secondary_leases', 'exclusion'): ('global', 'global'),
    ('secondary_leases', 'enactment_overhead'): ('0.5', 0.5),
    ('secondary_leases', 'order_lead'): ('8', 8.0)}


class DeprecatedNamesTest(unittest.TestCase):

    # A warning is logged once in a process.
    @mock.patch.dict(versionutils._deprecated_messages_sent, clear=True)
    def test_old_names_set_the_new_options_with_a_warning(self):
        renamed = status.deprecated_names()
        self.assertEqual(renamed.keys(), OLD.keys())
        for (group, name), (text, value) in OLD.items():
            with self.subTest(name), \
                    tempfile.NamedTemporaryFile('w', suffix='.conf') as file:
                file.write(f'[{group}]\n{name} = {text}\n')
                file.flush()
                conf = cfg.ConfigOpts()
                for where, several in options.list_opts():
                    conf.register_opts(several, group=where)
                conf(['--config-file', file.name])
                new = renamed[group, name].rpartition(' ')[2]
                with self.assertLogs('oslo_config.cfg', 'WARNING') as logged:
                    found = conf[group][new]
                self.assertEqual(value, found)
                self.assertIn(f'"{name}"', logged.output[0])
                self.assertIn(f'"{new}"', logged.output[0])
