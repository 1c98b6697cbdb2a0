# SPDX-License-Identifier: Apache-2.0

"""Documents of leases."""

import json
import unittest

from secondary_scheduler.leases.api.db import schedules
from tests.unit.leases.engine import fakes


class RecordDocumentsTest(unittest.TestCase):

    def test_keys_of_a_document_never_change(self):
        world = fakes.World(self)
        world.ask(2, duration=60)
        world.until(12)
        [(row, text)] = schedules.read_pass(world.service.database, 0).rows
        self.assertEqual(
            {'boot_s', 'cause', 'changed', 'ended', 'failing_since', 'heard',
             'home', 'later', 'nodes', 'number', 'paused', 'price', 'reason',
             'requeues', 'resumes', 'said', 'saved_at', 'served',
             'served_time', 'started', 'state', 'stay', 'submitted',
             'suspended_s', 'suspends', 'terms', 'told',
             'unreachable_since'},
            json.loads(text).keys())
        self.assertEqual(
            {'deadline', 'duration', 'image', 'image_mb', 'immediate',
             'max_rate', 'nodes', 'preemptible', 'priority', 'start', 'user'},
            json.loads(text)['terms'].keys())

    def test_engine_restored_from_documents_writes_the_same(self):
        world = fakes.World(self)
        world.ask(2, duration=60)
        world.until(12)
        before = schedules.read_pass(world.service.database, 0).rows
        world.restart()
        world.step()
        after = schedules.read_pass(world.service.database, 0).rows
        for (_, one), (_, other) in zip(before, after, strict=True):
            self.assertEqual(json.loads(one), json.loads(other))


if __name__ == '__main__':
    unittest.main()
