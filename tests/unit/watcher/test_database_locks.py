# SPDX-License-Identifier: Apache-2.0

"""Locks in the database, by the clocks of their owners alone."""

import tempfile
from unittest import TestCase, mock

import hypothesis
from hypothesis import strategies as st
from oslo_db import exception as db_exception
import sqlalchemy as sa

from secondary_scheduler.watcher import database_locks
from secondary_scheduler.watcher.database_locks import (
    HELD_S,
    SILENT_S,
    DatabaseLock,
    LockTable,
    with_timeouts,
)


class _Engine:
    """An engine with a clock of its own, which may be cut off or stopped."""

    def __init__(self, file, name):
        self.cut = False
        self.now = 0.0
        table = LockTable(lambda: f'sqlite:///{file}')
        self.lock = DatabaseLock(table, 'leader', name, lambda: self.now)
        self.table = table

    def tick(self):
        """Return whether the lock is held; fail if the engine is cut off."""
        if self.cut:
            with mock.patch.object(
                    self.table, '_facade',
                    side_effect=db_exception.DBConnectionError):
                try:
                    return self.lock.acquire()
                except db_exception.DBError:
                    return False
        return self.lock.acquire()


class DatabaseLockTest(TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file = directory.name + '/locks.sqlite'
        self.one, self.two = (_Engine(self.file, name) for name in 'ab')

    def wait(self, seconds, *engines):
        for engine in engines or (self.one, self.two):
            engine.now += seconds

    def test_one_engine_holds_the_lock(self):
        self.assertEqual((True, True, False), (
            self.one.tick(), self.one.tick(), self.two.tick()))

    def test_renewal_holds_for_a_while_only(self):
        self.one.tick()
        self.wait(HELD_S - 0.1)
        self.assertTrue(self.one.lock.held)
        self.wait(0.2)
        self.assertFalse(self.one.lock.held)
        self.assertTrue(self.one.tick())    # no other engine has taken it

    def test_silent_owner_loses_the_lock(self):
        self.one.tick()
        self.two.tick()
        self.wait(SILENT_S - 0.1)
        self.assertFalse(self.two.tick())
        self.wait(0.2)
        self.assertTrue(self.two.tick())
        self.assertGreater(self.two.lock.term, self.one.lock.term)
        self.assertFalse(self.one.tick())
        self.assertFalse(self.one.lock.held)

    def test_renewals_keep_the_lock(self):
        for _ in range(20):
            self.wait(1.0)
            self.assertTrue(self.one.tick())
            self.assertFalse(self.two.tick())

    def test_released_lock_is_taken_at_once(self):
        self.one.tick()
        self.two.tick()
        self.one.lock.release()
        self.assertFalse(self.one.lock.held)
        self.assertTrue(self.two.tick())

    def test_owner_without_database_does_not_hold_the_lock(self):
        self.one.tick()
        self.one.cut = True
        self.assertFalse(self.one.tick())
        self.assertFalse(self.one.lock.held)
        self.one.cut = False
        term = self.one.lock.term
        self.assertTrue(self.one.tick())
        self.assertEqual(term, self.one.lock.term)

    def test_lock_whose_answer_was_lost_is_held_later(self):
        take = self.one.table.take

        def lose(*arguments):
            take(*arguments)
            raise db_exception.DBConnectionError

        with mock.patch.object(self.one.table, 'take', lose), \
                self.assertRaises(db_exception.DBError):
            self.one.tick()
        self.assertFalse(self.one.lock.held)
        self.assertTrue(self.one.tick())

    def test_renewal_takes_no_free_lock(self):
        self.assertFalse(self.one.lock.renew())
        self.assertTrue(self.two.tick())

    def test_of_two_engines_one_takes_a_lock(self):
        table = self.one.table
        seen = table.read('leader')
        self.assertIsNotNone(table.take(seen, 'a'))
        self.assertIsNone(self.two.table.take(seen, 'b'))

    def test_terms_grow_in_a_new_database(self):
        self.one.tick()
        with tempfile.TemporaryDirectory() as directory:
            later = _Engine(directory + '/new.sqlite', 'c')
            with mock.patch.object(database_locks.time, 'time',
                                   return_value=2e9):
                later.tick()
        self.assertGreater(later.lock.term, self.one.lock.term)

    def test_other_tables_of_the_database_stay(self):
        engine = sa.create_engine(f'sqlite:///{self.file}')
        self.addCleanup(engine.dispose)
        with engine.begin() as connection:
            connection.execute(sa.text('CREATE TABLE audits (id INTEGER)'))
        self.one.tick()
        self.two.tick()
        self.assertEqual({'audits', database_locks.TABLE},
                         set(sa.inspect(engine).get_table_names()))


class UrlTest(TestCase):

    def test_drivers_wait_for_a_while_only(self):
        for url, expected in (
                ('mysql+pymysql://a:b@c/d?charset=utf8',
                 ('charset=utf8', 'read_timeout=3', 'connect_timeout=3')),
                ('postgresql://a:b@c/d', ('statement_timeout', 'connect_')),
                ('sqlite:////a/b', ('timeout=3',))):
            with self.subTest(url):
                found = with_timeouts(url)
                for one in expected:
                    self.assertIn(one, found)
                self.assertIn('b', found)

    def test_database_in_memory_needs_none(self):
        self.assertEqual('sqlite://', with_timeouts('sqlite://'))


#: Seconds, and whether each of three engines runs and reaches the database.
PHASES = st.lists(st.tuples(
    st.integers(1, 20), st.tuples(*[st.sampled_from(
        ['runs', 'stopped', 'cut'])] * 3)), min_size=1, max_size=4)


class ElectionPropertyTest(TestCase):

    @hypothesis.settings(max_examples=max(
        30, hypothesis.settings().max_examples // 10))
    @hypothesis.given(PHASES)
    def test_one_engine_leads_whatever_stops(self, phases):
        with tempfile.TemporaryDirectory() as directory:
            self.check([_Engine(directory + '/locks.sqlite', name)
                        for name in 'abc'], phases)

    def check(self, engines, phases):
        alive = 0
        for seconds, states in [*phases, (16, ('runs',) * 3)]:
            for _ in range(2 * seconds):
                alive += 0.5
                for number, (engine, state) in enumerate(
                        zip(engines, states, strict=True)):
                    engine.now = alive
                    engine.cut = state == 'cut'
                    if state != 'stopped' and (alive * 2 + number) % 2 == 0:
                        engine.tick()
                leaders = [engine for engine in engines if engine.lock.held]
                self.assertLessEqual(len(leaders), 1)
        self.assertEqual(1, len(leaders))
        self.assertEqual(leaders[0].lock.term,
                         max(engine.lock.term for engine in engines))
