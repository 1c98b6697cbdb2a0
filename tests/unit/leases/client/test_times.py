# SPDX-License-Identifier: Apache-2.0

"""Tests of times and durations on the command line."""

import argparse
import datetime
import unittest

from secondary_scheduler.leases.client import times


class TimesTest(unittest.TestCase):

    def test_durations_are_parsed(self):
        for text, seconds in (('90', 90), ('90s', 90), ('2h', 7200),
                              ('1h30m', 5400), ('1d12h', 129600),
                              ('1m1', 61)):
            self.assertEqual(seconds, times.parse_duration(text), text)
        for text in ('', 'h', '2x', '-1', '1.5h', '30m1h', '2 h'):
            with self.subTest(text), self.assertRaises(
                    argparse.ArgumentTypeError):
                times.parse_duration(text)

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
