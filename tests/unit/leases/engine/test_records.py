# SPDX-License-Identifier: Apache-2.0

"""Documents of leases."""

import json
import unittest
from unittest import mock

from secondary_scheduler.leases.api.db import schedules
from secondary_scheduler.leases.engine import records
from tests.unit.leases.engine import fakes


class RecordDocumentsTest(unittest.TestCase):

    def test_keys_of_a_document_never_change(self):
        world = fakes.World(self)
        world.ask(2, duration=60)
        world.until(12)
        _, [(row, text)] = schedules.read_pass(world.service.database, 0)
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
        _, before = schedules.read_pass(world.service.database, 0)
        world.restart()
        world.step()
        _, after = schedules.read_pass(world.service.database, 0)
        for (_, one), (_, other) in zip(before, after, strict=True):
            self.assertEqual(json.loads(one), json.loads(other))

    def test_error_names_the_lease_with_an_unreadable_document(self):
        world = fakes.World(self)
        lease = world.ask(1, duration=60)
        world.step()
        passes, [(row, text)] = schedules.read_pass(world.service.database, 0)
        known = json.loads(text)
        without = [{name: value for name, value in known.items()
                    if name != missing} for missing in known.keys() - {
                        # Missing in documents of earlier releases.
                        'served_time', 'failing_since', 'cause', 'changed',
                        'unreachable_since'}]
        of_another_kind = [known | {name: 7} for name in
                           ('terms', 'stay', 'home', 'nodes', 'state')]
        for garbage in (text[:-1], '[1]', *map(
                json.dumps, without + of_another_kind)):
            with self.subTest(garbage), mock.patch.object(
                    schedules, 'read_pass',
                    return_value=(passes, [(row, garbage)])):
                world.restart()
                with self.assertRaisesRegex(
                        records.LeaseRecordError, f'{lease} cannot be read'):
                    world.engine.run_pass()
        world.restart()
        world.until(90)
        self.assertEqual('done', world.state(lease))    # nothing was lost


if __name__ == '__main__':
    unittest.main()
