"""What hosts can be counted on to lend."""

import pytest

from secondary_scheduler.leases.engine import capacity
from secondary_scheduler.leases.engine.values import LeaseHost


def lendable(amounts, window=3600.0, risk=0.5, period=2.0):
    """Return what is counted on of a host that could lend so many slots."""
    found = capacity.Lendable(window, risk)
    for number, slots in enumerate(amounts):
        one = (slots,) * 4
        found.note({'h': LeaseHost('h', (9,) * 4, one)}, number * period)
    return found


@pytest.mark.parametrize('risk, expected', ((0.0, 0), (0.05, 0), (0.2, 8)))
def test_who_is_closed_for_a_tenth_of_the_time(risk, expected):
    amounts = [0 if number % 100 < 10 else 8 for number in range(5000)]
    assert lendable(amounts, risk=risk).of('h') == (expected,) * 4


def test_only_the_window_counts():
    assert lendable([0] * 4000 + [8] * 2000).of('h') == (8,) * 4


def test_a_day_is_no_more_to_look_through_than_an_hour():
    found = lendable(range(50_000), window=86_400.0)
    assert len(found._seen['h']._seen) <= 128


def test_who_is_not_there_lends_nothing():
    found = lendable([8])
    found.note({}, 2.0)
    assert found.of('h') == (0,) * 4
