# SPDX-License-Identifier: Apache-2.0

"""Books of reports and holds."""

import dataclasses
import unittest

from secondary_scheduler.model.holds import Hold, Holds
from secondary_scheduler.model.reports import HostReport, InstanceReport
from secondary_scheduler.reports.book import HoldBook, HostBook


def report(host='node1', incarnation='a', seq=1, time=1000.0):
    return HostReport(
        host=host, incarnation=incarnation, seq=seq, time=time,
        policies_hash='0' * 16, admission=True, reason='', cpus=4,
        memory_mb=8192, cpu_total=50.0, cpu_primary=20.0)


class BookTest(unittest.TestCase):

    def setUp(self):
        self.now = 1000.0
        self.book = HostBook(lambda: 15, clock=lambda: self.now)

    def test_newest_report_of_each_host_is_kept(self):
        self.assertTrue(self.book.accept(report(seq=1)))
        self.assertTrue(self.book.accept(report(seq=2)))
        self.assertTrue(self.book.accept(report(host='node2')))
        self.assertEqual(2, self.book.get('node1').seq)
        self.assertEqual({'node1', 'node2'}, set(self.book.hosts()))
        self.assertIsNone(self.book.get('node3'))

    def test_replays_are_refused(self):
        self.book.accept(report(seq=5))
        self.assertFalse(self.book.accept(report(seq=5)))
        self.assertFalse(self.book.accept(report(seq=4, time=1001)))
        self.assertEqual(2, self.book.counters['replayed'])
        self.assertEqual(5, self.book.get('node1').seq)

    def test_restarted_agent_counts_from_one(self):
        self.book.accept(report(seq=500, time=999))
        self.assertTrue(
            self.book.accept(report(incarnation='b', seq=1, time=1000)))
        self.assertFalse(self.book.accept(report(seq=501, time=999.5)))
        self.assertEqual('b', self.book.get('node1').incarnation)

    def test_stale_and_future_reports_are_refused(self):
        self.assertFalse(self.book.accept(report(time=984)))
        self.assertFalse(self.book.accept(report(time=1006)))
        self.assertTrue(self.book.accept(report(time=1004)))
        self.assertEqual(1, self.book.counters['stale'])
        self.assertEqual(1, self.book.counters['future'])

    def test_reports_go_stale(self):
        self.book.accept(report())
        self.now = 1015.0
        self.assertIsNotNone(self.book.get('node1'))
        self.now = 1015.1
        self.assertIsNone(self.book.get('node1'))
        self.assertEqual({}, self.book.hosts())

    def test_instances_of_a_silent_agent_count_as_running_for_a_while(self):
        ran = InstanceReport('a', 5, 1.0, 2.0, False)
        self.book.accept(dataclasses.replace(report(), instances=(ran,)))
        self.book.accept(dataclasses.replace(
            report(host='node2'), instances=(
                ran, dataclasses.replace(ran, uuid='b'))))
        names = ('node1', 'node2', 'node3')
        self.assertEqual({'a', 'b'}, self.book.running(names))
        self.now = 1200.0
        self.book.accept(report(host='node3', time=1200.0))
        self.assertEqual({'a', 'b'}, self.book.running(names))
        self.book.accept(report(host='node2', time=1200.0, seq=2))
        self.assertEqual({'a'}, self.book.running(names))
        self.now = 1301.0
        self.assertEqual(set(), self.book.running(names))

    def test_hosts_without_report_have_no_agent_after_a_while(self):
        self.assertTrue(self.book.knows([]))
        self.assertFalse(self.book.knows(['node1']))
        self.now = 2000.0   # no report yet
        self.assertFalse(self.book.knows(['node1']))
        self.book.accept(report(time=2000.0))
        self.assertTrue(self.book.knows(['node1']))
        self.assertFalse(self.book.knows(['node1', 'node2']))
        self.book.accept(report(time=2015.0, seq=2))
        self.now = 2015.0
        self.assertFalse(self.book.knows(['node1', 'node2']))
        self.now = 2015.1
        self.assertTrue(self.book.knows(['node1', 'node2']))
        self.now = 1000.0   # the clock has been set back
        self.assertFalse(self.book.knows(['node1', 'node2']))
        self.book.accept(report(time=1000.0, host='node3'))
        self.now = 1015.1
        self.assertTrue(self.book.knows(['node1', 'node2']))

    def test_clock_that_is_ahead_does_not_prolong_a_report(self):
        self.book.accept(report(time=1004))
        self.now = 1016.0
        self.assertIsNone(self.book.get('node1'))

    def test_clock_set_back_hides_later_reports(self):
        self.book.accept(report())
        self.now = 990.0
        self.assertIsNone(self.book.get('node1'))

    def test_agent_with_a_clock_set_back_is_accepted_again(self):
        self.book.accept(report(time=1004, seq=9))
        self.now = 1010.0
        self.assertFalse(
            self.book.accept(report(incarnation='b', time=1003)))
        self.now = 1017.0
        self.assertTrue(
            self.book.accept(report(incarnation='b', time=1003)))

    def test_limit_may_change_at_any_time(self):
        limit = [15]
        book = HostBook(lambda: limit[0], clock=lambda: self.now)
        book.accept(report())
        self.now = 1010.0
        self.assertIsNotNone(book.get('node1'))
        limit[0] = 5
        self.assertIsNone(book.get('node1'))

    def test_forged_names_do_not_stay_in_memory(self):
        for number in range(50):
            self.book.accept(report(host=f'forged{number}'))
        self.now = 1320.0
        self.book.accept(report(time=1320))
        self.assertEqual(1, len(self.book._entries))


class HoldBookTest(unittest.TestCase):

    def setUp(self):
        self.now = 1000.0
        self.book = HoldBook(lambda: 15, clock=lambda: self.now)

    def holds(self, incarnation='a', seq=1, time=1000.0, *hosts):
        return Holds(incarnation, seq, time,
                     dict.fromkeys(hosts, Hold({}, ())))

    def test_newest_holds_count_while_they_are_fresh(self):
        self.assertIsNone(self.book.get('node1'))
        self.assertTrue(self.book.accept(
            self.holds('a', 5, 1000.0, 'node1')))
        self.assertFalse(self.book.accept(self.holds('a', 4, 1001.0)))
        self.assertFalse(self.book.accept(self.holds('b', 9, 999.0)))
        self.assertFalse(self.book.accept(self.holds('b', 9, 1006.0)))
        self.assertIsNotNone(self.book.get('node1'))
        self.assertIsNone(self.book.get('node2'))
        self.assertTrue(self.book.accept(
            self.holds('b', 1, 1001.0, 'node2')))
        self.assertIsNone(self.book.get('node1'))
        self.now = 1017.0
        self.assertIsNone(self.book.get('node2'))
        self.assertFalse(self.book.accept(self.holds('b', 2, 1001.5)))
