# SPDX-License-Identifier: Apache-2.0

"""Geometry of timelines."""

import datetime
import unittest
import zoneinfo

from secondary_dashboard import charts

#: 2027-01-31T08:00:00Z.
T0 = 1801382400


def span(begin, end, kind='run'):
    """Return a bar with times relative to T0."""
    return charts.Span(T0 + begin, None if end is None else T0 + end, kind,
                       kind)


class TimelineTest(unittest.TestCase):

    def draw(self, *spans, **more):
        """Return the chart of one row at T0."""
        return charts.draw_timeline([('row', '', spans)], T0, **more)

    def test_bars_fill_the_chart_in_proportion(self):
        bars = self.draw(span(0, 1800), span(1800, 7200)).rows[0].bars
        self.assertEqual([(0, 25), (25, 75)],
                         [(one.x, one.width) for one in bars])

    def test_bars_are_cut_at_the_ends_of_the_interval(self):
        chart = self.draw(span(-3600, 1800), span(7200, 9000),
                          begin=T0, end=T0 + 3600)
        self.assertEqual([(0, 50)], [
            (one.x, one.width) for one in chart.rows[0].bars])

    def test_shortest_bar_is_seen_within_the_chart(self):
        bar = self.draw(span(0, 100_000), span(100_000, 100_000)
                        ).rows[0].bars[1]
        self.assertGreater(bar.width, 0)
        self.assertLessEqual(bar.x + bar.width, 100)

    def test_bar_without_end_reaches_beyond_the_present(self):
        chart = self.draw(span(-3600, None))
        self.assertEqual(50, chart.now)
        self.assertEqual(100, chart.rows[0].bars[0].width)

    def test_marks_are_round_in_the_zone_of_the_user(self):
        chart = self.draw(span(0, 86400 * 4),
                          zone=zoneinfo.ZoneInfo('Asia/Kolkata'))
        texts = [one.text for one in chart.marks]
        self.assertEqual(['2027-02-01', '12:00', '2027-02-02'], texts[:3])
        self.assertLessEqual(len(texts), 9)

    def test_nothing_to_draw_is_no_chart(self):
        self.assertIsNone(self.draw())

    def test_present_time_outside_of_the_chart_is_not_marked(self):
        self.assertIsNone(self.draw(span(10, 20)).now)

    def test_times_of_years_need_few_marks(self):
        chart = self.draw(span(0, 86400 * 3650))
        self.assertLessEqual(len(chart.marks), 12)
        self.assertEqual(datetime.UTC, chart.begin.tzinfo)
