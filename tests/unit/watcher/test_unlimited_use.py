# SPDX-License-Identifier: Apache-2.0

"""Use of instances before a limit held them."""

import dataclasses
import unittest

from secondary_scheduler.watcher import unlimited_use
from tests.unit.watcher import fakes

ONE = fakes.uid(1)


class UnlimitedUseTest(unittest.TestCase):
    def setUp(self):
        self.now = 100.0
        self.use = unlimited_use.UnlimitedUse(lambda: self.now)

    def note(self, **changes):
        report = fakes.report('h1', [fakes.server(1)])     # of two CPUs
        self.use.note(dataclasses.replace(report, instances=(
            dataclasses.replace(report.instances[0], **changes),)))

    def test_use_before_a_limit_counts_for_some_seconds(self):
        self.note(cpu=5.0, cap=20.0)
        self.assertEqual({ONE: 0.1}, self.use.recent())
        self.note(cpu=3.0, cap=3.0)
        self.note(floored=True)
        self.now += 29
        self.note(floored=True)
        self.assertEqual({ONE: 0.1}, self.use.recent())
        self.now += 1
        self.assertEqual({}, self.use.recent())
        self.note(cpu=8.0, cap=None)
        self.assertEqual({ONE: 0.16}, self.use.recent())

    def test_instance_that_has_always_been_held_is_unknown(self):
        self.note(floored=True)
        self.note(cpu=None, cap=None)
        self.assertEqual({}, self.use.recent())

    def test_instance_that_has_left_is_forgotten(self):
        self.note(cpu=5.0, cap=20.0)
        self.use.note(fakes.report('h1'))
        self.assertEqual({}, self.use.recent())
