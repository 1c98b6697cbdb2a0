# SPDX-License-Identifier: Apache-2.0

import os
import unittest

from secondary_scheduler.agent.host_capacity import HostCpu
from tests.unit.agent import fakes


class HostCpuTest(unittest.TestCase):
    def test_usage_and_capacity(self):
        for version in (1, 2):
            host = fakes.Host(self, version)
            cpu = HostCpu(host.hierarchy())
            host.spend(None, 1.5)
            self.assertEqual(1_500_000_000, cpu.usage_ns())
            self.assertEqual(4.0, cpu.capacity())

    def test_quota_of_the_root_group_limits_the_capacity(self):
        host = fakes.Host(self)
        host.write('cgroup/cpu/cpu.cfs_quota_us', '2500')
        host.write('cgroup/cpu/cpu.cfs_period_us', '5000')
        self.assertEqual(0.5, HostCpu(host.hierarchy()).capacity())
        host = fakes.Host(self, 2)
        host.write('cgroup/all/cpu.max', '50000 100000')
        self.assertEqual(0.5, HostCpu(host.hierarchy()).capacity())

    def test_missing_files_are_unknown(self):
        host = fakes.Host(self)
        cpu = HostCpu(host.hierarchy())
        os.remove(host.path('cgroup/cpuacct/cpuacct.usage'))
        os.remove(host.path('cgroup/cpuset/cpuset.effective_cpus'))
        self.assertIsNone(cpu.usage_ns())
        self.assertEqual(os.cpu_count(), cpu.capacity())

    def test_damaged_sizes_are_unknown(self):
        """Too large a capacity would harm primaries."""
        for path in ('all/cpu.max', 'all/cpuset.cpus.effective'):
            host = fakes.Host(self, 2)
            cpu = HostCpu(host.hierarchy())
            host.write('cgroup/all/cpu.max', '50000 100000')
            self.assertEqual((0.5, 0), (cpu.capacity(), cpu.usage_ns()))
            before = host.read('cgroup/' + path)
            for text in ('5-', 'x y', '-', '0-'):
                host.write('cgroup/' + path, text)
                cpu.capacity()
                self.assertIsNone(cpu.usage_ns(), text)
            host.write('cgroup/' + path, before)
            self.assertEqual((0.5, 0), (cpu.capacity(), cpu.usage_ns()))

    def test_cpu_stat_without_usage_is_unknown(self):
        host = fakes.Host(self, 2)
        host.write('cgroup/all/cpu.stat', 'nr_periods 1')
        self.assertIsNone(HostCpu(host.hierarchy()).usage_ns())
