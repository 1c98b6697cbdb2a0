# SPDX-License-Identifier: Apache-2.0

"""Order in which the guided search tries branches."""

import unittest

from secondary_scheduler.decisions.branches import (
    Action,
    low_actions,
    low_order,
)

MIG, SUSP, STOP = Action


class TestOrders(unittest.TestCase):

    def test_low_order_equals_the_example_of_the_thesis(self):
        self.assertEqual(
            [('L4',), ('L5',), ('L4', 'L5'), ('L6',), ('L4', 'L6'),
             ('L5', 'L6'), ('L4', 'L5', 'L6')],
            list(low_order(['L4', 'L5', 'L6'])))
        self.assertEqual([], list(low_order([])))

    def test_low_order_is_lazy(self):
        order = low_order(range(500))
        self.assertEqual([(0,), (1,), (0, 1)], [next(order)
                                                for _ in range(3)])

    def test_highest_lease_of_a_subset_decides(self):
        # Sets are compared by their maxima, then by the rest.
        subsets = list(low_order(range(6)))
        self.assertEqual(63, len(set(subsets)))
        self.assertEqual(subsets, sorted(
            subsets, key=lambda one: one[::-1]))

    def test_lowest_lease_is_stopped_first(self):
        self.assertEqual([()], list(low_actions(0)))
        self.assertEqual([(SUSP,), (STOP,)], list(low_actions(1)))
        self.assertEqual([(SUSP, SUSP), (STOP, SUSP), (SUSP, STOP),
                          (STOP, STOP)], list(low_actions(2)))
        three = list(low_actions(3))
        self.assertEqual(8, len(set(three)))
        self.assertEqual((STOP, SUSP, SUSP), three[1])
        self.assertEqual((SUSP, STOP, STOP), three[6])
