# SPDX-License-Identifier: Apache-2.0

"""The Ansible role agrees with the documentation and with our files."""

import pathlib
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROLE = ROOT / 'ansible/roles/secondary_scheduler'


class RoleTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.values = yaml.safe_load((ROLE / 'vars/main.yml').read_text())

    def test_rights_on_the_broker_are_the_documented_ones(self):
        manual = (ROOT / 'doc/source/install/manual.rst').read_text()
        rights = self.values['secondary_scheduler_agent_rights']
        topics = self.values['secondary_scheduler_agent_topic_rights']
        for pattern in (*rights.values(), topics['write'], topics['read']):
            with self.subTest(pattern=pattern):
                self.assertIn(pattern.replace(
                    '{{ secondary_scheduler_host_pattern }}', 'HOST'), manual)

    def test_rules_of_placement_are_those_of_our_file(self):
        rules = yaml.safe_load(
            (ROOT / 'etc/placement/policy.yaml').read_text())
        self.assertEqual(list(rules),
                         self.values['secondary_scheduler_placement_rules'])

    def test_no_variable_is_both_default_and_derived(self):
        defaults = yaml.safe_load((ROLE / 'defaults/main.yml').read_text())
        self.assertFalse(set(defaults) & set(self.values))
        for name in (*defaults, *self.values):
            self.assertTrue(name.startswith('secondary_scheduler_'), name)
