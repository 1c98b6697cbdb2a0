# SPDX-License-Identifier: Apache-2.0

"""Validation of lifecycle:* as nova-api does it."""

import unittest

from nova import exception

from secondary_scheduler.nova import extra_specs


class ExtraSpecsTest(unittest.TestCase):

    def setUp(self):
        self.validators = {v.name: v for v in extra_specs.register()}

    def check(self, name, value):
        self.validators[name].validate(name, value)

    def test_valid_values_are_accepted(self):
        for name, value in (('lifecycle:preemptable', 'true'),
                            ('lifecycle:preempt_policy', 'delete'),
                            ('lifecycle:priority', '10'),
                            ('lifecycle:workload_class', 'web')):
            self.check(name, value)

    def test_invalid_values_are_rejected(self):
        for name, value in (('lifecycle:preemptable', 'perhaps'),
                            ('lifecycle:preempt_policy', 'vaporize'),
                            ('lifecycle:priority', '0'),
                            ('lifecycle:priority', '11'),
                            ('lifecycle:priority', 'high')):
            with self.assertRaises(exception.ValidationError, msg=name):
                self.check(name, value)
