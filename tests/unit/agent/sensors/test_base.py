import math
import os
import shutil
import threading
import unittest

from oslo_config import cfg, fixture

from secondary_scheduler.agent import cgroups
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.sensors import base, cpu, interference, probes
from secondary_scheduler.conf import agent as agent_conf
from tests.unit.agent import fakes

MIB = 1 << 20


def secondary(number, taps=()):
    return Secondary(f'u{number}', f'i{number}', 5, 1, number, 100 + number,
                     7, taps=taps)


class Case(unittest.TestCase):
    version = 1

    def setUp(self):
        self.host = fakes.Host(self, self.version)
        self.fixture = fixture.Config(cfg.ConfigOpts())
        self.fixture.setUp()
        self.addCleanup(self.fixture.cleanUp)
        agent_conf.register_opts(self.fixture.conf)
        self.fixture.conf([])
        self.now = 0.0

    def config(self, **options):
        self.fixture.config(group='secondary_agent', **options)

    def make(self, driver, *root):
        return driver(self.fixture.conf, cgroups.Hierarchy(self.host.proc),
                      *(self.host.path(one) for one in root))

    def clocked(self, sensor):
        sensor._rates = cpu.Rates(lambda: self.now)
        return sensor


class TestMemory(Case):

    def setUp(self):
        super().setUp()
        self.host.write('proc/meminfo', 'MemTotal: 1000 kB\nMemFree: 5 kB\n'
                        'MemAvailable: 400 kB\nHugePages_Total: 0\n')
        pages = 1000 * 1024 // os.sysconf('SC_PAGE_SIZE') // 10
        self.host.write('proc/101/statm', f'99999 {pages} 1 1 0 1 0')

    def read(self):
        return self.make(base.Memory).read(
            [secondary(1), secondary(2)])['mem']

    def test_what_is_not_available(self):
        found = self.read()
        self.assertAlmostEqual(60.0, found.total)
        # The second one has ended while it was looked at.
        self.assertEqual({'u1'}, set(found.instances))
        self.assertAlmostEqual(10.0, found.instances['u1'], delta=0.2)
        self.assertAlmostEqual(50.0, found.primary, delta=0.2)

    def group(self, limit, used, cache):
        for name, value in (('limit_in_bytes', limit),
                            ('usage_in_bytes', used),
                            ('stat', f'cache 9\ntotal_inactive_file {cache}')):
            self.host.write(f'cgroup/memory/memory.{name}', str(value))

    def test_a_host_that_is_a_part_of_the_machine(self):
        self.group(500 * 1024, 300 * 1024, 50 * 1024)
        found = self.read()
        self.assertAlmostEqual(50.0, found.total)
        self.assertAlmostEqual(20.0, found.instances['u1'], delta=0.4)

    def test_a_group_without_a_limit_is_the_machine(self):
        self.group(1 << 62, 300 * 1024, 0)
        self.assertAlmostEqual(60.0, self.read().total)


    def test_damaged_figures_are_unknown_and_named(self):
        for text in ('', 'MemTotal: 1000 kB\n', 'MemTotal: x\n'
                     'MemAvailable: 4 kB\n', 'MemTotal:\n'
                     'MemAvailable: 4 kB\n', 'MemTotal: 0 kB\n'
                     'MemAvailable: 0 kB\n'):
            self.host.write('proc/meminfo', text)
            found = self.read()
            self.assertIsNone(found.total, text)
            self.assertIn('meminfo says', found.why)

    def test_figures_that_never_change_are_stuck(self):
        sensor = self.make(base.Memory)
        for _ in range(base._MEMORY_READS):
            self.assertAlmostEqual(60.0, sensor.read(())['mem'].total)
        with self.assertRaisesRegex(OSError, 'no figure'):
            sensor.read(())
        self.host.write('proc/meminfo', 'MemTotal: 1000 kB\n'
                        'MemAvailable: 300 kB\n')
        self.assertAlmostEqual(70.0, sensor.read(())['mem'].total)


