# SPDX-License-Identifier: Apache-2.0

import os

from secondary_scheduler.agent.sensors import memory
from tests.unit.agent.sensors.cases import SensorTestCase, secondary


class MemorySensorTest(SensorTestCase):

    def setUp(self):
        super().setUp()
        self.host.write('proc/meminfo', 'MemTotal: 1000 kB\nMemFree: 5 kB\n'
                        'MemAvailable: 400 kB\nHugePages_Total: 0\n')
        pages = 1000 * 1024 // os.sysconf('SC_PAGE_SIZE') // 10
        self.host.write('proc/101/statm', f'99999 {pages} 1 1 0 1 0')

    def read(self):
        return self.make(memory.MemorySensor).read(
            [secondary(1), secondary(2)])['mem']

    def test_use_is_the_memory_that_is_not_available(self):
        found = self.read()
        self.assertAlmostEqual(60.0, found.total)
        # The second guest ended during the read.
        self.assertEqual({'u1'}, set(found.instances))
        self.assertAlmostEqual(10.0, found.instances['u1'], delta=0.2)
        self.assertAlmostEqual(50.0, found.primary, delta=0.2)

    def group(self, limit, used, cache):
        for name, value in (('limit_in_bytes', limit),
                            ('usage_in_bytes', used),
                            ('stat', f'cache 9\ntotal_inactive_file {cache}')):
            self.host.write(f'cgroup/memory/memory.{name}', str(value))

    def test_use_of_a_container_is_the_charge_of_its_group(self):
        self.group(500 * 1024, 300 * 1024, 50 * 1024)
        found = self.read()
        self.assertAlmostEqual(50.0, found.total)
        self.assertAlmostEqual(20.0, found.instances['u1'], delta=0.4)

    def test_group_without_limit_counts_as_the_machine(self):
        self.group(1 << 62, 300 * 1024, 0)
        self.assertAlmostEqual(60.0, self.read().total)


    def test_damaged_meminfo_is_unknown_and_reported(self):
        for text in ('', 'MemTotal: 1000 kB\n', 'MemTotal: x\n'
                     'MemAvailable: 4 kB\n', 'MemTotal:\n'
                     'MemAvailable: 4 kB\n', 'MemTotal: 0 kB\n'
                     'MemAvailable: 0 kB\n'):
            self.host.write('proc/meminfo', text)
            found = self.read()
            self.assertIsNone(found.total, text)
            self.assertIn('meminfo says', found.why)

    def test_meminfo_that_never_changes_is_stuck(self):
        sensor = self.make(memory.MemorySensor)
        for _ in range(memory._MOST_EQUAL_READS):
            self.assertAlmostEqual(60.0, sensor.read(())['mem'].total)
        with self.assertRaisesRegex(OSError, 'no figure'):
            sensor.read(())
        self.host.write('proc/meminfo', 'MemTotal: 1000 kB\n'
                        'MemAvailable: 300 kB\n')
        self.assertAlmostEqual(70.0, sensor.read(())['mem'].total)


class MemorySensorV2Test(MemorySensorTest):
    version = 2

    def group(self, limit, used, cache):
        self.host.write('cgroup/all/memory.max',
                        'max' if limit > 1 << 60 else str(limit))
        self.host.write('cgroup/all/memory.current', str(used))
        self.host.write('cgroup/all/memory.stat',
                        f'anon 9\ninactive_file {cache}')
