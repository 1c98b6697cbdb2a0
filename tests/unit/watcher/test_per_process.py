# SPDX-License-Identifier: Apache-2.0

"""Values of one process."""

from unittest import TestCase, mock

from secondary_scheduler.watcher import (
    per_process,
)


class PerProcessTest(TestCase):
    def test_value_is_created_once_in_each_process(self):
        made = per_process.PerProcess(object)
        first = made()
        self.assertIs(first, made())
        with mock.patch.object(per_process.os, 'getpid', return_value=-1):
            self.assertIsNot(first, made())
