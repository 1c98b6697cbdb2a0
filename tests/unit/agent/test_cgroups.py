# SPDX-License-Identifier: Apache-2.0

import os
import unittest

from secondary_scheduler.agent import cgroups, host_capacity
from tests.unit.agent import fakes


class Reading(unittest.TestCase):
    def test_group_of_a_guest_is_found_in_both_versions(self):
        for version in (1, 2):
            host = fakes.Host(self, version)
            host.guest(0)
            hierarchy = host.hierarchy()
            self.assertEqual(version, hierarchy.version)
            path = hierarchy.directory(1000, 'cpu')
            self.assertTrue(path.endswith('/emulator'), path)
            self.assertTrue(os.path.isdir(path))

    def test_missing_controller_is_an_error(self):
        host = fakes.Host(self)
        host.write('proc/self/mountinfo', 'x')
        with self.assertRaises(cgroups.CgroupError):
            host.hierarchy()

    def test_missing_proc_is_an_error(self):
        with self.assertRaises(cgroups.CgroupError):
            cgroups.Hierarchy('/nonexistent')

    def test_process_in_an_invisible_group_is_an_error(self):
        host = fakes.Host(self)
        hierarchy = host.hierarchy()
        host.write('proc/5/cgroup', '3:cpu:/../../other')
        for pid in (5, 6):
            with self.assertRaises(cgroups.CgroupError):
                hierarchy.directory(pid, 'cpu')

    def test_scope_of_a_guest(self):
        for version in (1, 2):
            host = fakes.Host(self, version)
            host.guest(0)
            path = host.path(host.cpu(host.scope('instance-00000000', 1)))
            self.assertEqual(path, host.hierarchy().scope(1000))
            # A group that a guest shares with others is no scope.
            names = '3:cpu:' if version == 1 else '0::'
            host.write('proc/5/cgroup', f'{names}/system.slice/virtqemud')
            self.assertTrue(host.hierarchy().scope(5).endswith(
                '/system.slice/virtqemud'))

    def test_removed_group_cannot_be_read(self):
        host = fakes.Host(self)
        group = cgroups.Group(host.path('cgroup/cpu/machine'))
        os.rename(group.path, group.path + '.old')
        os.makedirs(group.path)
        host.write('cgroup/cpu/machine/late', '1')
        self.assertFalse(group.has('late'))
        group.close()


class Layouts(unittest.TestCase):
    """Mounts of control groups as real hosts have them."""

    version = 2

    def setUp(self):
        self.host = fakes.Host(self, self.version)
        self.host.guest(0)
        self.all = self.host.path('cgroup/all')

    def mounts(self, *lines):
        with open(self.host.path('proc/self/mountinfo'), 'wb') as file:
            for line in lines:
                file.write(line if isinstance(line, bytes)
                           else line.encode())
                file.write(b'\n')
        return self.host.hierarchy()

    def v2(self, point=None, root='/'):
        return f'30 23 0:26 {root} {point or self.all} rw - cgroup2 cgroup2 rw'

    def found(self, hierarchy):
        return hierarchy.directory(1000, 'cpu')

    def expected(self, point=None):
        return (f'{point or self.all}{self.host.scope("instance-00000000", 1)}'
                '/libvirt/emulator')

    def test_version_2_beside_version_1(self):
        point = self.host.path('v1')
        hierarchy = self.mounts(
            self.v2(), f'31 23 0:27 / {point} rw - cgroup cgroup rw,cpu',
            f'31 23 0:28 / {point} rw - cgroup cgroup rw,devices')
        self.assertEqual(self.expected(), self.found(hierarchy))
        self.assertEqual(2, hierarchy.version_of('cpuacct'))

    def test_version_2_without_controllers_beside_version_1(self):
        self.host.write('cgroup/all/cgroup.controllers', '')
        point = self.host.path('v1')
        hierarchy = self.mounts(
            f'31 23 0:27 / {point} rw - cgroup cgroup rw,cpu,cpuacct',
            self.v2())
        self.host.write('proc/1000/cgroup', '3:cpu,cpuacct:/a/emulator\n'
                        '0::/b')
        self.assertEqual(f'{point}/a/emulator', self.found(hierarchy))

    def test_version_1_in_use_is_preferred(self):
        point = self.host.path('v1')
        self.host.write('v1/a/emulator/cpu.shares', '1024')
        self.host.write('proc/1000/cgroup', '3:cpu,cpuacct:/a/emulator\n'
                        '0::/b')
        hierarchy = self.mounts(
            f'31 23 0:27 / {point} rw - cgroup cgroup rw,cpu,cpuacct',
            self.v2())
        self.assertEqual(1, hierarchy.version)
        self.assertEqual(f'{point}/a/emulator', self.found(hierarchy))

    def test_each_controller_has_its_own_version(self):
        point = self.host.path('v1')
        self.host.write('cgroup/all/cgroup.controllers', 'cpu cpuset')
        self.host.write('v1/memory.limit_in_bytes', str(1 << 20))
        self.host.write('v1/memory.usage_in_bytes', '1000')
        self.host.write('v1/memory.stat', 'total_inactive_file 500')
        hierarchy = self.mounts(
            self.v2(), f'31 23 0:27 / {point} rw - cgroup cgroup rw,memory')
        self.assertEqual((2, 1), (hierarchy.version_of('cpu'),
                                  hierarchy.version_of('memory')))
        self.assertEqual((1 << 20, (1 << 20) - 500),
                         host_capacity.HostMemory(hierarchy).read())

    def test_mount_points_with_blanks_and_other_bytes(self):
        for name in (b'a b', b'a\tb', b'b\xe9', b'a\\b'):
            point = os.fsencode(self.host.root) + b'/' + name
            os.symlink(self.all, point)
            escaped = b''.join(
                b'\\%03o' % byte if byte in b' \t\n\\' else bytes([byte])
                for byte in point)
            hierarchy = self.mounts(
                b'41 23 8:1 / /mnt/\xe9 rw - ext4 /dev/sdb rw',
                b'30 23 0:26 / ' + escaped + b' rw - cgroup2 cgroup2 rw')
            self.assertEqual(self.expected(os.fsdecode(point)),
                             self.found(hierarchy))

    def test_unreadable_mount_is_named(self):
        with self.assertRaisesRegex(cgroups.CgroupError,
                                    '/no such/cgroup.controllers'):
            self.mounts(self.v2('/no\\040such'))

    def test_group_hidden_by_a_bind_mount_is_named(self):
        hierarchy = self.mounts(self.v2(root='/docker/abc'))
        with self.assertRaisesRegex(
                cgroups.CgroupError,
                rf'1000/cgroup: it is in {self.host.slice}/.*shows '
                '/docker/abc only'):
            self.found(hierarchy)

    def test_mount_that_shows_the_group_is_chosen(self):
        part = self.host.path('part')
        os.symlink(self.all, part)
        for lines in ((self.v2(), self.v2(part, '/x')),
                      (self.v2(part, '/x'), self.v2())):
            hierarchy = self.mounts(*lines)
            self.assertEqual(self.expected(), self.found(hierarchy))
            self.assertEqual(self.all, hierarchy.root('cpu'))

    def test_group_name_that_is_no_text(self):
        with open(self.host.path('proc/1000/cgroup'), 'wb') as file:
            file.write(b'0::/b\xe9/emulator\n')
        self.assertEqual(os.fsencode(self.all) + b'/b\xe9/emulator',
                         os.fsencode(self.found(self.mounts(self.v2()))))