class TestMemory2(TestMemory):
    version = 2

    def group(self, limit, used, cache):
        self.host.write('cgroup/all/memory.max',
                        'max' if limit > 1 << 60 else str(limit))
        self.host.write('cgroup/all/memory.current', str(used))
        self.host.write('cgroup/all/memory.stat',
                        f'anon 9\ninactive_file {cache}')


class TestNetwork(Case):

    def setUp(self):
        super().setUp()
        os.makedirs(self.host.path('net', 'eth0', 'device'))
        self.counters('eth0', 0, 0)
        self.counters('tap1', 0, 0)
        self.host.write('net/eth0/speed', '100')
        self.sensor = self.clocked(self.make(base.Network, 'net'))
        self.guests = [secondary(1, ('tap1',)), secondary(2)]

    def counters(self, port, received, sent):
        self.host.write(f'net/{port}/statistics/rx_bytes', str(received))
        self.host.write(f'net/{port}/statistics/tx_bytes', str(sent))

    def read(self, seconds=1.0):
        self.now += seconds
        return self.sensor.read(self.guests)

    def test_rates_in_percent_of_the_link(self):
        self.assertIsNone(self.read()['net_in'].total)
        self.counters('eth0', 5_000_000, 2_500_000)
        # What the host receives from a tap, its guest has sent.
        self.counters('tap1', 1_250_000, 2_500_000)
        found = self.read(2.0)
        self.assertAlmostEqual(20.0, found['net_in'].total)
        self.assertAlmostEqual(10.0, found['net_out'].total)
        self.assertEqual(12.5e6, found['net_out'].capacity)
        self.assertAlmostEqual(10.0, found['net_in'].instances['u1'])
        self.assertAlmostEqual(5.0, found['net_out'].instances['u1'])
        self.assertEqual({'u1'}, set(found['net_in'].instances))

    def test_a_counter_that_is_set_back_is_unknown(self):
        self.counters('eth0', 5000, 5000)
        self.read()
        self.counters('eth0', 10, 6000)
        found = self.read()
        self.assertIsNone(found['net_in'].total)
        self.assertIsNotNone(found['net_out'].total)

    def test_a_port_that_its_owner_took_away_is_that_guests_matter(self):
        self.guests.append(secondary(3, ('tap1',)))
        self.guests[0] = secondary(1, ('tap1', 'gone'))
        self.read()
        found = self.read()
        self.assertEqual(0.0, found['net_in'].total)
        self.assertEqual({'u3': 0.0}, found['net_in'].instances)

    def test_another_process_counts_from_zero(self):
        self.counters('tap1', 5000, 5000)
        self.read()
        self.counters('tap1', 9000, 9000)
        self.guests = [Secondary('u1', 'i1', 5, 1, 1, 555, 8,
                                 taps=('tap1',))]
        self.assertEqual({}, self.read()['net_in'].instances)

    def test_the_operator_knows_better(self):
        self.config(link_speed=1000)
        self.host.write('net/eth0/speed', '-1')
        self.read()
        self.counters('eth0', 12_500_000, 0)
        self.assertAlmostEqual(10.0, self.read()['net_in'].total)

    def test_a_speed_that_nobody_knows(self):
        self.host.write('net/eth0/speed', '-1')
        with self.assertRaisesRegex(OSError, 'link_speed'):
            self.read()

    def test_a_card_with_virtual_functions_is_as_fast_as_its_port(self):
        for n in range(16):
            self.host.write(f'net/eth0v{n}/device/physfn', '')
            self.host.write(f'net/eth0v{n}/speed', '100')
            self.counters(f'eth0v{n}', 0, 0)
        self.read()
        self.counters('eth0', 11_250_000, 0)
        found = self.read()['net_in']
        self.assertAlmostEqual(90.0, found.total)
        self.assertEqual(12.5e6, found.capacity)

    def test_a_damaged_counter_is_unknown_and_named(self):
        self.read()
        for text in ('', 'x', '-1', '9' * 5000):
            self.host.write('net/eth0/statistics/rx_bytes', text)
            found = self.read()['net_in']
            self.assertIsNone(found.total)
            self.assertIn('eth0/statistics/rx_bytes says', found.why)

    def test_a_damaged_counter_of_a_secondary_is_its_own_matter(self):
        self.read()
        self.host.write('net/tap1/statistics/rx_bytes', 'x')
        found = self.read()
        self.assertEqual(0.0, found['net_out'].total)
        self.assertEqual({}, found['net_out'].instances)


