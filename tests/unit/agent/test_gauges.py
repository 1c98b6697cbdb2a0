import math
import threading
import unittest

from secondary_scheduler.agent import gauges
from secondary_scheduler.agent.sensors import base


class FakeSensor(base.Sensor):
    """Returns ``values`` one after the other, and costs ``costs`` each."""

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

    def test_the_last_and_the_mean(self):
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

    def test_what_100_percent_are(self):
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

    def test_what_has_not_been_said_lately_is_unknown(self):
        read = self.gauges(self.reading(50.0))
        read.measure('one')
        self.now = 2.9
        self.assertEqual(50.0, read.total('mem'))
        self.now = 3.1
        self.assertIsNone(read.total('mem'))
        self.now = 5.1
        self.assertEqual(({}, {}), read.recent())

    def test_what_no_sensor_can_have_measured(self):
        for value in (math.nan, math.inf, -1.0, None):
            read = self.gauges(self.reading(value, a=math.nan, b=1.0))
            read.measure('one')
            self.assertIsNone(read.total('mem'))
            self.assertEqual(({}, {'b': {'mem': 1.0}}), read.recent())

    def test_a_sensor_that_fails_says_why_once(self):
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

    def test_what_nobody_measures_says_so_once(self):
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

    def test_a_sensor_says_of_each_resource_why(self):
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
        self.assertEqual({'one': 'mem: nan is nothing that it can be'},
                         read.problems)
        self.assertEqual((None, 3.0), (read.total('mem'),
                                       read.total('pressure')))

    def test_a_signal_is_no_use_of_the_primarys(self):
        self.wanted = {'mem', 'pressure'}
        read = self.gauges({
            **self.reading(50.0), 'pressure': base.Reading(
                30.0, {'a': 80.0})})
        read.measure('one')
        self.assertEqual(({'mem': 50.0}, {'a': {'pressure': 80.0}}),
                         read.recent())

    def test_one_that_costs_too_much_is_read_half_as_often(self):
        read = self.gauges(*[self.reading(float(n)) for n in range(99)])
        sensor, cost = read.sensors['one'], read.costs['one']
        self.assertEqual((0.0, False), (cost.percent, cost.over))
        sensor.costs = 0.011    # 1.1 % of one CPU at one read a second
        with self.assertLogs('secondary_scheduler.agent') as logs:
            for self.now in range(40):
                read.measure('one')
                # What was read is never so old that it is unknown.
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
        self.assertTrue(cost.over)      # it has not come down far enough
        sensor.costs = 0.005
        with self.assertLogs('secondary_scheduler.agent') as logs:
            for self.now in range(80, 120):
                read.measure('one')
        self.assertIn('every period again', logs.output[0])
        self.assertFalse(cost.over)

    def test_nobody_reads_what_nobody_asks_about(self):
        self.wanted = {'cpu', 'net_in'}
        read = self.gauges(AssertionError('was read'))
        read.measure('one')
        self.assertEqual({}, read.problems)

    def test_one_that_hangs_is_unknown_and_holds_up_nobody(self):
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
