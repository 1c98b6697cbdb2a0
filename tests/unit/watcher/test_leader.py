# SPDX-License-Identifier: Apache-2.0

"""Leader election and the lock for claiming plans."""

import tempfile
import threading
from unittest import TestCase

from secondary_scheduler.watcher import (
    leader,
)


class LeaderTest(TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def make(self):
        made = leader.Coordination('file://' + self.directory.name)
        self.addCleanup(made.stop)
        return made

    def test_there_is_one_leader_and_another_after_it_stops(self):
        one, two = self.make(), self.make()
        self.assertTrue(one.am_i_leader())
        self.assertTrue(one.am_i_leader())
        self.assertFalse(two.am_i_leader())
        one.stop()
        self.assertTrue(two.am_i_leader())

    def test_leadership_is_lost_with_the_lock(self):
        one = self.make()
        self.assertTrue(one.am_i_leader())
        one._leading.release()
        self.assertFalse(one.am_i_leader())
        self.assertTrue(one.am_i_leader())

    def test_there_is_no_leader_without_the_service(self):
        made = leader.Coordination('nonsense://')
        self.assertFalse(made.am_i_leader())
        with self.assertRaises(RuntimeError):
            with made.claiming():
                self.fail('claimed')

    def test_claims_exclude_each_other(self):
        one, two = self.make(), self.make()
        with one.claiming():
            with self.assertRaises(RuntimeError):
                with two.claiming(timeout=1):
                    self.fail('claimed twice')
        with two.claiming():
            pass

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
