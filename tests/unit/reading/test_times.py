# SPDX-License-Identifier: Apache-2.0

"""Tests of times and their bounds."""

import datetime
import math
import unittest

from hypothesis import given

from secondary_scheduler.reading import times
from secondary_scheduler.reading.values import InputError
from tests.unit import fuzzing


class TimesTest(unittest.TestCase):

    def test_bounds_are_compared_in_utc(self):
        for text, seconds in (
                ('2000-01-01T00:00:00Z', times.FIRST),
                ('1999-12-31T12:00:00-12:00', times.FIRST),
                ('2099-12-31T23:59:59Z', times.LAST),
                ('2100-01-01T11:59:59+12:00', times.LAST),
                ('2099-12-31T23:59:59.999999Z', times.LAST),
                ('2027-01-31T08:00', 1801382400)):
            self.assertEqual(seconds, times.parse_time(text), text)
        for text in ('2099-12-31T23:59:59-12:00', '2100-01-01T00:00:00Z',
                     '2000-01-01T00:00:00+12:00', '9999-12-31T23:59-12:00',
                     '0001-01-01T00:00+12:00'):
            with self.subTest(text), self.assertRaisesRegex(
                    InputError, '^expected a time from 2000-01-01T00:00:00Z '
                    'to 2099-12-31T23:59:59Z$'):
                times.parse_time(text)

    def test_texts_that_are_no_time_are_refused(self):
        for text in ('', '2027-02-30T08:00Z', '2016-12-31T23:59:60Z',
                     '2027-01-31T08:00+24:00', '2027-01-31T08:00:00Z\n',
                     '9' * 5000, '٢٠٢٧-01-31T08:00Z'):
            with self.subTest(text[:30]), self.assertRaisesRegex(
                    InputError, 'there is no such time') as caught:
                times.parse_time(text)
            self.assertLess(len(str(caught.exception)), 120)

    def test_days_are_bounded(self):
        self.assertEqual(datetime.date(2099, 12, 31),
                         times.parse_day('2099-12-31'))
        for text in ('1999-12-31', '2100-01-01', '9999-12-31', '0001-01-01'):
            with self.subTest(text), self.assertRaisesRegex(
                    InputError, 'expected a day from 2000-01-01'):
                times.parse_day(text)
        for text in ('2027-02-30', '', '9' * 5000):
            with self.subTest(text[:30]), self.assertRaisesRegex(
                    InputError, 'no such day'):
                times.parse_day(text)

    def test_any_number_of_seconds_can_be_shown(self):
        for seconds in (times.LAST, times.LAST + 1, 1e12, 1e300, math.inf):
            self.assertEqual(times.LAST_TEXT, times.format_time(seconds))
            self.assertLessEqual(times.to_datetime(seconds).year, 9999)
        self.assertEqual(times.FIRST_TEXT, times.format_time(times.FIRST))

    @given(fuzzing.times())
    def test_accepted_time_can_be_shown_and_read_again(self, text):
        try:
            found = times.parse_time(text)
        except InputError as exc:
            self.assertRegex(str(exc), 'no such time|expected a time')
        else:
            self.assertEqual(found, times.parse_time(times.format_time(found)))
