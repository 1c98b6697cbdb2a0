# SPDX-License-Identifier: Apache-2.0

"""Tests of times and durations on the command line."""

import argparse
import datetime
import unittest

from hypothesis import given

from secondary_scheduler.leases.api import schema_parts
from secondary_scheduler.leases.client import times
from tests.unit import fuzzing


class TimesTest(unittest.TestCase):

    def test_durations_are_parsed(self):
        for text, seconds in (('90', 90), ('90s', 90), ('2h', 7200),
                              ('1h30m', 5400), ('1d12h', 129600),
                              ('1m1', 61)):
            self.assertEqual(seconds, times.parse_duration(text), text)
        self.assertEqual(315_360_000, times.parse_duration('3650d'))
        for text in ('', 'h', '2x', '-1', '1.5h', '30m1h', '2 h', '٣h',
                     '3650d1s', '999999999999d', '9' * 5000, '1h\n'):
            with self.subTest(text), self.assertRaises(
                    argparse.ArgumentTypeError):
                times.parse_duration(text)

    @given(fuzzing.times() | fuzzing.times().map('+{}'.format))
    def test_time_is_refused_or_converted(self, text):
        try:
            found = times.parse_time(text)
        except argparse.ArgumentTypeError as exc:
            self.assertLess(len(str(exc)), 400)
        else:
            self.assertRegex(found, schema_parts.MOMENT_PATTERN)

    def test_times_out_of_the_calendar_are_refused(self):
        now = datetime.datetime(2099, 12, 31, 23, 0, tzinfo=datetime.UTC)
        self.assertEqual('2099-12-31T23:59:59Z',
                         times.parse_time('+3599', now))
        for text, says in (
                ('+999999999999d', 'not a duration of at most ten years'),
                ('+' + '9' * 5000, 'not a duration of at most ten years'),
                ('+1h', 'expected a time from 2000-01-01T00:00:00Z to 2099'),
                ('9999-12-31T23:59-12:00', 'expected a time from 2000'),
                ('0001-01-01T00:00+12:00', 'expected a time from 2000'),
                ('2099-12-31T23:59:59-12:00', 'expected a time from 2000')):
            with self.subTest(text[:30]), self.assertRaisesRegex(
                    argparse.ArgumentTypeError, says):
                times.parse_time(text, now)

    def test_days_are_parsed(self):
        self.assertEqual('2099-12-31', times.parse_day('2099-12-31'))
        for text in ('9999-12-31', '0001-01-01', '2027-02-30', 'today'):
            with self.subTest(text), self.assertRaises(
                    argparse.ArgumentTypeError):
                times.parse_day(text)

    def test_times_are_parsed(self):
        now = datetime.datetime(2027, 1, 31, 8, tzinfo=datetime.UTC)
        for text in ('+1h30m', '2027-01-31T09:30', '2027-01-31 09:30:00',
                     '2027-01-31T10:30+01:00', '2027-01-31T09:30:00Z'):
            self.assertEqual('2027-01-31T09:30:00Z',
                             times.parse_time(text, now))
        self.assertIsNone(times.parse_time_or_none('none'))
        for text in ('soon', '2027-02-30', '+soon'):
            with self.subTest(text), self.assertRaises(
                    argparse.ArgumentTypeError):
                times.parse_time(text, now)
