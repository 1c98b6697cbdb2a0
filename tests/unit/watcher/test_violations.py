# SPDX-License-Identifier: Apache-2.0

"""Collect window of violations."""

from unittest import TestCase

from secondary_scheduler.watcher import (
    violations,
)
from tests.unit.watcher import fakes


class WindowTest(TestCase):
    def setUp(self):
        self.window = violations.Window()
        self.servers = [fakes.server(1)]

    def violate(self, name, now, **changes):
        self.window.note(fakes.report(name, self.servers, violated=True,
                                      **changes), now)

    def test_first_violation_is_due_at_once_and_later_ones_are_merged(self):
        self.assertEqual((), self.window.due(2.0, 0.0))
        self.violate('h1', 10.0, time=500.0)
        self.assertEqual(('h1',), self.window.due(2.0, 10.0))
        batch = self.window.take(['h1'], 10.0)
        self.assertEqual((('h1',), 500.0), (batch.hosts, batch.reported))
        self.assertFalse(self.window.waiting)
        self.violate('h2', 11.0)
        self.violate('h3', 12.0)
        self.assertEqual((), self.window.due(2.0, 12.9))
        self.assertEqual(('h2', 'h3'), self.window.due(2.0, 13.0))

    def test_violation_after_a_quiet_time_is_due_at_once(self):
        self.violate('h1', 10.0)
        self.window.take(['h1'], 10.0)
        self.violate('h1', 13.0)
        self.assertEqual(('h1',), self.window.due(2.0, 13.0))

    def test_recovered_or_silent_host_is_dropped(self):
        self.violate('h1', 1.0)
        self.violate('h2', 1.0)
        self.window.note(fakes.report('h1', self.servers), 1.5)
        self.assertEqual(('h2',), self.window.due(2.0, 9.0))
        self.window.forget({'h1'})
        self.assertFalse(self.window.waiting)

    def test_violation_without_secondaries_is_ignored(self):
        self.window.note(fakes.report('h1', violated=True), 1.0)
        self.assertFalse(self.window.waiting)

    def test_instance_at_the_floor_for_too_long_asks_for_relief(self):
        self.window.note(fakes.report('h1', self.servers, floored=True), 1.0)
        self.window.note(fakes.report('h1', self.servers, floored=True), 9.0)
        self.assertEqual({}, self.window.relief(20.0, 21.0))
        self.assertEqual({'h1': 1.0}, self.window.relief(20.0, 21.1))
        self.window.note_relief('h1', 21.1, 700.0)
        self.assertEqual(('h1',), self.window.due(2.0, 21.1))
        self.window.note(fakes.report('h1', self.servers, floored=True),
                         22.0)
        self.assertTrue(self.window.waiting)
        self.window.note(fakes.report('h1', self.servers), 23.0)
        self.assertEqual({}, self.window.relief(20.0, 99.0))
        self.assertFalse(self.window.waiting)
        self.window.note(fakes.report('h2', self.servers, floored=True), 1.0)
        self.window.forget(())
        self.assertEqual({}, self.window.relief(20.0, 99.0))
