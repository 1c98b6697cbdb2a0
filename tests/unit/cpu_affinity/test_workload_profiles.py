# SPDX-License-Identifier: Apache-2.0

"""Profiles of workload classes: validation and completion."""

import json
import math
import unittest

import hypothesis
from hypothesis import strategies

from secondary_scheduler.cpu_affinity import workload_profiles
from secondary_scheduler.cpu_affinity.workload_profiles import SlowdownMatrix
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.affinity import thesis_host


def document(**changes):
    """Return a valid document with changes."""
    return {'classes': ['a', 'b'],
            'uses': {'a': {'cpu': 59, 'network': 5.5},
                     'b': {'cpu': 100, 'disk': None}},
            'time_sharing': [[1.25, 1.2], [1.84, 2]],
            'space_sharing': [[1, 1], [1.5, 1.1]]} | changes


def measured(**changes):
    """Return a valid measurement with changes in its first slow-down."""
    return {'cpu_model': 'EPYC', 'kernel': '6.1', 'metric': 'units',
            'seconds': 10.0, 'unknown': ['SMT sibling: one thread per core'],
            'slowdowns': [{'victim': 'a', 'neighbour': 'b',
                           'place': 'same CPU', 'median': 1.2,
                           'deviation': 0.1414, 'values': [1.1, 1.3],
                           'cpu_values': [1.0]} | changes]}


class TestParsing(unittest.TestCase):

    def test_document_is_read_with_the_victim_first(self):
        found = workload_profiles.parse_profiles(document())
        self.assertEqual(1.2, found.time_sharing.slowdown('a', 'b'))
        self.assertEqual(1.84, found.time_sharing.slowdown('b', 'a'))
        self.assertEqual(1.5, found.space_sharing.slowdown('b', 'a'))
        self.assertEqual(5.5, found.use('a').network)
        self.assertIsNone(found.use('b').disk)
        self.assertIsNone(workload_profiles.parse_profiles(
            document(space_sharing=None)).space_sharing)

    def test_wrong_documents_are_refused_with_the_place(self):
        for changes, text in (
                ({'time_sharing': [[1, 1]]}, 'time_sharing: expected 2 rows'),
                ({'time_sharing': [[1, 1], [1]]},
                 r'time_sharing\[b\]: expected 2 entries'),
                ({'time_sharing': [[1, math.nan], [1, 1]]},
                 r'time_sharing\[a\]\[b\]: expected a number from 1.*NaN'),
                ({'time_sharing': [[1, 1], [0.99, 1]]},
                 r'time_sharing\[b\]\[a\]: .*not 0.99'),
                ({'space_sharing': [[1, 1], [1, math.inf]]},
                 r'space_sharing\[b\]\[b\]: .*not Infinity'),
                ({'time_sharing': [[1, True], [1, 1]]},
                 r'time_sharing\[a\]\[b\]: .*not true'),
                ({'time_sharing': [[1, '2'], [1, 1]]},
                 r'time_sharing\[a\]\[b\]: .*not "2"'),
                ({'time_sharing': [[None, None], [None, None]]},
                 'time_sharing: all entries are unknown'),
                ({'time_sharing': 'x'}, 'time_sharing: expected a list'),
                ({'time_sharing': None}, 'time_sharing: expected a list'),
                ({'classes': ['a', 'a']}, 'classes with different names'),
                ({'classes': 'ab'}, 'classes: expected a list of names'),
                ({'classes': [1, 2]}, 'classes: expected a list of names'),
                ({'uses': {'a': {'cpu': 1}}}, 'different classes: b'),
                ({'uses': {'a': {'cpu': 1}, 'b': {'cpu': 1},
                           'c': {'cpu': 1}}}, 'different classes: c'),
                ({'uses': {'a': {'cpu': -1}, 'b': {'cpu': 1}}},
                 r'uses\[a\]\[cpu\]: expected a number from 0.*not -1'),
                ({'uses': {'a': {'disk': 1}, 'b': {'cpu': 1}}},
                 r'uses\[a\]: expected cpu and any of'),
                ({'uses': {'a': {'cpu': 1, 'gpu': 1}, 'b': {'cpu': 1}}},
                 r'uses\[a\]: expected cpu and any of'),
                ({'uses': [1]}, 'uses: expected the use of each class'),
                ({'sharing': 1}, 'unknown: sharing'),
                ({'measurement': [1]}, 'measurement: expected an object'),
                ({'measurement': measured() | {'seconds': '1'}},
                 'measurement.seconds: expected a number'),
                ({'measurement': measured() | {'host': 'x'}},
                 'measurement.host: is not known'),
                ({'measurement': measured(place='beside')},
                 r'slowdowns\[0\].place: expected one of same CPU'),
                ({'measurement': measured(values=[])},
                 r'slowdowns\[0\].values: expected at least one'),
                ({'measurement': measured(values=[1, math.nan])},
                 r'slowdowns\[0\].values\[1\]: expected a number above 0'),
                ({'measurement': measured(values=[0])},
                 r'slowdowns\[0\].values\[0\]: .*not 0')):
            with self.subTest(changes), self.assertRaisesRegex(InputError,
                                                               text):
                workload_profiles.parse_profiles(document(**changes))
        with self.assertRaisesRegex(InputError, 'expected profiles'):
            workload_profiles.parse_profiles([1])

    def test_written_document_is_read_again(self):
        for changes in ({}, {'space_sharing': None},
                        {'measurement': measured()},
                        {'time_sharing': [[1.25, None], [None, 2]]}):
            found = workload_profiles.parse_profiles(document(**changes))
            written = workload_profiles.format_profiles(found)
            json.dumps(written, allow_nan=False)
            self.assertEqual(found, workload_profiles.parse_profiles(written))
        self.assertEqual(measured(), workload_profiles.format_profiles(
            workload_profiles.parse_profiles(document(
                measurement=measured())))['measurement'])

    @hypothesis.given(strategies.recursive(
        strategies.none() | strategies.booleans() | strategies.floats()
        | strategies.text(max_size=3) | strategies.integers(),
        lambda some: strategies.lists(some, max_size=3)
        | strategies.dictionaries(strategies.sampled_from(
            ['classes', 'uses', 'time_sharing', 'space_sharing', 'cpu', 'a',
             'kernel', 'slowdowns', 'values', 'place']),
            some, max_size=4)))
    def test_any_document_is_read_or_refused(self, anything):
        try:
            workload_profiles.parse_profiles(anything)
        except InputError as exc:
            self.assertTrue(str(exc).isascii())
        for key in ('classes', 'uses', 'time_sharing', 'space_sharing',
                    'measurement'):
            try:
                workload_profiles.parse_profiles(document(**{key: anything}))
            except InputError:
                pass


