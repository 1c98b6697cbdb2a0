# SPDX-License-Identifier: Apache-2.0

"""Log lines of the stages of a batch."""

from unittest import TestCase

from secondary_scheduler.watcher import (
    stages,
)


class StagesTest(TestCase):
    def test_stage_lines_have_a_fixed_form(self):
        with self.assertLogs(stages.LOG.logger, 'INFO') as logs:
            stages.mark('b', stages.REPORT, 5.0)
            stages.mark_first_call('b1')
            stages.mark_first_call('b1')
        self.assertEqual(2, len(logs.output))
        self.assertIn('secondary-stage batch=b stage=report t=5.000',
                      logs.output[0])
        self.assertIn('batch=b1 stage=first_api_call', logs.output[1])

    def test_memory_is_bounded(self):
        for number in range(stages._REMEMBERED + 10):
            stages.mark_first_call(f'n{number}')
        self.assertEqual(stages._REMEMBERED, len(stages._first_calls))
