# SPDX-License-Identifier: Apache-2.0

import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.agent.restraint import Restraint


class RestraintTest(unittest.TestCase):
    def test_harm_halves_the_share_which_then_recovers_slowly(self):
        one = Restraint()
        self.assertEqual(89.0, one.bound(89.0, 30.0))
        one.push(True)
        self.assertAlmostEqual(59.5, one.bound(89.0, 30.0))
        one.push(True)
        self.assertAlmostEqual(44.75, one.bound(89.0, 30.0))
        for _ in range(10):
            one.push(False)
        self.assertAlmostEqual(0.45, one.share)
        for _ in range(30):
            one.push(False)
        self.assertEqual(1.0, one.share)

    def test_set_point_is_kept_without_room_or_with_unknown_use(self):
        one = Restraint()
        one.push(True)
        self.assertEqual(89.0, one.bound(89.0, 95.0))
        self.assertEqual(89.0, one.bound(89.0, None))

    def test_share_settles_around_the_use_without_harm(self):
        """Harm begins when secondaries use more than a third of the room."""
        one, harmed, run, longest, used = Restraint(), 0, 0, 0, 0.0
        for _ in range(600):
            bad = one.share > 1 / 3
            run = run + 1 if bad else 0
            longest = max(longest, run)
            harmed += bad
            used += one.share
            one.push(bad)
        # A policy with a timelimit of 4 s or more never needs the floor.
        self.assertLessEqual(longest, 2)
        self.assertLess(harmed, 0.15 * 600)
        self.assertGreater(used / 600, 0.2)

    @given(st.lists(st.booleans()), st.floats(0, 100), st.floats(0, 100))
    def test_bound_is_between_primary_use_and_set_point(
            self, harms, set_point, primary):
        one = Restraint()
        for harmed in harms:
            one.push(harmed)
            self.assertTrue(0.0 < one.share <= 1.0)
        found = one.bound(set_point, primary)
        self.assertLessEqual(found, set_point)
        self.assertGreaterEqual(found, min(set_point, primary) - 1e-9)
