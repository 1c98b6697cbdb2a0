# SPDX-License-Identifier: Apache-2.0

"""Drawn terms of traces: distributions and seeds."""

import collections
import math
import unittest

from hypothesis import given
from hypothesis import strategies as st
import numpy as np

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
    return [
        TraceRequest(
            str(index),
            60 * index,
            terms(1 + index % 5, 600, user=f'u{index % users}'),
            300,
        )
        for index in range(number)
    ]


class AnnotationTest(unittest.TestCase):
    def test_share_of_values_in_the_lowest_fifth(self):
        for draw, share in (
            (annotations.low, 0.733),
            (annotations.even, 0.2),
            (annotations.high, 0.022),
        ):
            with self.subTest(draw=draw, share=share):
                drawn = draw(np.random.default_rng(1), NUMBER)
                self.assertGreaterEqual(drawn.min(), 0)
                self.assertLessEqual(drawn.max(), 1)
                self.assertAlmostEqual(
                    share, np.mean(drawn < 0.2), delta=0.004
                )

    def test_high_is_the_mirror_image_of_low(self):
        low, high = (
            draw(np.random.default_rng(1), 1000)
            for draw in (annotations.low, annotations.high)
        )
        self.assertTrue(np.allclose(low, 1 - high))

    @given(
        start=st.sampled_from(sorted(annotations.STARTS)),
        deadline=st.sampled_from(sorted(annotations.DEADLINES)),
        users=st.sampled_from(sorted(annotations.USERS)),
        seed=st.integers(0, 2**32),
    )
    def test_drawn_values_are_within_their_bounds(
        self, start, deadline, users, seed
    ):
        asked = jobs(20)
        found = Annotation(start, deadline, users, seed).annotate(asked)
        self.assertEqual(
            Annotation(start, deadline, users, seed).annotate(asked), found
        )
        rates = collections.defaultdict(set)
        for before, after in zip(asked, found, strict=True):
            self.assertLessEqual(0, after.terms.start - before.arrival)
            self.assertLessEqual(
                after.terms.start - before.arrival, annotations.START
            )
            spare = (
                after.terms.deadline - after.terms.start - after.terms.duration
            )
            self.assertLessEqual(0, spare)
            self.assertLessEqual(spare, annotations.DEADLINE)
            self.assertIn(
                after.terms.kind, (LeaseKind.DEADLINE, LeaseKind.RESERVATION)
            )
            self.assertLessEqual(0.1, after.terms.max_rate)
            self.assertLessEqual(after.terms.max_rate, 10.0)
            rates[after.terms.user].add(after.terms.max_rate)
            self.assertEqual(
                (before.id, before.runs, before.terms.nodes),
                (after.id, after.runs, after.terms.nodes),
            )
        self.assertTrue(all(len(of_user) == 1 for of_user in rates.values()))

    def test_starts_do_not_depend_on_the_distribution_of_deadlines(self):
        tight, loose = (
            Annotation('late', deadline, 'cheap', 1).annotate(jobs(50))
            for deadline in ('tight', 'loose')
        )
        self.assertEqual(
            [(one.terms.start, one.terms.max_rate) for one in loose],
            [(one.terms.start, one.terms.max_rate) for one in tight],
        )
        self.assertLess(
            sum(one.terms.deadline for one in tight),
            sum(one.terms.deadline for one in loose),
        )

    def test_constant_users_accept_a_rate_of_one(self):
        found = Annotation('early', 'tight', 'constant', 1).annotate(jobs(5))
        self.assertEqual({1.0}, {one.terms.max_rate for one in found})

    def test_requests_without_a_user_have_rates_of_their_own(self):
        asked = [
            TraceRequest(str(index), 0, terms(1, 10), 10)
            for index in range(40)
        ]
        found = Annotation('early', 'tight', 'uniform', 1).annotate(asked)
        self.assertGreater(len({one.terms.max_rate for one in found}), 30)

    @given(
        share=st.sampled_from((0.05, 0.1, 0.3)),
        hours=st.integers(1, 4),
        size=st.sampled_from(sorted(annotations.SIZES)),
        seed=st.integers(0, 2**32),
    )
    def test_reservations_take_their_share(self, share, hours, size, seed):
        hosts, seconds = 144, 30 * annotations.DAY
        nodes = annotations.SIZES[size]
        drawn = Reservations(share, hours, nodes).draw(
            hosts, seconds, NEED, seed
        )
        took = [
            one.terms.duration * one.terms.nodes[0].number for one in drawn
        ]
        wanted = share * hosts * seconds
        self.assertLessEqual(wanted, sum(took))
        self.assertLess(sum(took), wanted + took[-1])
        for one in drawn:
            self.assertLessEqual(abs(one.terms.duration - 3600 * hours), 1800)
            self.assertLessEqual(nodes[0], one.terms.nodes[0].number)
            self.assertLessEqual(one.terms.nodes[0].number, nodes[1])
            self.assertIs(LeaseKind.RESERVATION, one.terms.kind)
            self.assertFalse(one.terms.preemptible)
            self.assertEqual(
                max(0, one.terms.start - annotations.DAY), one.arrival
            )
        every = seconds // len(drawn)
        gaps = np.diff([0, *(one.terms.start for one in drawn)])
        self.assertLessEqual(every, gaps.min())
        self.assertLessEqual(gaps.max(), every + 60)

    def test_jitter_of_an_hour_may_exchange_starts(self):
        drawn = Reservations(0.3, 1, (25, 48), (-3600, 3600)).draw(
            144, 30 * annotations.DAY, NEED, 1, 'r'
        )
        every = 30 * annotations.DAY // len(drawn)
        gaps = np.diff([one.terms.start for one in drawn])
        self.assertLess(gaps.min(), 0)
        self.assertLess(0, every)
        self.assertLess(every, gaps.max())
        self.assertLessEqual(gaps.max(), every + 3600)
        self.assertEqual('r1', drawn[0].id)
        self.assertTrue(math.isclose(gaps.mean(), every, rel_tol=0.2))

    def test_common_images_are_in_their_share_of_leases(self):
        for images, share in (
            (annotations.UNIFORM_IMAGES, 0.2),
            (annotations.SKEWED_IMAGES, 0.8),
        ):
            with self.subTest(images=images, share=share):
                drawn = images.add_images(jobs(5000), 1)
                names = [one.terms.image for one in drawn]
                self.assertEqual(40, len(set(names)))
                common = {f'image-{number}' for number in range(8)}
                self.assertAlmostEqual(
                    share,
                    sum(name in common for name in names) / 5000,
                    delta=0.02,
                )
                self.assertEqual({4096}, {one.terms.image_mb for one in drawn})
                self.assertEqual(images.add_images(jobs(5000), 1), drawn)
                self.assertNotEqual(
                    images.add_images(jobs(5000), 2),
                    images.add_images(jobs(5000), 1),
                )