class TestDisk(Case):

    def setUp(self):
        super().setUp()
        os.makedirs(self.host.path('block', 'vda', 'device'))
        os.makedirs(self.host.path('block', 'loop0'))
        self.move(0, 0)
        self.config(disk_read_speed=10, disk_write_speed=20)
        self.sensor = self.clocked(self.make(base.DiskSensor, 'block'))

    def move(self, read, written, reads=1, writes=1):
        self.host.write(
            'block/vda/stat', f' {reads} 0 {read // 512} 0 {writes} 0 '
            f'{written // 512} 0 0 0 0')
        self.host.write('proc/101/io', f'rchar: 1\nread_bytes: {read // 2}\n'
                        f'write_bytes: {written // 2}\n')

    def read(self):
        self.now += 1.0
        return self.sensor.read([secondary(1), secondary(2)])

    def test_rates_in_percent_of_the_disk(self):
        self.assertIsNone(self.read()['disk_out'].total)
        self.move(5 * MIB, 5 * MIB)
        found = self.read()
        self.assertAlmostEqual(50.0, found['disk_out'].total)
        self.assertAlmostEqual(25.0, found['disk_in'].total)
        self.assertAlmostEqual(25.0, found['disk_out'].instances['u1'])
        self.assertAlmostEqual(12.5, found['disk_in'].instances['u1'])

    def test_operations_where_these_are_more(self):
        self.config(disk_write_iops=1000)
        self.assertIsNone(self.read()['disk_in'].total)
        self.move(5 * MIB, 5 * MIB, 900, 901)
        found = self.read()
        self.assertAlmostEqual(50.0, found['disk_out'].total)
        self.assertAlmostEqual(90.0, found['disk_in'].total)
        self.move(10 * MIB, 10 * MIB, 1000, 1001)
        self.assertAlmostEqual(25.0, self.read()['disk_in'].total)
        # One counter that goes back is one too many.
        self.move(15 * MIB, 15 * MIB, 2000, 5)
        self.assertIsNone(self.read()['disk_in'].total)

    def test_a_mirror_counts_once(self):
        os.makedirs(self.host.path('block', 'vdb', 'device'))
        self.host.write('block/md0/slaves/vda/stat', '')
        self.host.write('block/md0/slaves/vdb/stat', '')
        self.check_once('md0', 'vda', 'vdb')

    def test_multipath_counts_once(self):
        for name in ('nvme0n1', 'nvme0c0n1'):
            os.makedirs(self.host.path('block', name, 'device'))
        shutil.rmtree(self.host.path('block/vda'))
        self.move = lambda *_: None
        self.check_once('nvme0n1', 'nvme0c0n1')

    def test_the_head_of_an_older_multipath_stands_still(self):
        for name in ('nvme0n1', 'nvme0c0n1'):
            os.makedirs(self.host.path('block', name, 'device'))
        shutil.rmtree(self.host.path('block/vda'))
        self.host.write('block/nvme0n1/stat', '0 ' * 11)
        self.check_once('nvme0c0n1')

    def check_once(self, *names):
        for mib in (0, 8):
            for name in names:
                self.host.write(f'block/{name}/stat',
                                f'5 0 0 1 5 0 {mib << 11} 1 0 1 2\n')
            found = self.read()
        self.assertAlmostEqual(40.0, found['disk_in'].total)

    def test_a_damaged_counter_is_unknown_and_named(self):
        self.read()
        for text in ('', '1 2 3 4 5 6', '1 2 3 x 5 6 7 8', '-1 ' * 11):
            self.host.write('block/vda/stat', text)
            found = self.read()['disk_out']
            self.assertIsNone(found.total)
            self.assertIn('vda/stat says', found.why)

    def test_what_the_whole_is(self):
        found = self.read()
        self.assertEqual((10 * MIB, 20 * MIB), (
            found['disk_out'].capacity, found['disk_in'].capacity))

    def test_without_a_speed_nothing_is_known(self):
        self.config(disk_write_speed=0)
        self.assertEqual({'disk_out'}, set(self.read()))


