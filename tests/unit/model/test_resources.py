# SPDX-License-Identifier: Apache-2.0

"""The table of resources, and the sets that are derived from it."""

import dataclasses
import unittest

from secondary_scheduler.agent import device_limits
from secondary_scheduler.model import resources, units
from secondary_scheduler.policies import language
from tests.unit import test_packaging


class TestTable(unittest.TestCase):

    def test_names_are_unique(self):
        self.assertEqual(len(resources.TABLE), len(resources.BY_NAME))

    def test_each_example_is_a_policy_on_its_resource(self):
        for one in resources.TABLE:
            if one.example:
                with self.subTest(one.name):
                    policy = language.parse(one.example)
                    self.assertEqual(one.name,
                                     language.kind_of(policy.resource))
                    self.assertEqual(one.static, policy.static)

    def test_static_resources_have_a_unit_and_no_sensor(self):
        for one in resources.TABLE:
            if one.static:
                with self.subTest(one.name):
                    self.assertTrue(one.unit)
                    self.assertIsNone(one.sensor)
                    self.assertFalse(one.throttleable)

    def test_derived_sets_have_the_right_resources(self):
        for found, members, others in (
                (resources.STATIC, ('slots', 'cores', 'memory'), ('mem',)),
                (resources.UNTHROTTLED, ('mem', 'pressure', 'memory'),
                 ('cpu', *resources.RATES)),
                (resources.RATES, ('net_in', 'net_out', 'disk_in',
                                   'disk_out'), ('cpu', 'mem')),
                (units.UNITS, ('cpu', 'mem', 'net_in'), ('cores', 'llc')),
                (language.USED, ('cpu', 'mem', 'slots'), ('pressure',)),
                (language.SIGNALS, ('pressure', 'steal', 'probe'), ('cpu',)),
                (language.MODELLED, ('cpu', 'pressure'), ('steal', 'memory')),
                (language.COUNTED, ('slots',), ('cores',))):
            self.assertLessEqual(set(members), set(found))
            self.assertTrue(set(others).isdisjoint(found))


class TestUsers(unittest.TestCase):

    def test_every_rate_has_a_limit_of_devices(self):
        fields = {one.name for one in dataclasses.fields(
            device_limits.IoLimits)}
        self.assertLessEqual(set(resources.RATES), fields)

    def test_sensors_measure_their_resources(self):
        points = test_packaging.entry_points()['secondary_scheduler.sensors']
        self.assertEqual(set(points), set(resources.SENSORS))
        for name, target in points.items():
            with self.subTest(name):
                sensor = test_packaging.load(target)
                self.assertEqual(getattr(sensor, 'resources', ('probe',)),
                                 resources.SENSORS[name])
