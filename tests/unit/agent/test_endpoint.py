# SPDX-License-Identifier: Apache-2.0

import json
import os
from unittest import mock

from secondary_scheduler.agent.floors import Reason
from secondary_scheduler.model.cluster import DirtyMemory
from secondary_scheduler.model.reports import HostReport
from tests.unit.agent.base import AgentTestCase


class AgentCallsTest(AgentTestCase):
    def setUp(self):
        super().setUp()
        self.uuid = self.host.guest(0)
        self.agent = self.make()
        self.agent.step()
        self.steps(self.agent, 3, 20.0, g0=5.0)

    def test_hand_over_with_policies_held_floors_nothing(self):
        self.assertEqual({'ok': True, 'floored': False, 'reason': '',
                          'dirty_mb': None, 'save_free_mb': None},
                         self.agent.calls.hand_over(self.uuid))
        self.conf.set_override('save_dir', self.host.root, 'secondary_agent')
        disk = os.statvfs(self.host.root)
        with mock.patch.object(os, 'statvfs', return_value=disk):
            self.agent.reporter.measure_disk()
        free = self.agent.calls.hand_over(self.uuid)['save_free_mb']
        self.assertEqual(free, self.agent.reporter.build_report().save_free_mb)
        # The space of a missing or hanging disk is unknown.
        with mock.patch.object(os, 'statvfs', side_effect=OSError):
            self.agent.reporter.measure_disk()
        self.assertIsNone(self.agent.calls.hand_over(self.uuid)['save_free_mb'])
        self.assertEqual(disk.f_bavail * disk.f_frsize >> 20, free)

    def test_hand_over_and_report_contain_dirty_memory(self):
        self.agent.parts.memory_meter.copied = 123.456
        dirty = DirtyMemory(12.0, 30.0)
        with mock.patch.object(self.agent.parts.memory_meter, 'dirty',
                               {self.uuid: dirty}.get):
            report = self.agent.reporter.build_report()
            answer = self.agent.calls.hand_over(self.uuid)
        self.assertEqual(123.46, report.migration_mb_s)
        self.assertEqual([dirty], [(i.dirty_1s_mb, i.dirty_5s_mb)
                                   for i in report.instances])
        self.assertEqual(dirty, answer['dirty_mb'])

    def test_killed_instance_is_not_handed_over(self):
        guest, = (one for one in self.agent.parts.domains.secondaries()
                  if one.uuid == self.uuid)
        self.agent.parts.killed.note(guest, 'memory: 6 MiB left')
        before = self.host.fingerprint()
        answer = self.agent.calls.hand_over(self.uuid)
        self.assertTrue(answer['killed'])
        self.assertFalse(answer['ok'])
        self.assertEqual('memory: 6 MiB left', answer['reason'])
        self.assertEqual(before, self.host.fingerprint())

    def test_unknown_instance_is_not_handed_over(self):
        answer = self.agent.calls.hand_over('unknown')
        self.assertFalse(answer['ok'])
        self.assertIn('unknown', answer['reason'])
        self.agent.calls.thaw_hint('unknown')

    def test_primary_is_not_handed_over(self):
        uuid = self.host.guest(1, specs={})
        self.agent.parts.domains.refresh()
        before = self.host.fingerprint()
        self.assertFalse(self.agent.calls.hand_over(uuid)['ok'])
        self.assertEqual(before, self.host.fingerprint())

    def test_failing_policy_floors_until_the_thaw_hint(self):
        self.spend(99.0)
        self.agent.check()
        self.spend(99.0)
        self.agent.check()
        answer = self.agent.calls.hand_over(self.uuid)
        self.assertTrue(answer['ok'] and answer['floored'])
        self.assertEqual('1000 100000', self.host.quota(0))
        self.agent.calls.thaw_hint(self.uuid)
        self.assertFalse(self.agent.parts.floors.floored(self.uuid))

    def test_guest_that_waits_for_its_lease_is_at_the_floor(self):
        self.agent.calls.await_lease(self.uuid, 30.0)
        self.assertEqual({Reason.LEASE},
                         self.agent.parts.floors.reasons(self.uuid))
        self.agent.calls.await_lease(self.uuid, 0)
        self.assertFalse(self.agent.parts.floors.floored(self.uuid))

    def test_primary_that_is_said_to_wait_for_a_lease_is_left_alone(self):
        uuid = self.host.guest(1, specs={})
        self.agent.parts.domains.refresh()
        before = self.host.fingerprint(skip=['instance-00000000'])
        self.agent.calls.await_lease(uuid, 30.0)
        self.agent.check()
        self.assertEqual(before, self.host.fingerprint(
            skip=['instance-00000000']))

    def test_nonsense_about_a_lease_is_ignored(self):
        for uuid, seconds in ((self.uuid, 301.0), (self.uuid, -1.0),
                              (self.uuid, float('nan')), (self.uuid, 'x'),
                              ('short', 1.0), ([], 1.0), (None, 1.0)):
            self.agent.calls.await_lease(uuid, seconds)
        self.assertFalse(self.agent.parts.floors.floored(self.uuid))

    def test_memory_is_measured_only_of_unlimited_secondaries(self):
        def measured():
            meter = self.agent.parts.memory_meter
            return [guest.uuid for guest in meter._secondaries()]

        self.host.guest(1, specs={})
        self.agent.parts.domains.refresh()
        self.assertEqual([self.uuid], measured())
        self.agent.calls.hand_over(self.uuid)
        self.assertEqual([], measured())
        self.agent.calls.thaw_hint(self.uuid)
        self.assertEqual([self.uuid], measured())
        self.agent.parts.floors.add(self.uuid, Reason.ENTRY)
        self.assertEqual([], measured())

    def test_migration_that_would_not_end_floors_until_the_thaw_hint(self):
        with mock.patch.object(self.agent.parts.memory_meter, 'floor_s',
                               {self.uuid: 500.0}.get):
            # Other operations than a live migration need no floor.
            self.assertFalse(self.agent.calls.hand_over(self.uuid)['floored'])
            answer = self.agent.calls.hand_over(self.uuid, migrates=True)
        self.assertEqual((True, True, (0, 0)), (
            answer['ok'], answer['floored'], answer['dirty_mb']))
        self.assertEqual('1000 100000', self.host.quota(0))
        self.agent.calls.thaw_hint(self.uuid)
        self.assertFalse(self.agent.parts.floors.floored(self.uuid))

    def test_hand_over_lifts_the_limit_of_the_emulator_at_the_floor(self):
        free = self.host.quota(0, 'emulator')
        for _ in range(11):
            self.spend(99.0)
            self.agent.check()
        self.assertEqual('10000 100000', self.host.quota(0, 'emulator'))
        self.assertTrue(self.agent.calls.hand_over(self.uuid)['floored'])
        self.steps(self.agent, 1, 99.0)
        self.assertEqual(free, self.host.quota(0, 'emulator'))
        self.assertEqual('1000 100000', self.host.quota(0))

    def test_status_contains_a_report(self):
        found = json.loads(json.dumps(self.agent.calls.get_status()))
        self.assertEqual('node1', found['host'])
        HostReport.from_dict({name: found[name] for name in (
            *HostReport.__dataclass_fields__,)} | {'version': 1})