class Fake(base.Sensor):
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


class TestGauges(unittest.TestCase):

    def setUp(self):
        self.now, self.wanted = 0.0, {'mem'}

    def gauges(self, *values):
        return base.Gauges({'one': Fake(*values)}, lambda: self.wanted,
                           lambda: (), lambda: self.now)

    def reading(self, total, **instances):
        return {'mem': cpu.Reading(total, instances)}

    def test_the_last_and_the_mean(self):
        gauges = self.gauges(self.reading(50.0, a=10.0, b=4.0),
                             self.reading(70.0, a=20.0))
        gauges.measure('one')
        self.now = 1.0
        gauges.measure('one')
        self.assertEqual(70.0, gauges.total('mem'))
        primary, instances = gauges.recent()
        self.assertEqual({'mem': 43.0}, primary)
        self.assertEqual({'a': {'mem': 15.0}, 'b': {'mem': 4.0}}, instances)
        self.assertIsNone(gauges.total('net_in'))

    def test_what_100_percent_are(self):
        for resource, said, known in (
                ('net_in', 125e6, {'net_in': 125.0}), ('net_in', None, {}),
                ('net_in', -1.0, {}), ('net_in', math.inf, {}),
                ('net_in', math.nan, {}), ('pressure', 125e6, {})):
            self.wanted = {resource}
            sensor = Fake({resource: cpu.Reading(5.0, {}, said)})
            sensor.resources = (resource,)
            gauges = base.Gauges(
                {'one': sensor}, lambda: self.wanted, lambda: (),
                lambda: self.now)
            gauges.measure('one')
            self.assertEqual(known, gauges.capacities())

    def test_what_has_not_been_said_lately_is_unknown(self):
        gauges = self.gauges(self.reading(50.0))
        gauges.measure('one')
        self.now = 2.9
        self.assertEqual(50.0, gauges.total('mem'))
        self.now = 3.1
        self.assertIsNone(gauges.total('mem'))
        self.now = 5.1
        self.assertEqual(({}, {}), gauges.recent())

    def test_what_no_sensor_can_have_measured(self):
        for value in (math.nan, math.inf, -1.0, None):
            gauges = self.gauges(self.reading(value, a=math.nan, b=1.0))
            gauges.measure('one')
            self.assertIsNone(gauges.total('mem'))
            self.assertEqual(({}, {'b': {'mem': 1.0}}), gauges.recent())

    def test_a_sensor_that_fails_says_why_once(self):
        gauges = self.gauges(OSError('no such file'), OSError('no such file'),
                             {}, self.reading(1.0))
        with self.assertLogs('secondary_scheduler.agent') as logs:
            gauges.measure('one')
            gauges.measure('one')
        self.assertEqual(1, len(logs.output))
        self.assertEqual({'one': 'no such file'}, gauges.problems)
        gauges.measure('one')
        self.assertIn('mem cannot be measured', gauges.problems['one'])
        gauges.measure('one')
        self.assertEqual({}, gauges.problems)

    def test_what_nobody_measures_says_so_once(self):
        gauges = self.gauges()
        self.wanted = {'membw', 'probe:p99'}
        with self.assertLogs('secondary_scheduler.agent') as logs:
            for _ in range(2):
                self.assertIsNone(gauges.total('membw'))
                self.assertIsNone(gauges.total('probe:p99'))
        self.assertEqual(2, len(logs.output))
        self.assertIn('sensors measures', gauges.problems['membw'])
        self.assertIn('no such probe', gauges.problems['probe:p99'])
        self.wanted = {'mem'}
        self.assertEqual({}, gauges.problems)

    def test_a_sensor_says_of_each_resource_why(self):
        self.wanted = {'mem', 'pressure'}
        gauges = self.gauges(
            {**self.reading(50.0),
             'pressure': cpu.Reading(None, why='it hangs')},
            {**self.reading(math.nan), 'pressure': cpu.Reading(3.0)})
        gauges.measure('one')
        self.assertEqual({'one': 'pressure: it hangs'}, gauges.problems)
        self.assertEqual((50.0, None), (gauges.total('mem'),
                                        gauges.total('pressure')))
        gauges.measure('one')
        self.assertEqual({'one': 'mem: nan is nothing that it can be'},
                         gauges.problems)
        self.assertEqual((None, 3.0), (gauges.total('mem'),
                                       gauges.total('pressure')))

    def test_a_signal_is_no_use_of_the_primarys(self):
        self.wanted = {'mem', 'pressure'}
        gauges = self.gauges({
            **self.reading(50.0), 'pressure': cpu.Reading(
                30.0, {'a': 80.0})})
        gauges.measure('one')
        self.assertEqual(({'mem': 50.0}, {'a': {'pressure': 80.0}}),
                         gauges.recent())

    def test_one_that_costs_too_much_is_read_half_as_often(self):
        gauges = self.gauges(*[self.reading(float(n)) for n in range(99)])
        sensor, cost = gauges.sensors['one'], gauges.costs['one']
        self.assertEqual((0.0, False), (cost.percent, cost.over))
        sensor.costs = 0.011    # 1.1 % of one CPU at one read a second
        with self.assertLogs('secondary_scheduler.agent') as logs:
            for self.now in range(40):
                gauges.measure('one')
                # What was read is never so old that it is unknown.
                self.now += 0.9
                self.assertIsNotNone(gauges.total('mem'))
        self.assertEqual(1, len(logs.output))
        self.assertIn('half as often', logs.output[0])
        self.assertEqual(30, 99 - len(sensor.values))
        self.assertTrue(cost.over)
        self.assertAlmostEqual(0.55, cost.percent)
        sensor.costs = 0.009
        for self.now in range(40, 80):
            gauges.measure('one')
        self.assertTrue(cost.over)      # it has not come down far enough
        sensor.costs = 0.005
        with self.assertLogs('secondary_scheduler.agent') as logs:
            for self.now in range(80, 120):
                gauges.measure('one')
        self.assertIn('every period again', logs.output[0])
        self.assertFalse(cost.over)

    def test_nobody_reads_what_nobody_asks_about(self):
        self.wanted = {'cpu', 'net_in'}
        gauges = self.gauges(AssertionError('was read'))
        gauges.measure('one')
        self.assertEqual({}, gauges.problems)

    def test_one_that_hangs_is_unknown_and_holds_up_nobody(self):
        class Hangs(Fake):
            def read(self, guests):
                begun.set()
                end.wait(10)
                return {}

        begun, end = threading.Event(), threading.Event()
        gauges = base.Gauges({'one': Hangs()}, lambda: {'mem'},
                             lambda: ())
        thread = threading.Thread(target=gauges.measure, args=('one',))
        thread.start()
        begun.wait(10)
        self.assertIsNone(gauges.total('mem'))
        self.assertEqual(({}, {}), gauges.recent())
        end.set()
        thread.join(10)


class TestLoad(Case):

    def test_the_built_in_ones(self):
        found = base.load(self.fixture.conf,
                          cgroups.Hierarchy(self.host.proc))
        self.assertEqual(
            {'memory': base.Memory, 'network': base.Network,
             'disk': base.DiskSensor, 'pressure': interference.Pressure,
             'steal': interference.Steal, 'resctrl': interference.Resctrl,
             'probe': probes.Probe},
            {name: type(sensor) for name, sensor in found.items()})

    def test_one_that_is_not_there(self):
        self.config(sensors=['memory', 'moon'])
        with self.assertRaisesRegex(ValueError, 'sensors = moon'):
            base.load(self.fixture.conf,
                      cgroups.Hierarchy(self.host.proc))
