# SPDX-License-Identifier: Apache-2.0

import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secondary_scheduler.agent import kernel_files
from secondary_scheduler.agent.sensors import interference
from tests.unit.agent.sensors.cases import SensorTestCase, secondary


class PressureTestCase(SensorTestCase):
    """Two services, one primary guest, and one secondary (pid 101)."""

    def setUp(self):
        super().setUp()
        self.scope = self.host.scope('i1', 1)
        threads = self.scope + ('/libvirt' * (self.version == 2))
        names = 'cpu,cpuacct' if self.version == 1 else ''
        self.host.write('proc/101/cgroup', f'{1 - (not names)}:{names}:'
                        f'{threads}/emulator')
        self.primary = self.host.scope('p', 2)
        self.groups = ['/system.slice', '/user.slice', self.primary]
        for group in (*self.groups, self.scope, threads + '/emulator'):
            os.makedirs(self.host.path(self.host.cpu(group)), exist_ok=True)
        self.sensor = self.clocked(self.make(interference.PressureSensor))
        self.sensor._delays._clock = lambda: self.now

    def read(self, seconds=1.0):
        self.now += seconds
        return self.sensor.read([secondary(1), secondary(9)])['pressure']


class StallTest(PressureTestCase):
    """Pressure stall information of groups."""

    version = 2

    def setUp(self):
        super().setUp()
        for group in (*self.groups, self.scope):
            self.stall(group, 0)

    def stall(self, group, seconds):
        self.host.write(self.host.cpu(group) + '/cpu.pressure', (
            'some avg10=99.00 avg60=1.00 avg300=0.00 '
            f'total={int(seconds * 1e6)}\nfull avg10=0.00 avg60=0.00 '
            'avg300=0.00 total=7\n'))

    def test_largest_pressure_on_a_primary_counts(self):
        self.assertIsNone(self.read().total)
        self.stall('/user.slice', 0.02)
        self.stall(self.primary, 0.3)
        self.stall(self.scope, 0.9)
        found = self.read()
        self.assertAlmostEqual(30.0, found.total)
        self.assertEqual({'u1'}, set(found.instances))
        self.assertAlmostEqual(90.0, found.instances['u1'])

    def test_pressure_is_at_most_100_percent(self):
        self.read()
        self.stall('/user.slice', 1.001)
        self.assertEqual(100.0, self.read().total)

    def test_only_the_primary_groups_count_if_configured(self):
        self.config(primary_groups=['/system.slice/'])
        self.read()
        self.stall(self.primary, 0.3)
        self.stall('/system.slice', 0.1)
        self.assertAlmostEqual(10.0, self.read().total)
        self.config(primary_groups=['system.slice/gone.service'])
        with self.assertRaises(OSError):
            self.read()

    def test_host_without_primary_groups_is_an_error(self):
        for group in self.groups:
            folder = self.host.path(self.host.cpu(group))
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))
            os.rmdir(folder)
        with self.assertRaisesRegex(OSError, 'primary_groups'):
            self.read()

    @given(st.text(alphabet='some full=avg0123 total\n'))
    def test_arbitrary_pressure_file_is_parsed_or_damaged(self, text):
        try:
            self.assertIsInstance(interference.stalled_us(text, 'a'), int)
        except kernel_files.Damaged as exc:
            self.assertIn('a says', str(exc))

    def test_damaged_file_is_unknown_and_reported(self):
        self.read()
        for text in ('some\n', 'some avg10=0.00\n', '', 'some total=x\n',
                     'some total=\n', f'some total={"9" * 5000}\n',
                     'some avg10\n', 'full total=7\n', 'some total=1e3\n'):
            self.host.write(self.host.cpu('/user.slice') + '/cpu.pressure',
                            text)
            found = self.read()
            self.assertIsNone(found.total, text)
            self.assertIn('user.slice/cpu.pressure', found.why)

    def test_damaged_file_of_a_guest_affects_only_this_guest(self):
        self.read()
        self.host.write(self.host.cpu(self.scope) + '/cpu.pressure', 'some')
        found = self.read()
        self.assertEqual((0.0, {}), (found.total, found.instances))


