import os
import unittest

from secondary_scheduler.agent import cgroups
from tests.unit.agent import fakes


class Reading(unittest.TestCase):
    def test_both_versions_find_a_guest(self):
        for version in (1, 2):
            host = fakes.Host(self, version)
            host.guest(0)
            hierarchy = host.hierarchy()
            self.assertEqual(version, hierarchy.version)
            path = hierarchy.directory(1000, 'cpu')
            self.assertTrue(path.endswith('/emulator'), path)
            self.assertTrue(os.path.isdir(path))

    def test_no_controller(self):
        host = fakes.Host(self)
        host.write('proc/self/mountinfo', 'x')
        with self.assertRaises(cgroups.CgroupError):
            host.hierarchy()

    def test_no_proc(self):
        with self.assertRaises(cgroups.CgroupError):
            cgroups.Hierarchy('/nonexistent')

    def test_mount_of_a_part_and_escapes(self):
        mount = cgroups.Mount(frozenset({'cpu'}), '/docker/x', '/m', 1)
        self.assertEqual('/m/machine', mount.directory('/docker/x/machine'))
        self.assertEqual('/m', mount.directory('/docker/x'))
        self.assertIsNone(mount.directory('/docker/xy'))
        self.assertIsNone(mount.directory('/../other'))
        self.assertEqual('a b\\x', cgroups._unescape('a\\040b\\134x'))

    def test_a_process_elsewhere(self):
        host = fakes.Host(self)
        hierarchy = host.hierarchy()
        host.write('proc/5/cgroup', '3:cpu:/../../other')
        for pid in (5, 6):
            with self.assertRaises(cgroups.CgroupError):
                hierarchy.directory(pid, 'cpu')

    def test_the_scope_of_a_guest(self):
        for version in (1, 2):
            host = fakes.Host(self, version)
            host.guest(0)
            path = host.path(host.cpu(host.scope('instance-00000000', 1)))
            self.assertEqual(path, host.hierarchy().scope(1000))
            # A guest without groups of its own does not make a scope of
            # what it shares with others.
            names = '3:cpu:' if version == 1 else '0::'
            host.write('proc/5/cgroup', f'{names}/system.slice/virtqemud')
            self.assertTrue(host.hierarchy().scope(5).endswith(
                '/system.slice/virtqemud'))

    def test_a_removed_group_yields_nothing(self):
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

    def test_version_1_that_is_in_use(self):
        point = self.host.path('v1')
        self.host.write('v1/a/emulator/cpu.shares', '1024')
        self.host.write('proc/1000/cgroup', '3:cpu,cpuacct:/a/emulator\n'
                        '0::/b')
        hierarchy = self.mounts(
            f'31 23 0:27 / {point} rw - cgroup cgroup rw,cpu,cpuacct',
            self.v2())
        self.assertEqual(1, hierarchy.version)
        self.assertEqual(f'{point}/a/emulator', self.found(hierarchy))

    def test_each_controller_where_it_is(self):
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
                         cgroups.HostMemory(hierarchy).read())

    def test_blanks_and_bytes_in_mount_points(self):
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

    def test_a_mount_that_cannot_be_read_is_named(self):
        with self.assertRaisesRegex(cgroups.CgroupError,
                                    '/no such/cgroup.controllers'):
            self.mounts(self.v2('/no\\040such'))

    def test_the_path_that_a_bind_mount_does_not_show_is_named(self):
        hierarchy = self.mounts(self.v2(root='/docker/abc'))
        with self.assertRaisesRegex(
                cgroups.CgroupError,
                rf'1000/cgroup: it is in {self.host.slice}/.*shows '
                '/docker/abc only'):
            self.found(hierarchy)

    def test_of_several_mounts_the_one_that_shows_the_group(self):
        part = self.host.path('part')
        os.symlink(self.all, part)
        for lines in ((self.v2(), self.v2(part, '/x')),
                      (self.v2(part, '/x'), self.v2())):
            hierarchy = self.mounts(*lines)
            self.assertEqual(self.expected(), self.found(hierarchy))
            self.assertEqual(self.all, hierarchy.root('cpu'))

    def test_a_group_whose_name_is_no_text(self):
        with open(self.host.path('proc/1000/cgroup'), 'wb') as file:
            file.write(b'0::/b\xe9/emulator\n')
        self.assertEqual(os.fsencode(self.all) + b'/b\xe9/emulator',
                         os.fsencode(self.found(self.mounts(self.v2()))))


class TheHost(unittest.TestCase):
    def test_usage_and_capacity(self):
        for version in (1, 2):
            host = fakes.Host(self, version)
            cpu = cgroups.HostCpu(host.hierarchy())
            host.spend(None, 1.5)
            self.assertEqual(1_500_000_000, cpu.usage_ns())
            self.assertEqual(4.0, cpu.capacity())

    def test_a_quota_on_the_root_is_the_capacity(self):
        host = fakes.Host(self)
        host.write('cgroup/cpu/cpu.cfs_quota_us', '2500')
        host.write('cgroup/cpu/cpu.cfs_period_us', '5000')
        self.assertEqual(0.5, cgroups.HostCpu(host.hierarchy()).capacity())
        host = fakes.Host(self, 2)
        host.write('cgroup/all/cpu.max', '50000 100000')
        self.assertEqual(0.5, cgroups.HostCpu(host.hierarchy()).capacity())

    def test_unknown_is_none(self):
        host = fakes.Host(self)
        cpu = cgroups.HostCpu(host.hierarchy())
        os.remove(host.path('cgroup/cpuacct/cpuacct.usage'))
        os.remove(host.path('cgroup/cpuset/cpuset.effective_cpus'))
        self.assertIsNone(cpu.usage_ns())
        self.assertEqual(os.cpu_count(), cpu.capacity())

    def test_damaged_sizes_are_unknown(self):
        """A host that is taken for larger would harm its primary."""
        for path in ('all/cpu.max', 'all/cpuset.cpus.effective'):
            host = fakes.Host(self, 2)
            cpu = cgroups.HostCpu(host.hierarchy())
            host.write('cgroup/all/cpu.max', '50000 100000')
            self.assertEqual((0.5, 0), (cpu.capacity(), cpu.usage_ns()))
            before = host.read('cgroup/' + path)
            for text in ('5-', 'x y', '-', '0-'):
                host.write('cgroup/' + path, text)
                cpu.capacity()
                self.assertIsNone(cpu.usage_ns(), text)
            host.write('cgroup/' + path, before)
            self.assertEqual((0.5, 0), (cpu.capacity(), cpu.usage_ns()))

    def test_no_usage_in_cpu_stat(self):
        host = fakes.Host(self, 2)
        host.write('cgroup/all/cpu.stat', 'nr_periods 1')
        self.assertIsNone(cgroups.HostCpu(host.hierarchy()).usage_ns())
