# SPDX-License-Identifier: Apache-2.0

import os

from secondary_scheduler.agent import cgroup_handles, cgroups, guest_cgroups
from tests.unit.agent import cases, fakes


class Originals(cases.ActuatorCase):
    def originals(self):
        return self.host.store.load(guest_cgroups.STATE)['guests']

    def test_originals_of_an_ended_guest_are_forgotten(self):
        self.host.guest(0)
        guest, = self.secondaries()
        self.actuator.floor(guest)
        self.assertTrue(self.originals())
        self.host.process(1000, 78, fakes.UUIDS[0], 'instance-00000000')
        self.actuator.forget([])
        self.assertEqual({}, self.originals())
        self.assertEqual({}, self.actuator.groups._open_handles)

    def test_originals_of_a_guest_started_meanwhile_are_kept(self):
        """The trigger may limit a guest before control has listed it."""
        self.host.guest(0)
        before = self.host.fingerprint()
        guests = self.secondaries()
        self.actuator.prioritise(guests)
        self.actuator.floor(guests[0])
        self.actuator.forget([])
        self.actuator.prioritise(guests)
        self.actuator.floor(guests[0])
        self.assertTrue(self.actuator.release(guests[0]))
        self.actuator.free_slice()
        self.assertEqual(before, self.host.fingerprint())

    def test_lost_record_leaves_no_guest_at_the_floor(self):
        """The disk was full, and the agent was restarted."""
        self.host.guest(0)
        guest, = self.secondaries()
        self.actuator.prioritise([guest])
        self.actuator.floor(guest)
        os.unlink(self.host.store.path(guest_cgroups.STATE))
        self.actuator = self.make()
        self.actuator.prioritise([guest])
        self.actuator.set_share(guest, 20.0, 4.0)
        self.assertEqual('8000 20000', self.host.quota(0))
        self.assertTrue(self.actuator.release(guest))
        self.assertIsNone(cgroups.parse_limit(
            self.host.quota(0, 'emulator'))[0])
        self.assertEqual('0', self.host.read('proc/1000/oom_score_adj'))
        self.assertEqual('0', self.idle(0))

    def test_damaged_state_file_is_replaced(self):
        self.host.store.save(guest_cgroups.STATE, {
            'guests': {'x': {}, 'a b c': {}}})
        self.actuator = self.make()
        self.actuator.forget([])
        self.assertEqual({}, self.originals())


class OriginalsV2(Originals):
    version = 2


class Writing(cases.ActuatorCase):
    def test_write_refuses_other_groups_and_files(self):
        self.host.guest(0)
        self.host.guest(1, specs={})
        guest, = self.secondaries()
        self.actuator.floor(guest)
        before = self.host.fingerprint()
        primary = cgroups.Group(self.host.path(self.host.cpu(
            self.host.scope('instance-00000001', 2))))
        self.addCleanup(primary.close)
        # The path is not enough: another guest may have it by now.
        same = cgroups.Group(self.host.path(self.host.cpu(
            self.host.scope('instance-00000000', 1))))
        self.addCleanup(same.close)
        for group in (primary, same):
            with self.assertRaises(cgroup_handles.NotSecondary):
                self.actuator.groups.write(group, 'cpu.idle', '1')
        mine = next(iter(self.actuator.groups.opened())).base
        for name in ('../cpu.idle', 'vcpu0/../../cpu.idle', 'cgroup.procs'):
            with self.assertRaises(cgroup_handles.NotSecondary):
                self.actuator.groups.write(mine, name, '1')
        self.assertEqual(before, self.host.fingerprint())
