# SPDX-License-Identifier: Apache-2.0

"""Reading of the box's logs: expected failures of actions are no faults."""

import pathlib
import sys
import tempfile
import unittest
from unittest import mock

BOX = pathlib.Path(__file__).parents[2] / 'tools/box'

with mock.patch.object(sys, 'path', [str(BOX), *sys.path]):
    from tests.box import logs

HEAD = '2026-11-28 19:39:27.937 30669 ERROR watcher.applier.base '
FRAME = 'File "/x/secondary_scheduler/watcher/actions.py", line 1, in call'
TOLD = 'watcher.common.exception.ActionExecutionFailure: boot of X failed'


class FramesTest(unittest.TestCase):

    def frames(self, *lines):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path = pathlib.Path(folder, 'applier.log')
        path.write_text(''.join(f'{line}\n' for line in lines))
        with mock.patch.object(logs.layout, 'LOG', pathlib.Path(folder)):
            return logs.frames_since({})

    def test_expected_failure_is_no_fault(self):
        self.assertEqual([], self.frames(
            f'{HEAD}[None req] {TOLD}', HEAD + FRAME, HEAD + TOLD))

    def test_records_of_the_same_millisecond_are_told_apart(self):
        self.assertEqual([], self.frames(
            f'{HEAD}[None req] {TOLD}', HEAD + FRAME, HEAD + TOLD, HEAD,
            f'{HEAD}[None req] The engine has failed: {TOLD}'))

    def test_other_traceback_is_a_fault(self):
        self.assertEqual([f'applier.log: {FRAME}'], self.frames(
            f'{HEAD}[None req] oops', HEAD + FRAME, HEAD + 'KeyError: 1',
            f'{HEAD}[None req] The engine has failed: {TOLD}'))


if __name__ == '__main__':
    unittest.main()
