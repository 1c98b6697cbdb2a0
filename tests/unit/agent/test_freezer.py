# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from secondary_scheduler.agent import cgroup_handles
from tests.unit.agent import cases, fakes

UUID = fakes.UUIDS[0]


class Freezer(cases.UnlimitedCase):
    def setUp(self):
        super().setUp()
        self.file = self.host.cpu(self.scope) + '/cgroup.freeze'
        self.host.write(self.file, '0')
        self.take_controller()

    def test_guest_without_cpu_limits_is_frozen_and_thawed(self):
        self.assertTrue(self.actuator.floor(self.guest))
        self.assertEqual('1', self.host.read(self.file))
        # It is frozen, and the problem is still reported.
        self.assertIn('cpu.max', self.actuator.problems[UUID])
        self.assertTrue(self.actuator.is_limited(UUID))
        # It thaws for an operation of Nova, a share, or its release.
        for lift in (lambda: self.actuator.lift_emulator(self.guest),
                     lambda: self.actuator.floor(self.guest, emulator=False),
                     lambda: self.actuator.set_share(self.guest, 9.0, 4.0),
                     lambda: self.make().release(self.guest)):
            self.actuator.floor(self.guest)
            self.assertEqual('1', self.host.read(self.file))
            lift()
            self.assertEqual('0', self.host.read(self.file))

    def test_freezer_without_effect_counts_as_failure(self):
        with mock.patch.object(cgroup_handles, 'put'):
            self.assertFalse(self.actuator.floor(self.guest))
            self.assertFalse(self.actuator.is_limited(UUID))

    def test_guest_thaws_when_limits_work_again(self):
        self.actuator.floor(self.guest)
        self.host.limits(self.scope + '/libvirt/vcpu0')
        for thread in ('vcpu0', 'vcpu1', 'emulator', 'iothread1'):
            self.host.write(f'{self.inner}/{thread}/cpu.max', 'max 100000')
        self.assertTrue(self.actuator.floor(self.guest))
        self.assertEqual('0', self.host.read(self.file))
        self.assertEqual({}, self.actuator.problems)

    def test_dry_run_freezes_nothing(self):
        self.assertFalse(self.make(dry_run=True).floor(self.guest))
        self.assertEqual('0', self.host.read(self.file))
