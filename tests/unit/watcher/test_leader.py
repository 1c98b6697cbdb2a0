# SPDX-License-Identifier: Apache-2.0

"""Leader election and the lock for claiming plans."""

import tempfile
import threading
from unittest import TestCase, mock

from oslo_db import exception as db_exception

from secondary_scheduler.watcher import leader
from secondary_scheduler.watcher.database_locks import SILENT_S
from tests.unit.watcher import fakes


class LeaderTest(TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file = directory.name + '/locks.sqlite'
        self.now = 100.0

    def make(self):
        made = fakes.coordinate(self, lambda: self.now, self.file)
        made.renew()
        return made

    def test_there_is_one_leader_and_another_after_it_stops(self):
        one, two = self.make(), self.make()
        self.assertEqual([True, False],
                         [one.am_i_leader(), two.am_i_leader()])
        one.stop()
        two.renew()
        self.assertEqual([False, True],
                         [one.am_i_leader(), two.am_i_leader()])

    def test_leader_that_was_stopped_leads_no_more(self):
        one, two = self.make(), self.make()
        term = one.term
        one.confirm_term(term)
        two.renew()
        self.now += SILENT_S
        two.renew()
        self.assertFalse(one.am_i_leader())
        with self.assertRaises(RuntimeError):
            one.confirm_term(term)
        self.assertGreater(two.term, term)
        self.assertEqual(two.term, one.read_leader().term)

    def test_there_is_no_leader_without_the_database(self):
        one = self.make()
        with mock.patch.object(one._table, '_facade',
                               side_effect=db_exception.DBConnectionError), \
                self.assertLogs(leader.__name__, 'WARNING'):
            one.renew()
            self.assertFalse(one.am_i_leader())
            with self.assertRaises(RuntimeError), one.claiming(0.0):
                self.fail('claimed')
        one.renew()
        self.assertTrue(one.am_i_leader())

    def test_claims_exclude_each_other(self):
        one, two = self.make(), self.make()
        with one.claiming() as check:
            with self.assertRaises(RuntimeError), two.claiming(timeout=0.3):
                self.fail('claimed twice')
            check()
        with two.claiming():
            pass

    def test_claim_is_retried_after_a_deadlock(self):
        one = self.make()
        take = one._table.take
        with mock.patch.object(one._table, 'take', side_effect=[
                db_exception.DBDeadlock, mock.DEFAULT], wraps=take) as tried:
            with one.claiming() as check:
                check()
        self.assertEqual(2, tried.call_count)

    def test_claim_that_was_lost_does_not_take_effect(self):
        one, two = self.make(), self.make()
        with one.claiming() as check:
            with self.assertRaises(RuntimeError), two.claiming(timeout=0.0):
                self.fail('claimed at once')
            self.now += SILENT_S
            with two.claiming():
                with self.assertRaises(RuntimeError):
                    check()

    def test_renewals_keep_a_claim(self):
        one, two = self.make(), self.make()
        with one.claiming() as check:
            for _ in range(4):
                with self.assertRaises(RuntimeError), two.claiming(0.0):
                    self.fail('claimed twice')
                self.now += SILENT_S / 2
                one.renew()
            check()

    def test_claims_of_threads_wait(self):
        one = self.make()
        order = []

        def later():
            with one.claiming():
                order.append('second')
        with one.claiming():
            thread = threading.Thread(target=later)
            thread.start()
            order.append('first')
        thread.join(5)
        self.assertEqual(['first', 'second'], order)
