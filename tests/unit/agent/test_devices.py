# SPDX-License-Identifier: Apache-2.0

import os
import shutil
import tempfile
import unittest

from secondary_scheduler.agent import devices


class Base(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def write(self, path, text=''):
        path = self.path(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as file:
            file.write(text)

    def link(self, path, target):
        path = self.path(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)


class Disks(Base):
    def disk(self, name, *partitions, hardware=True):
        self.write(f'{name}/stat')
        if hardware:
            os.makedirs(self.path(name, 'device'))
        for one in partitions:
            self.write(f'{name}/{one}/stat')

    def made(self, name, *parts):
        """Make a virtual disk of disks or partitions."""
        self.disk(name, hardware=False)
        for part in parts:
            path = next((one for one in (
                self.path(disk, part) for disk in os.listdir(self.root))
                if os.path.isdir(one)), self.path(part))
            self.link(f'{name}/slaves/{part}', path)
            self.link(f'{path}/holders/{name}', self.path(name))

    def found(self, *named):
        return [one.name for one in devices.disks(self.root, named)]

    def test_disks_in_memory_do_not_count(self):
        self.disk('sda', 'sda1', 'sda2')
        self.disk('loop0', hardware=False)
        self.disk('zram0', hardware=False)
        self.assertEqual(['sda'], self.found())

    def test_raid_replaces_its_members(self):
        for name in ('sda', 'sdb', 'sdc'):
            self.disk(name)
        self.made('md0', 'sda', 'sdb')
        self.assertEqual(['md0', 'sdc'], self.found())

    def test_only_the_topmost_layer_counts(self):
        self.disk('sda')
        self.disk('sdb')
        self.made('md0', 'sda', 'sdb')
        self.made('dm-0', 'md0')        # encrypted
        self.made('dm-1', 'dm-0')       # two volumes
        self.made('dm-2', 'dm-0')
        self.assertEqual(['dm-1', 'dm-2'], self.found())

    def test_remaining_partitions_count(self):
        self.disk('sda', 'sda1', 'sda2', 'sda3')
        self.made('dm-0', 'sda2')
        self.assertEqual(['dm-0', 'sda1', 'sda3'], self.found())
        self.assertIn('/sda/sda1/stat', devices.disks(self.root)[1]
                      .counters[0][0])

    def test_links_in_one_direction_suffice(self):
        self.disk('sda')
        self.disk('sdb')
        self.disk('md0', hardware=False)
        self.write('md0/slaves/sda/stat')
        self.write('sdb/holders/md0/stat')
        self.assertEqual(['md0'], self.found())

    def test_multipath_head_and_paths_are_one_disk(self):
        for name in ('nvme0n1', 'nvme0c0n1', 'nvme0c1n1', 'nvme1n1'):
            self.disk(name)
        first, second = devices.disks(self.root)
        self.assertEqual(('nvme0n1', 'nvme1n1'), (first.name, second.name))
        self.assertEqual([1, 2], [len(one) for one in first.counters])
        self.assertEqual([1], [len(one) for one in second.counters])

    def test_multipath_paths_without_a_head(self):
        self.disk('nvme0c0n1')
        one, = devices.disks(self.root)
        self.assertEqual((1, 1), (len(one.counters), len(one.counters[0])))

    def test_volumes_on_a_multipath_disk(self):
        self.disk('nvme0n1')
        self.disk('nvme0c0n1')
        self.made('dm-0', 'nvme0n1')
        self.assertEqual(['dm-0'], self.found())

    def test_named_devices_count_once(self):
        self.disk('sda', 'sda1')
        self.disk('nvme0n1')
        self.disk('nvme0c0n1')
        self.made('dm-0', 'sda')
        self.made('dm-1', 'dm-0')
        self.assertEqual(['dm-1'], self.found('sda', 'dm-1', 'sda'))
        self.assertEqual(['sda'], self.found('sda'))
        self.assertEqual(['nvme0n1'], self.found('nvme0c0n1', 'nvme0n1'))
        self.assertEqual(['gone'], self.found('gone'))

    def test_circular_layers_terminate(self):
        self.disk('sda')
        self.write('md0/slaves/md1/stat')
        self.write('md1/slaves/md0/stat')
        self.assertEqual(['sda'], self.found())


class Ports(Base):
    def port(self, name, speed='10000', **files):
        os.makedirs(self.path(name, 'device'))
        self.write(f'{name}/speed', speed)
        for path, text in files.items():
            self.write(f'{name}/' + path.replace('__', '/'), text)

    def found(self, *named):
        return devices.ports(self.root, named)

    def test_only_physical_functions_count(self):
        self.port('eno1')
        self.port('eno1v0', device__physfn='')
        self.port('eno1s4', device__sfnum='4')
        self.port('eth3', phys_port_name='pf0vf3\n')
        self.port('eth4', phys_port_name='c1pf0sf2\n')
        self.port('eth5', phys_port_name='p1\n')
        self.write('tap1/speed', '10')
        self.assertEqual(['eno1', 'eth5'], self.found())

    def test_usb_ports_do_not_count(self):
        self.port('eno1')
        for name in ('usb0', 'enp0s20f0u7u2c2'):
            self.port(name)
        self.port('idrac')
        self.link('idrac/device/subsystem', '/sys/bus/usb')
        self.port('enxaabbccddeeff', device__bInterfaceNumber='00')
        self.write('bmc0/speed', '425')
        os.makedirs(self.path('devices/usb1/1-14:1.0'))
        self.link('bmc0/device', self.path('devices/usb1/1-14:1.0'))
        self.port('enx001122334455')    # named after its address only
        self.assertEqual(['eno1', 'enx001122334455'], self.found())

    def test_bond_replaces_its_ports(self):
        for name in ('eno1', 'eno2', 'eno3'):
            self.port(name)
        self.write('bond0/speed', '10000')      # active-backup
        self.write('bond0/bonding/slaves', 'eno1 eno2\n')
        self.write('br0/speed', '10000')
        for name, master in (('eno1', 'bond0'), ('eno2', 'bond0'),
                             ('eno3', 'br0')):
            self.link(f'{name}/master', self.path(master))
        self.assertEqual(['bond0', 'eno3'], self.found())
        self.assertEqual(['bond0'], self.found('bond0', 'eno1', 'eno2'))
        self.write('bond0/speed', '-1')
        self.assertEqual(['eno1', 'eno2', 'eno3'], self.found())

    def test_named_devices_count_once(self):
        self.port('eno1')
        self.write('eno1.7/lower_eno1')
        self.assertEqual(['eno1.7'], self.found('eno1', 'eno1.7'))
        self.assertEqual(['usb0'], self.found('usb0'))

    def test_unknown_speeds(self):
        for text in ('-1', '4294967295', '65535', '0', '', 'x', '1e9',
                     '9' * 5000):
            self.write('eno1/speed', text)
            self.assertIsNone(devices.speed(self.root, 'eno1'), text)
        self.assertIsNone(devices.speed(self.root, 'gone'))
        self.write('eno1/speed', '400000\n')
        self.assertEqual(400000, devices.speed(self.root, 'eno1'))
