"""Prices, and how one is learned."""

import json

import pytest

from secondary_scheduler.leases.scheduling.pricing import (
    Adaptive,
    Constant,
    Maximum,
    Random,
    price,
)
from tests.unit.leases.scheduling.builders import terms


def test_the_specifications_vector():
    """A would pay 2, B 0.3 (Haizea 4.11)."""
    pricing = Adaptive()
    asked = terms(1, 10)
    assert pricing.rate(asked) == 1.0
    pricing.hear('A', 1.0, True)
    assert pricing.rate(asked) == 1.5
    pricing.hear('B', 1.5, False)
    # Of the estimates 0.75 and 1.5 the upper one.
    assert pricing.rate(asked) == 1.5


def test_both_bounds_are_known():
    pricing = Adaptive()
    pricing.hear('A', 1.0, True)
    pricing.hear('A', 1.5, False)
    assert pricing.rate(terms(1, 10)) == 1.25
    # What is accepted between them settles it: the estimate stays.
    pricing.hear('A', 1.25, True)
    pricing.hear('A', 0.5, False)
    assert pricing.rate(terms(1, 10)) == 1.25


def test_the_lowest_refused_and_the_highest_accepted_count():
    pricing = Adaptive()
    pricing.hear('A', 4.0, False)
    pricing.hear('A', 3.0, False)
    pricing.hear('A', 3.5, False)
    assert pricing.rate(terms(1, 10)) == 1.5
    pricing.hear('B', 2.0, True)
    pricing.hear('B', 1.0, True)
    assert pricing.rate(terms(1, 10)) == 3.0


def test_it_converges_for_one_user():
    pricing, acceptable = Adaptive(), 7.3
    for _ in range(60):
        rate = pricing.rate(terms(1, 10))
        pricing.hear('A', rate, rate <= acceptable)
    assert 0.6 * acceptable < pricing.rate(terms(1, 10)) <= acceptable


def test_what_was_learned_is_recalled():
    pricing, other, asked = Adaptive(), Adaptive(rate=9.0), terms(1, 10)
    assert pricing.learned() is None
    for user, rate, accepted in (('A', 1.0, True), ('A', 1.5, False),
                                 ('A', 1.25, True), ('B', 3.0, False)):
        pricing.hear(user, rate, accepted)
    other.hear('C', 9.0, True)
    other.recall(json.loads(json.dumps(pricing.learned())))
    assert other.rate(asked) == pricing.rate(asked) == 1.5
    for one in (pricing, other):
        one.hear('A', 0.5, False)
        one.hear('B', 2.0, False)
    assert other.rate(asked) == pricing.rate(asked) == 1.25
    other.recall(None)
    assert (other.rate(asked), other.learned()) == (9.0, None)


def test_a_price():
    assert price(terms(3, 100), 0.5) == 150.0


def test_what_does_not_learn():
    asked = terms(1, 10, user='anna', max_rate=4.0)
    constant, maximum = Constant(2.0), Maximum()
    for pricing, rate in ((constant, 2.0), (maximum, 4.0)):
        pricing.hear('anna', 1.0, False)
        assert pricing.rate(asked) == rate
    first, second = Random(seed=3), Random(seed=3)
    rates = [first.rate(asked) for _ in range(50)]
    assert rates == [second.rate(asked) for _ in range(50)]
    assert min(rates) >= 0.1 and max(rates) <= 10.0 and len(set(rates)) > 40


@pytest.mark.parametrize('quantile, rate', ((0.0, 0.5), (0.5, 1.5),
                                            (1.0, 1.5)))
def test_the_quantile(quantile, rate):
    pricing = Adaptive(quantile=quantile)
    pricing.hear('A', 1.0, True)
    pricing.hear('B', 1.0, False)
    assert pricing.rate(terms(1, 10)) == rate