class RunDelayTest(PressureTestCase):
    """Run delays of threads."""

    version = 1
    FILE = 'tasks'

    def setUp(self):
        super().setUp()
        self.put('/system.slice', 1)
        self.put('/system.slice/a.service', 11, 12)
        self.put('/user.slice')
        self.put(self.primary, 21)
        self.put(self.scope, 101)
        for thread in (1, 11, 12, 21, 101):
            self.thread(thread, 0, 0, 1)

    def put(self, group, *threads):
        self.host.write(f'{self.host.cpu(group)}/{self.FILE}',
                        ''.join(f'{one}\n' for one in threads))

    def thread(self, number, run, waited, times, state='S'):
        """Set the seconds that a thread has run and waited."""
        self.host.write(f'proc/{number}/schedstat',
                        f'{int(run * 1e9)} {int(waited * 1e9)} {times}\n')
        self.host.write(f'proc/{number}/stat',
                        f'{number} (a) R b) {state} 1 1')

    def test_largest_run_delay_of_a_thread_counts(self):
        self.assertIsNone(self.read().total)
        self.thread(12, 0.5, 0.25, 9)
        self.thread(21, 0.5, 0.5, 9)
        self.thread(101, 0.1, 0.9, 9)
        found = self.read()
        self.assertAlmostEqual(50.0, found.total)
        self.assertEqual({}, found.instances)
        self.thread(12, 1, 0.3, 20)
        self.thread(21, 1.5, 0.5, 20)
        self.assertAlmostEqual(5.0, self.read().total)
        # All threads sleep.
        self.assertEqual(0.0, self.read().total)

    def test_runnable_thread_that_never_runs_waits_all_the_time(self):
        self.read()
        self.thread(11, 0, 0, 1, state='R')
        self.assertEqual(100.0, self.read().total)

    def test_decreased_counter_belongs_to_another_thread(self):
        self.thread(21, 5, 5, 100)
        self.read()
        self.thread(21, 0, 1, 3)
        self.thread(11, 0.1, 0.1, 5)
        self.assertAlmostEqual(10.0, self.read().total)

    def test_ended_threads_are_dropped_and_new_ones_found(self):
        self.read()
        self.thread(21, 0.5, 0.5, 9)
        self.assertAlmostEqual(50.0, self.read().total)
        os.unlink(self.host.path('proc', '21', 'schedstat'))
        self.put(self.primary, 22)
        self.thread(22, 0, 0, 1)
        self.assertEqual(0.0, self.read().total)
        for _ in range(5):
            self.read()
        self.thread(22, 0.5, 0.75, 9)
        self.assertAlmostEqual(75.0, self.read().total)

    def test_many_threads_are_read_in_turns(self):
        count = 2 * interference._THREADS + 5
        self.put(self.primary, *range(1000, 1000 + count))
        for thread in range(1000, 1000 + count):
            self.thread(thread, 0, 0, 1)
        for _ in range(4):
            self.read()
        last = 999 + count
        self.thread(last, 1.2, 1.5, 9)
        found = [self.read().total for _ in range(3)]
        # It has waited half of the three seconds since its last turn.
        self.assertAlmostEqual(50.0, max(found))

    @settings(max_examples=30, suppress_health_check=[
        HealthCheck.differing_executors])
    @given(st.lists(st.tuples(st.text(alphabet='0123456789 -x\n'), st.text(
        alphabet='RS() 0')), min_size=1, max_size=5))
    def test_arbitrary_files_of_threads_are_tolerated(self, texts):
        for schedstat, stat in texts:
            self.host.write('proc/21/schedstat', schedstat)
            self.host.write('proc/21/stat', stat)
            self.assertTrue(0 <= (self.read().total or 0.0) <= 100)

    def test_missing_group_is_an_error(self):
        self.config(primary_groups=['system.slice', 'gone'])
        with self.assertRaises(OSError):
            self.read()


class RunDelayV2Test(RunDelayTest):
    """Version 2 of control groups, on a kernel started with psi=0."""

    version = 2
    FILE = 'cgroup.threads'


