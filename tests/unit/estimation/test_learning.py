# SPDX-License-Identifier: Apache-2.0

"""Durations learned from completed operations."""

import random
import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.estimation import learning, precopy
from secondary_scheduler.estimation.durations import (
    ConcurrentDurations,
    DurationInput,
    Durations,
)
from secondary_scheduler.estimation.learning import Observed, Point
from secondary_scheduler.model.cluster import DirtyMemory


def drawn(rng, kind, base, each, noise, count=60):
    """Draw operations with 1 to 4 rivals and log-normal noise."""
    return [Point(kind, n, (base + each * n) * rng.lognormvariate(0, noise))
            for n in (rng.randint(1, 4) for _ in range(count))]


class TestPoints(unittest.TestCase):

    def test_rivals_are_the_mean_over_the_time(self):
        seen = [Observed(DurationInput('suspend', 'a'), 0.0, 10.0),
                Observed(DurationInput('suspend', 'b'), 5.0, 10.0),
                Observed(DurationInput('resume', 'a', 'a'), 0.0, 10.0),
                Observed(DurationInput('suspend', 'c'), 12.0, 13.0)]
        found = {(p.kind, p.seconds): p.rivals for p in learning.points(seen)}
        self.assertEqual({('suspend', 10.0): 1.5, ('suspend', 5.0): 2.0,
                          ('resume', 10.0): 1.0, ('suspend', 1.0): 1.0},
                         found)

    def test_migrations_share_a_host(self):
        seen = [Observed(DurationInput('migrate', 'a', 'b'), 0.0, 4.0),
                Observed(DurationInput('migrate', 'c', 'b'), 0.0, 4.0),
                Observed(DurationInput('migrate', 'd', 'e'), 0.0, 4.0)]
        self.assertEqual([2.0, 2.0, 1.0],
                         [p.rivals for p in learning.points(seen)])

    def test_operation_with_negative_duration_is_ignored(self):
        self.assertEqual([], learning.points(
            [Observed(DurationInput('stop', 'a'), 5.0, 4.0)]))

    @given(st.lists(st.tuples(st.sampled_from(('stop', 'resume', 'migrate')),
                              st.floats(0, 100), st.floats(0.1, 20)),
                    max_size=12))
    def test_operation_is_its_own_rival(self, rows):
        seen = [Observed(DurationInput(kind, 'a', 'b'), begin, begin + seconds)
                for kind, begin, seconds in rows]
        for point in learning.points(seen):
            self.assertGreaterEqual(point.rivals, 1 - 1e-6)
            self.assertLessEqual(point.rivals, len(seen) + 1e-6)


