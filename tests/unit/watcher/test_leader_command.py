# SPDX-License-Identifier: Apache-2.0

"""Command that shows the leader."""

import contextlib
import io
import tempfile
from unittest import TestCase, mock

from oslo_db import exception as db_exception

from secondary_scheduler.cmd import leader, manage
from secondary_scheduler.watcher import database_locks, settings, terms
from secondary_scheduler.watcher.database_locks import LockRow
from secondary_scheduler.watcher.terms import WaitingOperations

EMPTY = WaitingOperations(0, 0, None)


class LeaderShownTest(TestCase):

    def watch(self, *rows):
        given = [*rows]
        slept = []
        found = leader.watch(
            lambda: given.pop(0) if len(given) > 1 else given[0],
            slept.append)
        return (*found, sum(slept))

    def test_leader_that_renews_is_alive(self):
        rows = [LockRow('leader', 'c1:7:ab', 5, number)
                for number in (1, 1, 2)]
        self.assertEqual((True, rows[2], 1.0), self.watch(*rows))

    def test_silent_and_free_leaderships_are_no_leader(self):
        for row in (LockRow('leader', 'c1:7:ab', 5, 1),
                    LockRow('leader', '', 5, 1)):
            self.assertEqual((False, row, leader.WATCHED_S), self.watch(row))

    def test_lines_name_the_leader_and_the_queue(self):
        row = LockRow('leader', 'c1:7:ab', 5, 1)
        self.assertEqual(
            ['leader: c1, process 7', 'term: 5',
             'waiting operations: 2 for relief of hosts, the oldest for 12 s; '
             '3 others'],
            leader.describe(True, row, WaitingOperations(2, 3, 12.3)))
        self.assertEqual(
            'leader: none; the last was c1, process 7, which does not renew '
            'it', leader.describe(False, row, EMPTY)[0])
        self.assertEqual(
            ['leader: none', 'term: 0',
             'waiting operations: 0 for relief of hosts; 0 others'],
            leader.describe(False, LockRow('leader', '', 0, 0),
                            EMPTY))


class CommandTest(TestCase):

    def run_command(self, **read):
        self.addCleanup(settings.CONF.clear)
        out, err = io.StringIO(), io.StringIO()
        with tempfile.NamedTemporaryFile('w', suffix='.conf') as file, \
                contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err), \
                mock.patch.object(leader, 'WATCHED_S', 0.0), \
                mock.patch.object(terms, 'find_waiting', return_value=EMPTY), \
                mock.patch.object(database_locks.LockTable, 'read', **read):
            code = manage.main(['leader', 'show', '--config-file', file.name])
        return code, out.getvalue(), err.getvalue()

    def test_missing_leader_is_told(self):
        code, out, err = self.run_command(
            return_value=LockRow('leader', '', 0, 0))
        self.assertEqual((leader.NO_LEADER, ''), (code, err))
        self.assertIn('leader: none\n', out)

    def test_database_that_does_not_answer_is_told(self):
        code, out, err = self.run_command(
            side_effect=db_exception.DBConnectionError('no\nmore'))
        self.assertEqual((leader.BAD_INPUT, ''), (code, out))
        self.assertIn("Watcher's database cannot be read: no\n", err)