class StealTest(SensorTestCase):
    def setUp(self):
        super().setUp()
        self.sensor = self.make(interference.StealSensor)

    def read(self, *times):
        self.host.write('proc/stat', 'cpu  ' + ' '.join(map(str, times))
                        + ' 5000 0\ncpu0 1 2 3 4 5 6 7 8\n')
        return self.sensor.read(())['steal']

    def test_steal_is_in_percent_of_all_cpu_time(self):
        self.assertIsNone(self.read(10, 0, 5, 100, 0, 0, 0, 7).total)
        found = self.read(70, 0, 15, 120, 0, 0, 0, 17)
        self.assertAlmostEqual(10.0, found.total)
        self.assertEqual(0.0, self.read(70, 0, 15, 220, 0, 0, 0, 17).total)

    @settings(max_examples=30)
    @given(st.lists(st.text(alphabet='cpu 0123456789-.\n'), min_size=1))
    def test_arbitrary_stat_file_is_tolerated(self, texts):
        for text in texts:
            self.host.write('proc/stat', text)
            found = self.sensor.read(())['steal'].total
            self.assertTrue(found is None or 0 <= found <= 100, found)

    def test_impossible_times_are_unknown(self):
        self.read(10, 0, 5, 100, 0, 0, 0, 7)
        for times in ((10, 0, 5, 100, 0, 0, 0, 7),      # stuck
                      (90, 0, 5, 100, 0, 0, 0, 6),      # backwards
                      (10, 0, 5, 100, 0, 0, 0, 0)):
            found = self.read(*times)
            self.assertIsNone(found.total)
            self.assertIn('/proc/stat', found.why)

    def test_damaged_line_is_unknown_and_reported(self):
        self.read(10, 0, 5, 100, 0, 0, 0, 7)
        for text in ('cpu  1 2 3 4\n', 'cpu\n', '', 'cpu  1 2 3 4 5 6 7 x\n',
                     'cpu0 1 2 3 4 5 6 7 8\n', 'cpu  1 2 3 4 5 6 7 -8\n'):
            self.host.write('proc/stat', text)
            found = self.sensor.read(())['steal']
            self.assertIsNone(found.total, text)
            self.assertIn('/proc/stat says', found.why)


class ResctrlTest(SensorTestCase):
    def setUp(self):
        super().setUp()
        self.host.write('cache/size', '1024K\n')
        self.config(memory_bandwidth=100)
        self.sensor = self.clocked(self.make(
            interference.ResctrlSensor, 'resctrl', 'cache'))
        for name in ('', 'primary', 'mon_groups/secondaries'):
            self.use(name, 0, 0)
        self.host.write('resctrl/info/L3_MON/num_rmids', '9')

    def use(self, group, moved, held, domains=('00', '01')):
        for domain in domains:
            folder = f'resctrl/{group}/mon_data/mon_L3_{domain}'
            self.host.write(folder + '/mbm_total_bytes', f'{moved}\n')
            self.host.write(folder + '/llc_occupancy', f'{held}\n')

    def read(self):
        self.now += 1.0
        return self.sensor.read(())

    def test_kaf_4_whole_machine_is_measured_by_default(self):
        self.assertIsNone(self.read()['membw'].total)
        self.use('', 10 << 20, 256 << 10)
        self.use('primary', 5 << 20, 512 << 10)
        # The group above includes it.
        self.use('mon_groups/secondaries', 9 << 20, 1 << 20)
        found = self.read()
        self.assertAlmostEqual(30.0, found['membw'].total)
        self.assertAlmostEqual(75.0, found['llc'].total)

    def test_only_the_resctrl_groups_count_if_configured(self):
        self.config(resctrl_groups=['mon_groups/secondaries'])
        self.read()
        self.use('mon_groups/secondaries', 9 << 20, 512 << 10)
        self.use('', 99 << 20, 1 << 20)
        found = self.read()
        self.assertAlmostEqual(18.0, found['membw'].total)
        self.assertAlmostEqual(50.0, found['llc'].total)

    def test_unsupported_resources_are_unknown(self):
        self.config(memory_bandwidth=0)
        self.assertEqual({'llc'}, set(self.read()))
        os.unlink(self.host.path('cache', 'size'))
        self.assertEqual({}, self.read())
        self.host.write('resctrl/mon_data/mon_L3_00/llc_occupancy',
                        'Unavailable\n')
        found = self.read()
        self.assertIsNone(found['llc'].total)
        self.assertIn("llc_occupancy says 'Unavailable'", found['llc'].why)

    def test_machine_without_resctrl_is_an_error(self):
        sensor = self.make(interference.ResctrlSensor, 'nowhere')
        with self.assertRaises(OSError):
            sensor.read(())


del PressureTestCase
