# SPDX-License-Identifier: Apache-2.0

import math
import threading
import unittest

from secondary_scheduler.agent import gauges
from secondary_scheduler.agent.sensors import base


class FakeSensor(base.Sensor):
    """Returns ``values`` in turn; each read costs ``costs`` seconds."""

    resources = ('mem', 'pressure')
    budget = 1.0

    def __init__(self, *values):
        self.values = list(values)
        self.costs, self.cpu = 0.0, 0.0

    def spent(self):
        return self.cpu

    def read(self, guests):
        self.cpu += self.costs
        value = self.values.pop(0)
        if isinstance(value, Exception):
            raise value
        return value


class GaugesTest(unittest.TestCase):

    def setUp(self):
        self.now, self.wanted = 0.0, {'mem'}

    def gauges(self, *values):
        return gauges.Gauges({'one': FakeSensor(*values)}, lambda: self.wanted,
                             lambda: (), lambda: self.now)

    def reading(self, total, **instances):
        return {'mem': base.Reading(total, instances)}

    def test_last_reading_and_mean_are_returned(self):
        read = self.gauges(self.reading(50.0, a=10.0, b=4.0),
                           self.reading(70.0, a=20.0))
        read.measure('one')
        self.now = 1.0
        read.measure('one')
        self.assertEqual(70.0, read.total('mem'))
        primary, instances = read.recent()
        self.assertEqual({'mem': 43.0}, primary)
        self.assertEqual({'a': {'mem': 15.0}, 'b': {'mem': 4.0}}, instances)
        self.assertIsNone(read.total('net_in'))

    def test_valid_capacities_are_returned(self):
        for resource, said, known in (
                ('net_in', 125e6, {'net_in': 125.0}), ('net_in', None, {}),
                ('net_in', -1.0, {}), ('net_in', math.inf, {}),
                ('net_in', math.nan, {}), ('pressure', 125e6, {})):
            self.wanted = {resource}
            sensor = FakeSensor({resource: base.Reading(5.0, {}, said)})
            sensor.resources = (resource,)
            read = gauges.Gauges(
                {'one': sensor}, lambda: self.wanted, lambda: (),
                lambda: self.now)
            read.measure('one')
            self.assertEqual(known, read.capacities())

    def test_reading_expires_after_three_periods(self):
        read = self.gauges(self.reading(50.0))
        read.measure('one')
        self.now = 2.9
        self.assertEqual(50.0, read.total('mem'))
        self.now = 3.1
        self.assertIsNone(read.total('mem'))
        self.now = 5.1
        self.assertEqual(({}, {}), read.recent())

    def test_impossible_values_are_unknown(self):
        for value in (math.nan, math.inf, -1.0, None):
            read = self.gauges(self.reading(value, a=math.nan, b=1.0))
            read.measure('one')
            self.assertIsNone(read.total('mem'))
            self.assertEqual(({}, {'b': {'mem': 1.0}}), read.recent())

    def test_failure_of_a_sensor_is_logged_once(self):
        read = self.gauges(OSError('no such file'), OSError('no such file'),
                           {}, self.reading(1.0))
        with self.assertLogs('secondary_scheduler.agent') as logs:
            read.measure('one')
            read.measure('one')
        self.assertEqual(1, len(logs.output))
        self.assertEqual({'one': 'no such file'}, read.problems)
        read.measure('one')
        self.assertIn('mem cannot be measured', read.problems['one'])
        read.measure('one')
        self.assertEqual({}, read.problems)

    def test_resource_without_sensor_is_logged_once(self):
        read = self.gauges()
        self.wanted = {'membw', 'probe:p99'}
        with self.assertLogs('secondary_scheduler.agent') as logs:
            for _ in range(2):
                self.assertIsNone(read.total('membw'))
                self.assertIsNone(read.total('probe:p99'))
        self.assertEqual(2, len(logs.output))
        self.assertIn('sensors measures', read.problems['membw'])
        self.assertIn('no such probe', read.problems['probe:p99'])
        self.wanted = {'mem'}
        self.assertEqual({}, read.problems)

    def test_problem_names_each_unknown_resource(self):
        self.wanted = {'mem', 'pressure'}
        read = self.gauges(
            {**self.reading(50.0),
             'pressure': base.Reading(None, why='it hangs')},
            {**self.reading(math.nan), 'pressure': base.Reading(3.0)})
        read.measure('one')
        self.assertEqual({'one': 'pressure: it hangs'}, read.problems)
        self.assertEqual((50.0, None), (read.total('mem'),
                                        read.total('pressure')))
        read.measure('one')
        self.assertEqual({'one': 'mem: nan is not a possible value'},
                         read.problems)
        self.assertEqual((None, 3.0), (read.total('mem'),
                                       read.total('pressure')))

    def test_signal_does_not_count_as_use_by_the_primary(self):
        self.wanted = {'mem', 'pressure'}
        read = self.gauges({
            **self.reading(50.0), 'pressure': base.Reading(
                30.0, {'a': 80.0})})
        read.measure('one')
        self.assertEqual(({'mem': 50.0}, {'a': {'pressure': 80.0}}),
                         read.recent())

    def test_sensor_over_its_budget_is_read_half_as_often(self):
        read = self.gauges(*[self.reading(float(n)) for n in range(99)])
        sensor, cost = read.sensors['one'], read.costs['one']
        self.assertEqual((0.0, False), (cost.percent, cost.over))
        sensor.costs = 0.011    # 1.1 % of one CPU at one read a second
        with self.assertLogs('secondary_scheduler.agent') as logs:
            for self.now in range(40):
                read.measure('one')
                # No reading expires before the next one.
                self.now += 0.9
                self.assertIsNotNone(read.total('mem'))
        self.assertEqual(1, len(logs.output))
        self.assertIn('half as often', logs.output[0])
        self.assertEqual(30, 99 - len(sensor.values))
        self.assertTrue(cost.over)
        self.assertAlmostEqual(0.55, cost.percent)
        sensor.costs = 0.009
        for self.now in range(40, 80):
            read.measure('one')
        self.assertTrue(cost.over)      # still above 80 % of the budget
        sensor.costs = 0.005
        with self.assertLogs('secondary_scheduler.agent') as logs:
            for self.now in range(80, 120):
                read.measure('one')
        self.assertIn('every period again', logs.output[0])
        self.assertFalse(cost.over)

    def test_sensor_without_policy_is_not_read(self):
        self.wanted = {'cpu', 'net_in'}
        read = self.gauges(AssertionError('was read'))
        read.measure('one')
        self.assertEqual({}, read.problems)

    def test_hanging_sensor_is_unknown_and_blocks_nothing(self):
        class Hangs(FakeSensor):
            def read(self, guests):
                begun.set()
                end.wait(10)
                return {}

        begun, end = threading.Event(), threading.Event()
        read = gauges.Gauges({'one': Hangs()}, lambda: {'mem'},
                             lambda: ())
        thread = threading.Thread(target=read.measure, args=('one',))
        thread.start()
        begun.wait(10)
        self.assertIsNone(read.total('mem'))
        self.assertEqual(({}, {}), read.recent())
        end.set()
        thread.join(10)
