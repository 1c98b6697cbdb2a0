# SPDX-License-Identifier: Apache-2.0

import unittest

from tests.unit.decisions.worlds import cpu_policy, host, slots_policy


class TestHost(unittest.TestCase):

    def test_host_is_violated_if_any_policy_is(self):
        self.assertFalse(host('h').violated)
        self.assertTrue(host('h', policies=(
            cpu_policy(), slots_policy(1, violated=True))).violated)

    def test_threshold_is_that_of_the_strictest_policy(self):
        both = host('h', policies=(cpu_policy(90.0), cpu_policy(60.0),
                                   slots_policy(1)))
        self.assertEqual(60.0, both.threshold())
        self.assertEqual(1, both.threshold('slots'))
        self.assertIsNone(host('h', policies=()).threshold())