class TestCompletion(unittest.TestCase):

    def test_worst_known_row_stands_in_for_an_unknown_class(self):
        matrix = thesis_host.PROFILES.time_sharing
        for one in thesis_host.CLASSES:
            # High LAMP suffers most on average, Hadoop does most harm.
            self.assertEqual(matrix.slowdown('HL', one),
                             matrix.slowdown('new', one))
            self.assertEqual(matrix.slowdown(one, 'HA'),
                             matrix.slowdown(one, 'new'))
        self.assertEqual(2.65, matrix.slowdown(None, 'new'))

    def test_added_class_is_predicted_like_an_unknown_one(self):
        found = thesis_host.PROFILES.with_unknown(['new', 'HL', 'new'])
        self.assertEqual((*thesis_host.CLASSES, 'new'),
                         found.time_sharing.classes)
        for matrix, before in (
                (found.time_sharing, thesis_host.PROFILES.time_sharing),
                (found.space_sharing, thesis_host.PROFILES.space_sharing)):
            for victim in (*thesis_host.CLASSES, 'new', None):
                for neighbour in (*thesis_host.CLASSES, 'new', None):
                    self.assertEqual(
                        before.slowdown(victim, neighbour),
                        matrix.slowdown(victim, neighbour))
        self.assertEqual(thesis_host.PROFILES.use(None), found.use('new'))

    def test_unknown_entries_are_the_worst_of_their_row_and_column(self):
        matrix = SlowdownMatrix('m', ('a', 'b', 'c'), (
            (1.0, 1.1, None), (2.0, 1.9, 1.8), (None, 1.2, 1.3)))
        self.assertEqual(1.8, matrix.slowdown('a', 'c'))
        self.assertEqual(2.0, matrix.slowdown('c', 'a'))
        self.assertEqual(1.1, matrix.slowdown('a', 'b'))

    @hypothesis.given(strategies.integers(1, 6).flatmap(
        lambda size: strategies.lists(strategies.lists(
            strategies.none() | strategies.floats(1, 10), min_size=size,
            max_size=size), min_size=size, max_size=size)))
    def test_completed_entries_are_within_the_known_ones(self, rows):
        known = [one for row in rows for one in row if one is not None]
        hypothesis.assume(known)
        classes = tuple(map(str, range(len(rows))))
        matrix = SlowdownMatrix('m', classes, tuple(map(tuple, rows)))
        for place, victim in enumerate((*classes, None)):
            for other, neighbour in enumerate((*classes, 'x')):
                found = matrix.slowdown(victim, neighbour)
                self.assertTrue(min(known) <= found <= max(known))
                if (place < len(rows) and other < len(rows)
                        and rows[place][other] is not None):
                    self.assertEqual(rows[place][other], found)
