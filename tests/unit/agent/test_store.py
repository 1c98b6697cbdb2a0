# SPDX-License-Identifier: Apache-2.0

import os
import unittest

from tests.unit.agent import fakes


class Storing(unittest.TestCase):
    def test_failures_are_returned_not_raised(self):
        host = fakes.Host(self)
        self.assertFalse(host.store.save('x', {'a': object()}))
        host.store.directory = os.path.join(host.root, 'nowhere')
        self.assertFalse(host.store.save('x', {}))
        self.assertEqual({}, host.store.load('x'))

    def test_failed_write_is_retried_later(self):
        host = fakes.Host(self)
        host.store.directory = os.path.join(host.root, 'nowhere')
        with self.assertLogs('secondary_scheduler.agent.store') as logs:
            for count in range(3):
                host.store.save('x', {'a': count})
            self.assertFalse(host.store.catch_up())
            os.mkdir(host.store.directory)
            self.assertTrue(host.store.catch_up())
        self.assertEqual({'a': 2}, host.store.load('x'))
        self.assertEqual(['x'], os.listdir(host.store.directory))
        # The failure is logged once, and then its end.
        self.assertEqual(['ERROR', 'WARNING'],
                         [record.levelname for record in logs.records])
