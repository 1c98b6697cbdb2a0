# SPDX-License-Identifier: Apache-2.0

import os
import subprocess

from tests.unit.agent import cases, fakes


class Releasing(cases.ActuatorCase):
    def test_another_agent_releases_all_limits(self):
        self.host.guest(0)
        before = self.host.fingerprint()
        guests = self.secondaries()
        self.actuator.prioritise(guests)
        self.actuator.floor(guests[0])
        self.assertNotEqual(before, self.host.fingerprint())
        again = self.make()
        self.assertTrue(again.release(guests[0]))
        again.free_slice()
        self.assertEqual(before, self.host.fingerprint())
        self.assertEqual('-10', self.host.read('proc/1000/oom_score_adj'))

    def test_cpu_time_of_a_guest(self):
        self.host.guest(0)
        guest, = self.secondaries()
        self.host.spend(0, 2)
        self.assertEqual(2_000_000_000, self.actuator.usage_ns(guest))

    def test_dry_run_writes_nothing(self):
        self.host.guest(0)
        guests = self.secondaries()
        before = self.host.fingerprint()
        dry = self.make(dry_run=True)
        dry.prioritise(guests)
        dry.floor(guests[0])
        dry.set_share(guests[0], 5.0, 4.0)
        self.assertFalse(dry.kill(guests[0]))
        self.assertEqual(before, self.host.fingerprint())


class ReleasingV2(Releasing):
    version = 2


class OnlySecondaries(cases.ActuatorCase):
    """No file outside of verified secondaries is ever written."""

    def call_all_methods(self, guests):
        self.actuator.prioritise(guests)
        for guest in guests:
            self.actuator.set_share(guest, 10.0, 4.0)
            self.actuator.floor(guest)
            self.actuator.lift_emulator(guest)
            self.actuator.release(guest)
            self.actuator.usage_ns(guest)
            self.actuator.kill(guest)
        self.actuator.forget(guests)
        self.actuator.free_slice()

    def test_no_kind_of_primary_is_written(self):
        secondary = self.host.guest(0)
        good = fakes.nova_metadata(fakes.MARKED)
        self.host.guest(1, metadata='')                 # made by hand
        self.host.guest(2, specs={})                    # a primary flavor
        self.host.guest(3)                              # malformed
        self.host.libvirt.domains[-1].xml = '<domain><uuid>'
        self.host.guest(4)                              # huge
        self.host.libvirt.domains[-1].xml += ' ' * (1 << 20)
        self.host.guest(5)                              # another UUID
        self.host.libvirt.domains[-1].xml = fakes.domain_xml(
            fakes.UUIDS[9], 'instance-00000005', good)
        self.host.guest(6)                              # recycled pid
        self.host.process(1006, 1, fakes.UUIDS[9], 'other')
        self.host.guest(7, listed=False)                # unknown to libvirt
        before = self.host.fingerprint(skip=['instance-00000000'])
        guests = self.secondaries()
        self.assertEqual([secondary], [guest.uuid for guest in guests])
        self.actuator.prioritise(guests)
        self.actuator.floor(guests[0])
        self.assertEqual('1000 100000', self.host.quota(0))
        self.assertEqual(before, self.host.fingerprint(
            skip=['instance-00000000']))
        self.call_all_methods(guests)
        self.assertEqual(before, self.host.fingerprint(
            skip=['instance-00000000']))

    def test_group_shared_with_others_is_not_written(self):
        before = None
        for path in ('/system/libvirtd', '/', '/machine/emulator',
                     '/machine/qemu-9-x.libvirt-qemu/emulator'):
            self.host = fakes.Host(self)
            self.host.guest(0)
            for folder in ('cpu', 'cpuacct'):
                os.makedirs(self.host.path('cgroup', folder, path[1:]),
                            exist_ok=True)
            self.host.write('proc/1000/cgroup',
                            f'3:cpu:{path}\n2:cpuacct:{path}')
            self.actuator = self.make()
            before = self.host.fingerprint()
            guests = self.secondaries()
            self.call_all_methods(guests)
            self.assertEqual(before, self.host.fingerprint(), path)
            self.assertFalse(self.actuator.floor(guests[0]))
            self.assertIn(guests[0].uuid, self.actuator.problems)

    def test_ended_guest_is_not_written(self):
        self.host.guest(0)
        guests = self.secondaries()
        before = self.host.fingerprint()
        self.host.process(1000, 78, fakes.UUIDS[0], 'instance-00000000')
        self.call_all_methods(guests)
        self.assertEqual(before, self.host.fingerprint())
        self.assertIsNone(self.actuator.usage_ns(guests[0]))

    def test_slice_from_a_damaged_state_file_is_not_written(self):
        self.host.limits('/system')
        path = self.host.path(self.host.cpu('/system'))
        self.host.store.save('limits.json', {
            'slice': {'path': path, 'weight': '2'}})
        before = self.host.fingerprint()
        self.make().free_slice()
        self.assertEqual(before, self.host.fingerprint())


class Killing(cases.ActuatorCase):
    def test_only_the_verified_process_is_killed(self):
        victim = subprocess.Popen(['sleep', '60'])
        self.addCleanup(victim.wait)
        self.addCleanup(victim.kill)
        self.host.guest(0, pid=victim.pid)
        guest, = self.secondaries()
        self.host.process(victim.pid, 1, fakes.UUIDS[0], 'x')
        self.assertFalse(self.actuator.kill(guest))
        self.host.process(victim.pid, 77, fakes.UUIDS[1], 'x')
        self.assertFalse(self.actuator.kill(guest))
        self.assertIsNone(victim.poll())
        self.host.process(victim.pid, 77, fakes.UUIDS[0],
                          'instance-00000000')
        self.assertTrue(self.actuator.kill(guest))
        self.assertEqual(-9, victim.wait(5))
        self.assertFalse(self.actuator.kill(guest))

    def test_killed_guest_gets_its_original_limits_back(self):
        victim = subprocess.Popen(['sleep', '60'])
        self.addCleanup(victim.wait)
        self.addCleanup(victim.kill)
        self.host.guest(0, pid=victim.pid)
        self.host.process(victim.pid, 77, fakes.UUIDS[0],
                          'instance-00000000')
        guest, = self.secondaries()
        threads = ('vcpu0', 'emulator')
        before = [self.host.quota(0, one) for one in threads]
        self.actuator.floor(guest)
        self.assertNotEqual(before, [self.host.quota(0, one)
                                     for one in threads])
        self.assertTrue(self.actuator.kill(guest))
        # A caller that does not know of the kill must not limit it again.
        self.assertTrue(self.actuator.floor(guest))
        self.assertEqual(before, [self.host.quota(0, one)
                                  for one in threads])
