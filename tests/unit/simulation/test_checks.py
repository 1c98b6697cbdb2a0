# SPDX-License-Identifier: Apache-2.0

"""Arrays of run counters count like the triggers of an agent."""

import random
import unittest

import numpy as np

from secondary_scheduler.policies import language, triggers
from secondary_scheduler.simulation import (
    checks,
)


class TestChecks(unittest.TestCase):

    TEXTS = ('cpu <= 90% for 6s', 'cpu <= 70% for 10s', 'slots <= 1 for 10s')

    def test_counters_equal_those_of_the_agent(self):
        for adapts in (False, True):
            with self.subTest(adapts=adapts):
                self.compare(adapts)

    def compare(self, adapts):
        draw = random.Random(5)
        policies = language.parse_all(self.TEXTS)
        many = checks.PolicyChecks(policies, 2, adapts=adapts)
        each = [[triggers.Trigger(policy, triggers.sensitivity_for(
            policy.timelimit, checks.SENSITIVITY),
            triggers.FailureRuns() if adapts else None) for _host in range(2)]
            for policy in policies]
        level = 0.0
        for _second in range(3000):
            level = draw.choice([level] * 9 + [draw.uniform(60, 100)])
            use = {'cpu': np.array([level, 80.0]),
                   'slots': np.array([draw.randint(0, 2), 2.0])}
            busy = {'cpu': np.array([draw.random() < 0.98, True]),
                    'slots': use['slots'] > 0}
            many.count(use, busy)
            for row, policy in enumerate(policies):
                for host in range(2):
                    one = each[row][host]
                    one.check(float(use[policy.resource][host]),
                              bool(busy[policy.resource][host]))
                    self.assertEqual(
                        (one.failed, one.violated, one.local_due),
                        (many.failed[row, host], many.violated[row, host],
                         many.local[row, host]))
                    self.assertEqual(one.failed == policy.timelimit + 1,
                                     many.broken[row, host])
                    self.assertEqual(one.sensitivity,
                                     many.sensitivity[row, host])
        self.assertEqual(adapts, bool((
            many.sensitivity != many.sensitivity[:, 1:]).any()))
