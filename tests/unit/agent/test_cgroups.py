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

    def test_count_cpus(self):
        self.assertEqual(6, cgroups.count_cpus('0-3,8,10'))
        self.assertEqual(0, cgroups.count_cpus(''))


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

    def test_no_usage_in_cpu_stat(self):
        host = fakes.Host(self, 2)
        host.write('cgroup/all/cpu.stat', 'nr_periods 1')
        self.assertIsNone(cgroups.HostCpu(host.hierarchy()).usage_ns())
