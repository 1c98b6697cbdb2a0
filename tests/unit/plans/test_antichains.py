# SPDX-License-Identifier: Apache-2.0

"""Heaviest antichains, against an enumeration of all sets."""

import itertools
import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.plans.antichains import (
    count_chains,
    heaviest_antichain,
)


@st.composite
def orders(draw):
    """Draw weights and a strict order, given by its pairs."""
    count = draw(st.integers(0, 7))
    weights = draw(st.lists(st.integers(0, 9), min_size=count,
                            max_size=count))
    links = [pair for pair in itertools.combinations(range(count), 2)
             if draw(st.booleans())]
    closed = set(links)
    for middle, first, last in itertools.product(range(count), repeat=3):
        if (first, middle) in closed and (middle, last) in closed:
            closed.add((first, last))
    return weights, closed


def is_antichain(some, order):
    return not any((one, other) in order
                   for one, other in itertools.permutations(some, 2))


class TestAntichains(unittest.TestCase):

    @given(orders())
    def test_weight_is_the_largest_of_all_sets(self, drawn):
        weights, order = drawn
        self.assertEqual(
            max(sum(weights[one] for one in some)
                for size in range(len(weights) + 1)
                for some in itertools.combinations(range(len(weights)), size)
                if is_antichain(some, order)),
            heaviest_antichain(weights, lambda one, other:
                               (one, other) in order))

    @given(orders())
    def test_chains_found_one_by_one_are_an_upper_bound(self, drawn):
        weights, order = drawn

        def precedes(one, other):
            return (one, other) in order

        self.assertLessEqual(
            heaviest_antichain([1] * len(weights), precedes),
            count_chains(range(len(weights)), precedes))

    def test_long_chain_is_one(self):
        self.assertEqual(1, count_chains(range(1000), int.__lt__))
        self.assertEqual(7, heaviest_antichain([7] * 300, int.__lt__))
