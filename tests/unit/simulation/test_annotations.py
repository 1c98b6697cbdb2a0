"""What is drawn for traces: distributions, and that seeds repeat it."""

import collections
import math

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.simulation.workloads import annotations
from secondary_scheduler.simulation.workloads.annotations import (
    Annotation,
    Reservations,
)
from secondary_scheduler.simulation.workloads.requests import TraceRequest
from tests.unit.leases.scheduling.builders import NEED, terms

NUMBER = 200_000


def jobs(number, users=7):
    return [TraceRequest(str(index), 60 * index, terms(
        1 + index % 5, 600, user=f'u{index % users}'), 300)
        for index in range(number)]


@pytest.mark.parametrize('draw, share', (
    (annotations.low, 0.733), (annotations.even, 0.2),
    (annotations.high, 0.022)))
def test_how_many_are_in_the_lowest_fifth(draw, share):
    """The specification's vectors (Haizea 6.2)."""
    drawn = draw(np.random.default_rng(1), NUMBER)
    assert drawn.min() >= 0 and drawn.max() <= 1
    assert np.mean(drawn < 0.2) == pytest.approx(share, abs=0.004)


def test_one_is_the_other_mirrored():
    low, high = (draw(np.random.default_rng(1), 1000)
                 for draw in (annotations.low, annotations.high))
    assert np.allclose(low, 1 - high)


@given(start=st.sampled_from(sorted(annotations.STARTS)),
       deadline=st.sampled_from(sorted(annotations.DEADLINES)),
       users=st.sampled_from(sorted(annotations.USERS)),
       seed=st.integers(0, 2 ** 32))
def test_what_is_drawn_is_within_its_bounds(start, deadline, users, seed):
    asked = jobs(20)
    found = Annotation(start, deadline, users, seed).of(asked)
    assert found == Annotation(start, deadline, users, seed).of(asked)
    rates = collections.defaultdict(set)
    for before, after in zip(asked, found, strict=True):
        assert 0 <= after.terms.start - before.arrival <= annotations.START
        spare = (after.terms.deadline - after.terms.start
                 - after.terms.duration)
        assert 0 <= spare <= annotations.DEADLINE
        assert after.terms.kind in (LeaseKind.DEADLINE, LeaseKind.RESERVATION)
        assert 0.1 <= after.terms.max_rate <= 10.0
        rates[after.terms.user].add(after.terms.max_rate)
        assert (after.id, after.runs, after.terms.nodes) == (
            before.id, before.runs, before.terms.nodes)
    assert all(len(of_user) == 1 for of_user in rates.values())


def test_with_other_deadlines_starts_are_the_same():
    tight, loose = (Annotation('late', deadline, 'cheap', 1).of(jobs(50))
                    for deadline in ('tight', 'loose'))
    assert ([(one.terms.start, one.terms.max_rate) for one in tight]
            == [(one.terms.start, one.terms.max_rate) for one in loose])
    assert (sum(one.terms.deadline for one in tight)
            < sum(one.terms.deadline for one in loose))


def test_constant_users_pay_one():
    found = Annotation('early', 'tight', 'constant', 1).of(jobs(5))
    assert {one.terms.max_rate for one in found} == {1.0}


def test_nobody_known_has_a_rate_of_their_own():
    asked = [TraceRequest(str(index), 0, terms(1, 10), 10)
             for index in range(40)]
    found = Annotation('early', 'tight', 'uniform', 1).of(asked)
    assert len({one.terms.max_rate for one in found}) > 30


@given(share=st.sampled_from((0.05, 0.1, 0.3)), hours=st.integers(1, 4),
       size=st.sampled_from(sorted(annotations.SIZES)),
       seed=st.integers(0, 2 ** 32))
def test_reservations_take_their_share(share, hours, size, seed):
    hosts, seconds = 144, 30 * annotations.DAY
    nodes = annotations.SIZES[size]
    drawn = Reservations(share, hours, nodes).draw(hosts, seconds, NEED, seed)
    took = [one.terms.duration * one.terms.nodes[0].number for one in drawn]
    wanted = share * hosts * seconds
    assert wanted <= sum(took) < wanted + took[-1]
    for one in drawn:
        assert abs(one.terms.duration - 3600 * hours) <= 1800
        assert nodes[0] <= one.terms.nodes[0].number <= nodes[1]
        assert one.terms.kind is LeaseKind.RESERVATION
        assert not one.terms.preemptible
        assert one.arrival == max(0, one.terms.start - annotations.DAY)
    every = seconds // len(drawn)
    gaps = np.diff([0, *(one.terms.start for one in drawn)])
    assert every <= gaps.min() and gaps.max() <= every + 60


def test_the_other_jitter():
    """An hour less or more; starts may change places (DEF-7)."""
    drawn = Reservations(0.3, 1, (25, 48), (-3600, 3600)).draw(
        144, 30 * annotations.DAY, NEED, 1, 'r')
    every = 30 * annotations.DAY // len(drawn)
    gaps = np.diff([one.terms.start for one in drawn])
    assert gaps.min() < 0 < every < gaps.max() <= every + 3600
    assert drawn[0].id == 'r1'
    assert math.isclose(gaps.mean(), every, rel_tol=0.2)


@pytest.mark.parametrize('images, share', (
    (annotations.UNIFORM_IMAGES, 0.2), (annotations.SKEWED_IMAGES, 0.8)))
def test_a_fifth_of_the_images_is_in_so_many_leases(images, share):
    drawn = images.of(jobs(5000), 1)
    names = [one.terms.image for one in drawn]
    assert len(set(names)) == 40
    common = {f'image-{number}' for number in range(8)}
    assert sum(name in common for name in names) / 5000 == pytest.approx(
        share, abs=0.02)
    assert {one.terms.image_mb for one in drawn} == {4096}
    assert drawn == images.of(jobs(5000), 1) != images.of(jobs(5000), 2)