class TestFit(unittest.TestCase):

    def test_fit_recovers_a_line(self):
        learned = learning.fit(drawn(random.Random(1), 'migrate', 0.85, 3.75,
                                     0.0))
        line = learned.lines['migrate']
        self.assertAlmostEqual(0.85, line.base)
        self.assertAlmostEqual(3.75, line.each)
        self.assertAlmostEqual(1.0, line.bound)
        self.assertAlmostEqual(
            0.85 + 2 * 3.75,
            learned.predict_all(
                [DurationInput('migrate', 'a', 'b')],
                [DurationInput('migrate', 'c', 'b')],
            )[0],
        )
        self.assertAlmostEqual(4.6, learned.predict('migrate'))

    def test_duration_grows_with_memory(self):
        rng = random.Random(7)
        seen = [Point(kind, crowd, 2.0 + 3.0 * crowd * size / 512, size)
                for kind in ('migrate', 'stop')
                for crowd, size in ((rng.randint(1, 3), rng.choice(
                    (256, 512, 512, 4096))) for _one in range(40))]
        learned = learning.fit(seen)
        self.assertEqual(512, learned.lines['migrate'].typical_mb)
        for size, seconds in ((512, 5.0), (2048, 14.0), (8192, 50.0),
                              (0, 5.0)):
            self.assertAlmostEqual(seconds, learned.predict_all(
                [DurationInput('migrate', 'a', 'b', size)])[0])
        self.assertEqual(0, learned.lines['stop'].typical_mb)
        self.assertLess(learning.held_out(seen)['migrate'].error, 1e-6)

    def test_writes_prolong_a_migration(self):
        rng, bandwidth = random.Random(8), 100.0
        seen = []
        for _one in range(60):
            crowd, dirty = rng.randint(1, 2), rng.choice((0, 20, 40))
            calm = 2.0 + 5.0 * crowd
            dirty = DirtyMemory(dirty, 4 * dirty)
            longer = precopy.longer_s(512, dirty, bandwidth)
            seen.append(Point('migrate', crowd, calm + crowd * longer, 512,
                              dirty))
            seen.append(Point('suspend', crowd, calm, 512, dirty))
        learned = learning.fit(seen, bandwidth_mb_s=bandwidth)
        for kind in ('migrate', 'suspend'):
            self.assertAlmostEqual(2.0, learned.lines[kind].base)
            self.assertAlmostEqual(5.0, learned.lines[kind].each)
        for job, more in (
            (
                DurationInput('migrate', 'a', 'b', 512, DirtyMemory(20, 80)),
                precopy.longer_s(512, DirtyMemory(20, 80), bandwidth),
            ),
            (
                DurationInput('suspend', 'a', None, 512, DirtyMemory(20, 80)),
                0.0,
            ),
        ):
            self.assertAlmostEqual(7.0 + more, learned.predict_all([job])[0])
        # A migration that would not converge runs at the floor.
        self.assertAlmostEqual(
            7.0,
            learned.predict_all(
                [
                    DurationInput(
                        'migrate', 'a', 'b', 512, DirtyMemory(100, 500)
                    )
                ]
            )[0],
        )
        errors = [learning.held_out(seen, bandwidth_mb_s=known)['migrate']
                  .error for known in (bandwidth, None)]
        self.assertLess(errors[0], 1e-6)
        self.assertGreater(errors[1], 0.01)

    def test_unknown_memory_counts_as_typical(self):
        seen = [Point('suspend', n, 1.0 + n, size)
                for n in (1, 2, 3) for size in (0, 512, 512)]
        line = learning.fit(seen).lines['suspend']
        self.assertAlmostEqual(3.0, line.at(2))
        self.assertAlmostEqual(5.0, line.at(2, 1024))

    def test_outliers_do_not_change_the_fit(self):
        rng = random.Random(2)
        seen = drawn(rng, 'suspend', 3.0, 1.0, 0.05, 50)
        calm = learning.fit(seen).predict('suspend')
        seen += [Point('suspend', 1.0, 600.0)] * 5
        self.assertAlmostEqual(calm, learning.fit(seen).predict('suspend'),
                               delta=0.15)

    def test_prior_is_used_with_few_samples(self):
        prior = ConcurrentDurations()
        learned = learning.fit(drawn(random.Random(3), 'start', 1, 1, 0.1,
                                     learning.FEWEST - 1), prior)
        self.assertEqual(prior.predict('start'), learned.predict('start'))
        self.assertEqual(Durations().predict('stop'),
                         learning.fit([]).predict('stop'))

    def test_lines_are_positive_and_never_fall(self):
        rng = random.Random(4)
        for base, each in ((9.0, -2.0), (-3.0, 4.0)):
            seen = [Point('resume', n, max(0.5, base + each * n)
                          * rng.lognormvariate(0, 0.1))
                    for n in (1, 2, 3, 4) * 10]
            line = learning.fit(seen).lines['resume']
            self.assertGreaterEqual(line.each, 0)
            self.assertGreater(line.at(1), 0)


class TestHeldOut(unittest.TestCase):

    def test_score_has_error_and_coverage(self):
        rng = random.Random(5)
        seen = [point for kind, base, each in (('migrate', 0.85, 3.75),
                                               ('suspend', 5.3, 1.0))
                for point in drawn(rng, kind, base, each, 0.1, 240)]
        rng.shuffle(seen)
        for score in learning.held_out(seen).values():
            self.assertEqual(240, score.operations)
            # The median of |lognormal(0, 0.1) - 1| is 0.067.
            self.assertAlmostEqual(0.067, score.error, delta=0.02)
            self.assertAlmostEqual(0.9, score.coverage, delta=0.05)

    def test_unexplained_variation_shows_as_error(self):
        rng = random.Random(6)
        seen = [Point('stop', 1.0, rng.uniform(1.0, 10.0))
                for _ in range(90)]
        self.assertGreater(learning.held_out(seen)['stop'].error, 0.3)
