# SPDX-License-Identifier: Apache-2.0

"""Tests of the chart of a timeline."""

import unittest

from secondary_scheduler.leases.client import gantt
from tests.unit.leases.api import services


class ChartTest(unittest.TestCase):

    def slot(self, lease, begin, end, what='run', nodes=1):
        return {'lease_id': lease, 'what': what, 'nodes': nodes,
                'begin': f'2027-01-31T{begin}:00Z',
                'end': f'2027-01-31T{end}:00Z'}

    def test_chart_has_axis_rows_and_legend(self):
        slots = [self.slot('a', '08:00', '08:30', 'prepare', 3),
                 self.slot('a', '08:30', '09:00', nodes=3),
                 self.slot('b', '09:00', '10:00')]
        self.assertEqual([
            '        08:00     08:30     09:00     09:30',
            '        |         |         |         |',
            'lea (3) ..........##########',
            'b (1)   ' + ' ' * 20 + '#' * 20,
            '2027-01-31 08:00 to 10:00 UTC, 3 min a column; (n): n nodes',
            '# run, . prepare, > resume, < suspend, x shut-down'],
            gantt.draw_chart(slots, {'a': 'lea'}, 48))

    def test_chart_is_limited_to_the_window(self):
        slots = [self.slot('a', '08:00', '23:00'),
                 self.slot('b', '01:00', '02:00')]
        lines = gantt.draw_chart(slots, {}, 46, begin=services.NOW + 3600,
                           end=services.NOW + 5 * 3600)
        self.assertEqual([
            '            10:00       12:00'], lines[:1])
        self.assertEqual('a (1) ' + '#' * 24, lines[2])
        self.assertEqual('b (1)', lines[3])
        self.assertIn('09:00 to 13:00 UTC, 10 min a column', lines[4])

    def test_axis_of_seconds(self):
        lines = gantt.draw_chart([{**self.slot('a', '08:00', '08:00'),
                             'end': '2027-01-31T08:00:30Z'}], {}, 46)
        self.assertEqual(['08:00:00', '08:00:10', '08:00:20'],
                         lines[0].split())
        self.assertIn('08:00:00 to 08:00:30 UTC, 1 s a', lines[3])

    def test_axis_of_days(self):
        slots = [{**self.slot('a', '22:00', '23:00'),
                  'end': '2027-02-02T12:00:00Z'}]
        lines = gantt.draw_chart(slots, {}, 46)
        self.assertEqual('        02-01     12:00       02-02'.split(),
                         lines[0].split())
        self.assertIn('2027-01-31 22:00 to 2027-02-02 12:00', lines[3])

    def test_present_time_is_marked(self):
        slots = [self.slot('a', '08:00', '10:00')]
        for seconds, mark in ((0, '^ now'), (3600, ' ' * 20 + '^ now'),
                              (7199, ' ' * 35 + 'now ^')):
            self.assertEqual(' ' * 6 + mark, gantt.draw_chart(
                slots, {}, 46, now=services.NOW + seconds)[3])
        for seconds in (-1, 7200):
            self.assertNotIn('now', ''.join(gantt.draw_chart(
                slots, {}, 46, now=services.NOW + seconds)))

    def test_slot_without_end_is_drawn_to_the_end_of_the_chart(self):
        open_ = {**self.slot('a', '08:00', '08:00'), 'end': None}
        self.assertEqual('a (1) ' + '#' * 40, gantt.draw_chart(
            [open_, self.slot('b', '08:00', '10:00')], {}, 46)[2])
        for now, until in ((None, '09:00'), (services.NOW + 7200, '11:00')):
            lines = gantt.draw_chart([open_], {}, 46, now=now)
            self.assertEqual(1, len(lines[2].split('(1) ')[1].split()))
            self.assertIn(f'08:00 to {until} UTC', ''.join(lines))

    def test_short_slot_takes_one_column(self):
        slots = [self.slot('a', '08:00', '20:00'),
                 self.slot('a', '12:00', '12:01', 'suspend')]
        row = gantt.draw_chart(slots, {}, 40)[2]
        self.assertEqual(1, row.count('<'))

    def test_long_name_is_cut(self):
        lines = gantt.draw_chart(
            [self.slot('x' * 300, '08:00', '09:00')], {}, 60)
        self.assertLessEqual(max(map(len, lines[2:3])), 60)
        self.assertIn('#' * 20, lines[2])
