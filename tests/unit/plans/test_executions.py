# SPDX-License-Identifier: Apache-2.0

"""The checker, against an enumeration of all executions of small plans.

SECONDARY_FAULTS is a third of the number of plans (default 100).
"""

from collections import Counter
import os
import unittest

from secondary_scheduler.plans.checker import check
from tests.unit.plans import executions

COUNT = 3 * int(os.environ.get('SECONDARY_FAULTS', '100'))


class TestExecutions(unittest.TestCase):

    def test_plan_is_valid_if_no_execution_is_wrong(self):
        verdicts = Counter()
        for seed in executions.seeds(COUNT):
            cluster, plan, lanes = executions.draw(seed)
            wrong = executions.is_wrong(cluster, plan, lanes)
            faults = check(cluster, plan, lanes)
            verdicts[wrong] += 1
            self.assertEqual(wrong, bool(faults), f'{seed}: {faults}')
        # Both verdicts are frequent, so that each is tested.
        self.assertGreater(min(verdicts[True], verdicts[False]), COUNT / 5)
