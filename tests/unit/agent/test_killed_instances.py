# SPDX-License-Identifier: Apache-2.0

import unittest
from unittest import mock

from secondary_scheduler.agent import killed_instances
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.model.reports import HostReport
from tests.unit.agent import fakes
from tests.unit.agent.base import AgentTestCase


def secondary(n, priority=5):
    return Secondary(f'u{n}', f'i{n}', priority, 1, n, 100 + n, n)


class KilledTest(unittest.TestCase):

    def setUp(self):
        self.host = fakes.Host(self)

    def make(self):
        return killed_instances.Killed(self.host.store)

    def test_killed_guests_are_known_until_they_run_again(self):
        book = self.make()
        guest = secondary(1)
        book.note(guest, 'memory')
        book.note(secondary(2), 'cpu')
        book.forget_running([guest])     # its process has not ended yet
        self.assertEqual({'u1': 'memory', 'u2': 'cpu'}, book.reasons)
        again = Secondary('u1', 'i1', 5, 1, 7, 207, 99)
        other = self.make()
        other.forget_running([again])
        self.assertEqual({'u2': 'cpu'}, other.reasons)
        self.assertEqual({'u2': 'cpu'}, self.make().reasons)

    def test_deleted_guests_are_forgotten(self):
        book = self.make()
        book.note(secondary(1), 'memory')
        book.note(secondary(2), 'memory')
        book.forget({'u1', 'u3'})
        self.assertEqual({'u2'}, set(book.reasons))
        self.assertEqual({'u2'}, set(self.make().reasons))

    def test_number_of_entries_is_limited(self):
        book = self.make()
        for n in range(70):
            book.note(secondary(n), 'memory')
        self.assertEqual(64, len(book.reasons))
        self.assertIn('u69', book.reasons)

    def test_damaged_entries_are_ignored(self):
        self.host.store.save(killed_instances.STATE, {'u1': ['x'], 'u2': 5,
                                                      'u3': ['memory', 1, 2]})
        self.assertEqual({'u3': 'memory'}, self.make().reasons)


class KilledByTheAgentTest(AgentTestCase):
    def test_killed_instance_is_reported_until_it_runs_again(self):
        uuid = self.host.guest(0)
        agent = self.make()
        guest, = agent.parts.domains.secondaries()
        with mock.patch.object(agent.parts.actuator, 'kill',
                               return_value=True):
            self.assertTrue(
                agent.parts.last_resort.kill_guest(guest, 'memory'))
        report = agent.reporter.build_report()
        self.assertEqual({uuid: 'memory'}, report.killed)
        self.assertEqual(HostReport.from_dict(report.to_dict()), report)
        self.assertTrue(agent.parts.news.is_set())
        agent._domains_changed()
        self.assertEqual({uuid: 'memory'},
                         self.make().reporter.build_report().killed)
        self.host.libvirt.domains.clear()
        self.host.guest(0, pid=2000, started=5)
        agent.parts.domains.refresh()
        agent._domains_changed()
        self.assertEqual({}, agent.reporter.build_report().killed)
