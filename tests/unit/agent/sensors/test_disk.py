# SPDX-License-Identifier: Apache-2.0

import os
import shutil

from secondary_scheduler.agent.sensors import disk
from tests.unit.agent.sensors.cases import SensorTestCase, secondary

MIB = 1 << 20


class DiskSensorTest(SensorTestCase):

    def setUp(self):
        super().setUp()
        os.makedirs(self.host.path('block', 'vda', 'device'))
        os.makedirs(self.host.path('block', 'loop0'))
        self.move(0, 0)
        self.config(disk_read_speed=10, disk_write_speed=20)
        self.sensor = self.clocked(self.make(disk.DiskSensor, 'block'))

    def move(self, read, written, reads=1, writes=1):
        self.host.write(
            'block/vda/stat', f' {reads} 0 {read // 512} 0 {writes} 0 '
            f'{written // 512} 0 0 0 0')
        self.host.write('proc/101/io', f'rchar: 1\nread_bytes: {read // 2}\n'
                        f'write_bytes: {written // 2}\n')

    def read(self):
        self.now += 1.0
        return self.sensor.read([secondary(1), secondary(2)])

    def test_use_is_in_percent_of_the_disks(self):
        self.assertIsNone(self.read()['disk_out'].total)
        self.move(5 * MIB, 5 * MIB)
        found = self.read()
        self.assertAlmostEqual(50.0, found['disk_out'].total)
        self.assertAlmostEqual(25.0, found['disk_in'].total)
        self.assertAlmostEqual(25.0, found['disk_out'].instances['u1'])
        self.assertAlmostEqual(12.5, found['disk_in'].instances['u1'])

    def test_larger_of_bytes_and_operations_counts(self):
        self.config(disk_write_iops=1000)
        self.assertIsNone(self.read()['disk_in'].total)
        self.move(5 * MIB, 5 * MIB, 900, 901)
        found = self.read()
        self.assertAlmostEqual(50.0, found['disk_out'].total)
        self.assertAlmostEqual(90.0, found['disk_in'].total)
        self.move(10 * MIB, 10 * MIB, 1000, 1001)
        self.assertAlmostEqual(25.0, self.read()['disk_in'].total)
        # One decreased counter makes the use unknown.
        self.move(15 * MIB, 15 * MIB, 2000, 5)
        self.assertIsNone(self.read()['disk_in'].total)

    def test_mirror_counts_once(self):
        os.makedirs(self.host.path('block', 'vdb', 'device'))
        self.host.write('block/md0/slaves/vda/stat', '')
        self.host.write('block/md0/slaves/vdb/stat', '')
        self.check_once('md0', 'vda', 'vdb')

    def test_multipath_disk_counts_once(self):
        for name in ('nvme0n1', 'nvme0c0n1'):
            os.makedirs(self.host.path('block', name, 'device'))
        shutil.rmtree(self.host.path('block/vda'))
        self.move = lambda *_: None
        self.check_once('nvme0n1', 'nvme0c0n1')

    def test_paths_count_if_the_multipath_head_does_not(self):
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

    def test_damaged_counter_is_unknown_and_reported(self):
        self.read()
        for text in ('', '1 2 3 4 5 6', '1 2 3 x 5 6 7 8', '-1 ' * 11):
            self.host.write('block/vda/stat', text)
            found = self.read()['disk_out']
            self.assertIsNone(found.total)
            self.assertIn('vda/stat says', found.why)

    def test_capacity_is_the_configured_speed(self):
        found = self.read()
        self.assertEqual((10 * MIB, 20 * MIB), (
            found['disk_out'].capacity, found['disk_in'].capacity))

    def test_use_without_configured_speed_is_unknown(self):
        self.config(disk_write_speed=0)
        self.assertEqual({'disk_out'}, set(self.read()))
