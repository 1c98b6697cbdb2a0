# SPDX-License-Identifier: Apache-2.0

import os
import shutil
import unittest

from secondary_scheduler.agent import domains, vcpu_times
from tests.unit.agent import fakes


class Times:
    """Files with the times of the vCPUs of guest 0."""

    def set_times(self, run_s, ready_s, throttled_s, vcpus=2):
        """Write times of the guest, in seconds of each vCPU."""
        scope = self.host.scope('instance-00000000', 1)
        base = self.host.cpu(scope) + '/libvirt' * (self.host.version == 2)
        for number in range(vcpus):
            thread = 2000 + number
            self.host.write(f'proc/1000/task/{thread}/schedstat',
                            f'{int(run_s * 1e9)} {int(ready_s * 1e9)} 7\n')
            v1 = self.host.version == 1
            self.host.write(
                f'{base}/vcpu{number}/{"tasks" if v1 else "cgroup.threads"}',
                f'{thread}\n')
            self.host.write(f'{base}/vcpu{number}/cpu.stat', (
                f'nr_periods 1\nthrottled_time {int(throttled_s * 1e9)}\n'
                if v1 else f'throttled_usec {int(throttled_s * 1e6)}\n'))


class VcpuMeterTest(Times, unittest.TestCase):
    version = 1

    def setUp(self):
        self.host = fakes.Host(self, self.version)
        self.host.guest(0)
        known = domains.Domains(self.host.libvirt.connect, self.host.store,
                                self.host.run_dir, proc=self.host.proc)
        known.refresh()
        self.guest, = known.secondaries()
        self.now = 0.0
        self.meter = vcpu_times.VcpuMeter(self.host.hierarchy(), 10.0,
                                          lambda: self.now)

    def sample(self, *times):
        self.set_times(*times)
        self.meter.sample([self.guest])
        self.now += 1.0

    def test_quota_is_no_slowdown(self):
        """Without throttled time a quota counts as neighbours."""
        self.sample(0.0, 0.0, 0.0)
        self.sample(0.4, 0.6, 0.6)
        _, times = self.meter.times(self.guest, 10.0)
        self.assertEqual((800_000_000, 1_200_000_000, 1_200_000_000), times)
        self.assertEqual(1.0, times.slowdown)
        self.assertAlmostEqual(2.5, times._replace(throttled=0).slowdown)

    def test_waiting_for_another_guest_is_a_slowdown(self):
        self.sample(0.0, 0.0, 0.0)
        self.sample(0.25, 0.75, 0.5)
        self.assertAlmostEqual(
            2.0, self.meter.times(self.guest, 10.0)[1].slowdown)
        self.assertAlmostEqual(100.0,
                               self.meter.demand_pct(self.guest, 10.0))

    def test_kaf_6_demand_of_the_last_seconds(self):
        for run in (0, 0, 0, 0, 0, 0, 0, 1, 2):
            self.sample(run / 2, run / 2, 0.0)
        self.assertAlmostEqual(100.0,
                               self.meter.demand_pct(self.guest, 2.0))
        self.assertAlmostEqual(25.0, self.meter.demand_pct(self.guest, 8.0))

    def test_old_samples_are_dropped(self):
        for second in range(50):
            self.sample(second / 4, 0.0, 0.0)
        passed, _ = self.meter.times(self.guest, 1000.0)
        self.assertLessEqual(10.0, passed)
        self.assertLess(passed, 12.0)

    def test_what_cannot_be_read_is_unknown(self):
        self.sample(0.0, 0.0, 0.0)
        self.assertIsNone(self.meter.times(self.guest, 10.0))
        self.sample(1.0, 0.0, 0.0)
        self.assertIsNotNone(self.meter.times(self.guest, 10.0))
        self.host.write('proc/1000/task/2000/schedstat', 'nothing')
        self.meter.sample([self.guest])
        self.assertIsNone(self.meter.times(self.guest, 10.0))
        self.assertIsNone(self.meter.demand_pct(self.guest, 10.0))
        self.sample(1.0, 0.0, 0.0)
        self.sample(0.5, 0.0, 0.0)      # the counter went backwards
        self.assertIsNone(self.meter.times(self.guest, 10.0))

    def test_vcpu_that_has_not_run_has_no_slowdown(self):
        self.sample(1.0, 0.0, 0.0)
        self.sample(1.0, 0.0, 0.0)
        self.assertIsNone(self.meter.times(self.guest, 10.0)[1].slowdown)

    def test_guest_that_has_gone_is_forgotten(self):
        self.sample(0.0, 0.0, 0.0)
        self.sample(1.0, 0.0, 0.0)
        before = len(os.listdir('/proc/self/fd'))
        self.meter.sample([])
        self.assertIsNone(self.meter.times(self.guest, 10.0))
        self.assertEqual(before - 8, len(os.listdir('/proc/self/fd')))

    def test_groups_that_libvirt_makes_anew_are_opened(self):
        self.sample(0.0, 0.0, 0.0)
        for thread in (2000, 2001):
            self.host.write(f'proc/1000/task/{thread}/schedstat', '')
        shutil.rmtree(self.host.path('proc/1000/task/2001'))
        self.meter.sample([self.guest])
        self.assertIsNone(self.meter.times(self.guest, 10.0))
        self.sample(1.0, 0.0, 0.0)
        self.sample(2.0, 0.0, 0.0)
        self.assertEqual(2_000_000_000,
                         self.meter.times(self.guest, 10.0)[1].run)


class VcpuMeterV2Test(VcpuMeterTest):
    version = 2
