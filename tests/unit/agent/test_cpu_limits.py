# SPDX-License-Identifier: Apache-2.0

import os
from unittest import mock

from secondary_scheduler.agent import actuator, cgroup_handles
from tests.unit.agent import cases, fakes

UUID = fakes.UUIDS[0]
NAME = 'instance-00000000'


class Limits(cases.ActuatorCase):
    def test_share_limits_each_vcpu(self):
        self.host.guest(0)
        guest, = self.secondaries()
        # 20 % of 4 CPUs on 2 vCPUs.
        self.assertTrue(self.actuator.set_share(guest, 20.0, 4.0))
        self.assertEqual('8000 20000', self.host.quota(0, 'vcpu0'))
        self.assertEqual('8000 20000', self.host.quota(0, 'vcpu1'))
        # 1 % of 4 CPUs: below 1 ms in 20 ms a longer period is needed.
        self.actuator.set_share(guest, 1.0, 4.0)
        self.assertEqual('1000 50000', self.host.quota(0))
        self.actuator.set_share(guest, 0.001, 4.0)
        self.assertEqual('1000 100000', self.host.quota(0))
        self.actuator.set_share(guest, 100.0, 4.0)
        self.assertEqual('20000 20000', self.host.quota(0))
        # A host of half a CPU cannot give a thread more than that.
        self.actuator.set_share(guest, 100.0, 0.5)
        self.assertEqual('5000 20000', self.host.quota(0))

    def test_floor_and_lifted_emulator_threads(self):
        self.host.guest(0)
        guest, = self.secondaries()
        before = self.host.quota(0, 'emulator')
        self.assertTrue(self.actuator.floor(guest))
        for thread, quota in (('vcpu1', '1000'), ('emulator', '10000'),
                              ('iothread1', '10000')):
            self.assertEqual(quota + ' 100000', self.host.quota(0, thread))
        self.assertTrue(self.actuator.lift_emulator(guest))
        self.assertEqual(before, self.host.quota(0, 'emulator'))
        self.assertEqual('1000 100000', self.host.quota(0))
        self.actuator.floor(guest)
        self.actuator.floor(guest, emulator=False)
        self.assertEqual(before, self.host.quota(0, 'iothread1'))
        self.actuator.floor(guest)
        self.actuator.set_share(guest, 20.0, 4.0)
        self.assertEqual(before, self.host.quota(0, 'emulator'))

    def test_longer_floor_period(self):
        self.host.guest(0)
        guest, = self.secondaries()
        before = self.host.quota(0)
        deep = actuator.Actuator(self.host.hierarchy(), self.host.store,
                                 floor_us=1_000_000)
        self.assertTrue(deep.floor(guest))
        self.assertEqual('1000 1000000', self.host.quota(0))
        self.assertEqual('10000 100000', self.host.quota(0, 'emulator'))
        deep.set_share(guest, 20.0, 4.0)
        self.assertEqual('8000 20000', self.host.quota(0))
        deep.floor(guest)
        self.assertTrue(deep.release(guest))
        self.assertEqual(before, self.host.quota(0))

    def test_emulator_threads_get_no_more_than_emulator_cpus(self):
        self.host.guest(0)
        guest, = self.secondaries()
        before = self.host.quota(0, 'emulator')
        self.actuator.emulator_cpus = 0.25
        self.actuator.set_share(guest, 20.0, 4.0)
        self.assertEqual('5000 20000', self.host.quota(0, 'emulator'))
        self.actuator.floor(guest)
        self.assertEqual('10000 100000', self.host.quota(0, 'iothread1'))
        self.actuator.lift_emulator(guest)
        self.assertEqual('5000 20000', self.host.quota(0, 'iothread1'))
        self.actuator.release(guest)
        self.assertEqual(before, self.host.quota(0, 'emulator'))

    def test_limit_changed_by_another_program_is_set_again(self):
        self.host.guest(0)
        guest, = self.secondaries()
        self.actuator.floor(guest)
        path = self.host.cpu(self.host.scope('instance-00000000', 1))
        if self.version == 1:
            self.host.write(path + '/vcpu0/cpu.cfs_quota_us', '-1')
        else:
            self.host.write(path + '/libvirt/vcpu0/cpu.max', 'max 100000')
        self.actuator.floor(guest)
        self.assertEqual('1000 100000', self.host.quota(0))

    def test_limit_of_the_flavor_is_never_exceeded(self):
        self.host.guest(0)
        path = self.host.cpu(self.host.scope('instance-00000000', 1))
        if self.version == 1:
            self.host.write(path + '/vcpu0/cpu.cfs_quota_us', '25000')
        else:
            self.host.write(path + '/libvirt/vcpu0/cpu.max', '25000 100000')
        guest, = self.secondaries()
        self.actuator.set_share(guest, 100.0, 4.0)
        self.assertEqual('25000 100000', self.host.quota(0, 'vcpu0'))
        self.assertEqual('20000 20000', self.host.quota(0, 'vcpu1'))


