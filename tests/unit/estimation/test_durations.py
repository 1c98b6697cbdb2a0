# SPDX-License-Identifier: Apache-2.0

"""Regressions of Boettger 2012, eq. 4.3 to 4.8, against tables."""

from fractions import Fraction
import math
import unittest

from secondary_scheduler.estimation.durations import (
    Concurrency,
    ConcurrentDurations,
    DurationInput,
    Durations,
)
from secondary_scheduler.plans.operations import KINDS

COUNTS = range(49)
#: Formulas: 5.3 + n, 0.35 + n / 12.5, 9.2 + n, 21 + n, 0.85 + 3.75 n.
SUSPEND = [*range(6, 55)]       # the first is for no rival
STOP = [1] * 9 + [2] * 12 + [3] * 13 + [4] * 12 + [5] * 3
RESUME = [*range(10, 59)]
START = [*range(21, 70)]
MIGRATE = [
    1, 5, 9, 13, 16, 20, 24, 28, 31, 35, 39, 43, 46, 50, 54, 58, 61, 65, 69,
    73, 76, 80, 84, 88, 91, 95, 99, 103, 106, 110, 114, 118, 121, 125, 129,
    133, 136, 140, 144, 148, 151, 155, 159, 163, 166, 170, 174, 178, 181]
#: Formula of section A.5: 0.85 n + 3.75.
SWAPPED = [
    4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 13, 14, 14, 15, 16, 17, 18, 19, 20, 20,
    21, 22, 23, 24, 25, 25, 26, 27, 28, 29, 30, 31, 31, 32, 33, 34, 35, 36,
    37, 37, 38, 39, 40, 41, 42, 42, 43, 44, 45]


def exact(base, each):
    """Return a table, computed without floating point."""
    return [math.ceil(Fraction(base) + Fraction(each) * n) for n in COUNTS]


class TestFormulas(unittest.TestCase):

    def setUp(self):
        self.model = ConcurrentDurations()

    def alike(self, table, job, rivals):
        self.assertEqual(table, [
            self.model.among(job, Concurrency.of(rivals(n)))
            for n in COUNTS])

    def test_the_tables_are_the_printed_formulas(self):
        self.assertEqual(exact('5.3', 1), SUSPEND)
        self.assertEqual(exact('0.35', Fraction(1) / Fraction('12.5')), STOP)
        self.assertEqual(exact('9.2', 1), RESUME)
        self.assertEqual(exact(21, 1), START)
        self.assertEqual(exact('0.85', '3.75'), MIGRATE)
        self.assertEqual(exact('3.75', '0.85'), SWAPPED)

    def test_suspends_are_serialised_in_the_cluster(self):
        job = DurationInput('suspend', 'a')
        self.alike(SUSPEND, job, lambda n: [DurationInput('suspend', f'h{i}')
                                            for i in range(n)])
        others = [
            DurationInput('stop', 'a'),
            DurationInput('migrate', 'a', 'b'),
            DurationInput('resume', 'a', 'a'),
            DurationInput('start', 'a', 'a'),
        ] * 3
        self.alike(SUSPEND, job, lambda n: [job] * n + others)

    def test_stops_compete_with_suspends(self):
        job = DurationInput('stop', 'a')
        self.alike(STOP, job, lambda n: [job] * n)
        self.alike(STOP, job, lambda n: [job] * (n // 2)
                   + [DurationInput('suspend', 'b')] * (n - n // 2))

    def test_starts_and_resumes_compete_for_reads(self):
        resume, start = DurationInput(
            'resume', 'a', 'a'), DurationInput('start', 'b', 'b')
        self.alike(RESUME, resume, lambda n: [resume] * n)
        self.alike(START, start, lambda n: [start] * n)
        self.alike(
            START,
            start,
            lambda n: (
                [start] * (n // 3)
                + [resume] * (n - n // 3)
                + [DurationInput('suspend', 'a')] * 5
            ),
        )

    def test_migrations_compete_on_their_hosts(self):
        job = DurationInput('migrate', 'a', 'b')
        self.alike(MIGRATE, job, lambda n: [job] * n)
        self.alike(MIGRATE, job, lambda n: [
            DurationInput('migrate', 'a', f'h{i}') for i in range(n)])
        self.alike(MIGRATE, job, lambda n: [
            DurationInput('migrate', f'h{i}', 'b') for i in range(n)])
        self.alike(MIGRATE, job, lambda n: [DurationInput('suspend', 'a')] * n)
        self.alike(MIGRATE, job, lambda n: [
                   DurationInput('start', 'b', 'b')] * n)
        self.alike(MIGRATE[:1] * 49, job, lambda n: [
            DurationInput('migrate', 'c', 'd'), DurationInput(
                'migrate', 'b', 'a'),
            DurationInput('stop', 'a'), DurationInput('suspend', 'b')] * n)

    def test_count_stops_follows_the_equations_literally(self):
        self.model = ConcurrentDurations(count_stops=True)
        for table, job in (
            (SUSPEND, DurationInput('suspend', 'a')),
            (MIGRATE, DurationInput('migrate', 'a', 'b')),
            (STOP, DurationInput('stop', 'a')),
        ):
            self.alike(table, job, lambda n: [DurationInput('stop', 'a')] * n)
        self.alike(MIGRATE[:1] * 49, DurationInput('migrate', 'a', 'b'),
                   lambda n: [DurationInput('stop', 'b')] * n)

    def test_swapped_coefficients(self):
        self.model = ConcurrentDurations(migrate_base=3.75, migrate_each=.85)
        job = DurationInput('migrate', 'a', 'b')
        self.alike(SWAPPED, job, lambda n: [job] * n)


class TestSets(unittest.TestCase):

    def test_ongoing_operations_count(self):
        jobs = [
            DurationInput('suspend', 'a'),
            DurationInput('migrate', 'a', 'b'),
            DurationInput('stop', 'c'),
            DurationInput('resume', 'b', 'b'),
        ]
        model = ConcurrentDurations()
        # migrate: two leave a, two arrive on b
        self.assertEqual([7, 9, 1, 11], model.predict_all(jobs))
        self.assertEqual([8, 13, 1, 11], model.predict_all(
            jobs, [DurationInput('suspend', 'a')]))
        self.assertEqual([3, 5, 2, 3], Durations().predict_all(jobs))
        self.assertEqual([], model.predict_all([]))

    def test_number_of_operations_within_a_deadline(self):
        # The deadline is one second before the time limit.
        model = ConcurrentDurations()
        for timelimit, suspends, migrations in (
                (5, 0, 0), (10, 3, 2), (25, 18, 6), (50, 43, 12)):
            self.assertEqual(suspends, max((
                n for n in range(1, 60)
                if model.predict_all([DurationInput('suspend')] * n)[0]
                <= timelimit - 1), default=0))
            self.assertEqual(migrations, max((
                n for n in range(1, 60)
                if model.predict_all([
                    DurationInput('migrate', 'a', f'{i}') for i in range(n)
                ])[0] <= timelimit - 1), default=0))

    def test_every_kind_has_a_duration(self):
        self.assertEqual([5, 3, 3, 2, 5, 10, 15],
                         [Durations().predict(kind) for kind in KINDS])
        model = ConcurrentDurations()
        self.assertEqual([5, 7, 11, 1, 22, 7, 22],
                         [model.predict(kind) for kind in KINDS])
