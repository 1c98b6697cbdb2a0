# SPDX-License-Identifier: Apache-2.0

"""The listener starts once in each scheduler process."""

import os
import time
import unittest
from unittest import mock

from secondary_scheduler.model import holds
from secondary_scheduler.nova import report_books
from tests.unit.nova import fakes


class ReportBooksTest(unittest.TestCase):

    def setUp(self):
        fakes.configure(self)
        patch = mock.patch.object(report_books, 'ReportListener')
        self.listener = patch.start()
        self.addCleanup(patch.stop)
        patch = mock.patch.object(report_books, '_books',
                                  report_books.ReportBooks())
        patch.start()
        self.addCleanup(patch.stop)

    def test_listener_starts_once_and_when_it_is_needed(self):
        self.listener.assert_not_called()
        first = report_books.book()
        self.assertIs(first, report_books.book())
        self.listener.assert_called_once()
        self.listener.return_value.start.assert_called_once_with()

    def test_reports_arrive_in_the_book(self):
        book = report_books.book()
        self.listener.call_args.args[1](fakes.report())
        self.assertEqual({'node1'}, set(book.hosts()))

    def test_holds_arrive_in_the_book(self):
        report_books.book()
        hold = holds.Hold({}, ())
        self.listener.call_args.kwargs['hold'](
            holds.Holds('a', 1, time.time(), {'node1': hold}))
        self.assertEqual(hold, report_books.holds().get('node1'))

    def test_staleness_is_an_option(self):
        book = report_books.book()
        fakes.configure(self, report_stale_after=7.0)
        self.assertEqual(7.0, book.stale_after)

    def test_listener_that_cannot_start_is_retried(self):
        self.listener.side_effect = RuntimeError('boom')
        self.assertEqual({}, report_books.book().hosts())
        self.listener.side_effect = None
        report_books.book()
        self.assertEqual(2, self.listener.call_count)

    def test_server_names_are_unique(self):
        names = {report_books.server_name() for _ in range(9)}
        self.assertEqual(9, len(names))
        self.assertTrue(all(str(os.getpid()) in name for name in names))

    def test_fork_hook_starts_another_listener(self):
        before = report_books.book()
        report_books._start_in_child()
        self.assertIsNot(before, report_books._books.book)
        self.assertEqual(2, self.listener.call_count)

    def test_forked_child_has_a_listener_of_its_own(self):
        before = report_books.book()
        child = os.fork()
        if child == 0:
            # Only the fork hook can have made the second listener.
            good = (self.listener.call_count == 2
                    and report_books._books.book is not before)
            os._exit(0 if good else 1)
        self.assertEqual(0, os.waitpid(child, 0)[1])
        self.assertIs(before, report_books.book())
        self.assertEqual(1, self.listener.call_count)