class LimitsV2(Limits):
    version = 2


class Refusals(cases.ActuatorCase):
    def test_refused_limit_is_replaced_by_that_of_the_parent(self):
        self.host.guest(0)
        scope = self.host.cpu(self.host.scope('instance-00000000', 1))
        guest, = self.secondaries()
        self.actuator.floor(guest)
        self.host.write(scope + '/cpu.cfs_quota_us', '30000')
        write = self.actuator.groups.write

        def kernel(group, name, value):
            if name == 'vcpu0/cpu.cfs_quota_us' and int(value) > 6000:
                raise OSError(22, 'Invalid argument')
            write(group, name, value)

        self.actuator.groups.write = kernel
        self.assertTrue(self.actuator.set_share(guest, 50.0, 4.0))
        self.assertEqual('6000 20000', self.host.quota(0))

    def test_other_errors_are_reported(self):
        self.host.guest(0)
        guest, = self.secondaries()

        def broken(group, name, value):
            raise OSError(19, 'No such device')

        self.actuator.groups.write = broken
        self.assertFalse(self.actuator.floor(guest))
        self.actuator.prioritise([guest])
        self.assertFalse(self.actuator.effective['vm'])

    def test_order_of_writes_never_exceeds_either_limit(self):
        """The limit between two writes is at most the old or the new one."""
        self.host.guest(0)
        guest, = self.secondaries()
        self.actuator.set_share(guest, 10.0, 4.0)
        write, seen = self.actuator.groups.write, []

        def record(group, name, value):
            write(group, name, value)
            if name.startswith('vcpu0'):
                quota, period = self.host.quota(0).split()
                seen.append(int(quota) / int(period))

        self.actuator.groups.write = record
        for percent, bound in ((0.5, 0.2), (10.0, 0.2), (2.0, 0.2)):
            seen.clear()
            self.actuator.set_share(guest, percent, 4.0)
            self.assertTrue(seen)
            self.assertLessEqual(max(seen), bound + 1e-9)


class NamedFiles(cases.UnlimitedCase):
    def test_missing_file_is_named(self):
        for name in ('vcpu1/cpu.max', 'emulator/cpu.max'):
            path = f'{self.inner}/{name}'
            before = self.host.read(path)
            self.take(path)
            self.actuator = self.make()
            self.check_unlimited(path)
            self.host.write(path, before)
            self.assertTrue(self.actuator.floor(self.guest))
            self.assertEqual({}, self.actuator.problems)
            self.assertTrue(self.actuator.is_limited(UUID))

    def test_missing_controller_is_named(self):
        self.take_controller()
        self.check_unlimited('/cpu.max')

    def test_missing_group_is_named(self):
        path = self.host.path(f'{self.inner}/vcpu1')
        for name in os.listdir(path):
            os.remove(f'{path}/{name}')
        os.rmdir(path)
        self.check_unlimited('/vcpu1')

    def test_damaged_file_is_named(self):
        for text in ('', 'max', '5', 'x 100000', '1000 0', '-5 100000'):
            self.host.write(f'{self.inner}/vcpu0/cpu.max', text)
            self.check_unlimited('vcpu0/cpu.max says')

    def test_write_without_effect_is_reported(self):
        before = self.host.quota(0)
        with mock.patch.object(cgroup_handles, 'put'):
            self.check_unlimited('vcpu')
            self.assertIn('after', self.actuator.problems[UUID])
        self.assertEqual(before, self.host.quota(0))

    def test_refused_write_is_reported(self):
        with mock.patch.object(
            cgroup_handles,
            'put',
            side_effect=PermissionError(
                1, 'no', f'{self.inner}/vcpu0/cpu.max'
            ),
        ):
            self.check_unlimited('vcpu0/cpu.max')

    def test_ended_guest_is_no_problem(self):
        self.actuator.set_share(self.guest, 50.0, 4.0)
        self.take_controller()
        self.host.process(1000, 99, UUID, NAME)
        self.assertFalse(self.actuator.floor(self.guest))
        self.assertEqual({}, self.actuator.problems)

    def test_memory_counts_once_it_is_read_back(self):
        with mock.patch.object(cgroup_handles, 'put'):
            self.assertFalse(self.actuator.press_memory(self.guest))


class NamedFilesV1(cases.UnlimitedCase):
    version = 1

    def test_missing_file_is_named(self):
        self.take(f'{self.inner}/vcpu1/cpu.cfs_quota_us')
        self.check_unlimited('vcpu1/cpu.cfs_quota_us')

    def test_write_without_effect_is_reported(self):
        with mock.patch.object(cgroup_handles, 'put'):
            self.check_unlimited('vcpu0/cpu.cfs_')
