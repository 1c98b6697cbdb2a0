# SPDX-License-Identifier: Apache-2.0

"""Tests of ``secondary-scheduler lease-db``."""

import contextlib
import io
import pathlib
import tempfile
import unittest

from secondary_scheduler.cmd import manage


class LeaseDbTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file = pathlib.Path(directory.name, 'lease.conf')
        self.url = f'sqlite:///{directory.name}/leases.sqlite'

    def run_command(self, *arguments):
        """Run a command; return its exit code and its output."""
        self.file.write_text('[secondary_lease_api]\nquota_nodes = 7\n'
                             f'database_url = {self.url}\n')
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = manage.main(['lease-db', *arguments, '--config-file',
                                str(self.file)])
        return code, out.getvalue()

    def test_sync_makes_tables_and_version_shows_theirs(self):
        self.assertEqual(
            (1, 'There are no tables: run "secondary-scheduler lease-db '
                'sync".\n'), self.run_command('version'))
        self.assertEqual(
            (0, 'The tables have version 0011 now, before there were none.'
                '\n'), self.run_command('sync'))
        self.assertEqual((0, 'The tables have version 0011.\n'),
                         self.run_command('sync'))
        self.assertEqual((0, '0011\n'), self.run_command('version'))

    def test_downgrade_accepts_older_versions_only(self):
        self.run_command('sync')
        self.assertEqual(
            (0, 'The tables have version 0001 now, before 0011.\n'),
            self.run_command('downgrade', '0001'))
        self.assertEqual((0, '0001\n'), self.run_command('version'))
        for version in ('0011', '0000'):
            code, text = self.run_command('downgrade', version)
            self.assertEqual(2, code)
            self.assertIn('have version 0001', text)

    def test_quota_is_shown_and_changed(self):
        self.run_command('sync')
        self.assertEqual((0, 'leases: 0 of 100\nnodes: 0 of 7\n'),
                         self.run_command('quota', 'p1'))
        self.assertEqual(
            (0, 'leases: 0 of 3\nnodes: 0 of unlimited\n'),
            self.run_command('quota', 'p1', '--leases', '3', '--nodes=-1'))
        self.assertEqual(
            (0, 'leases: 0 of 3\nnodes: 0 of 7\n'),
            self.run_command('quota', 'p1', '--nodes', 'default'))
        with self.assertRaises(SystemExit):
            self.run_command('quota', 'p1', '--nodes=-2')

    def test_purge_says_what_it_deletes(self):
        self.run_command('sync')
        self.assertEqual(
            (0, 'leases: 0 to delete\nquotes: 0 to delete\n'),
            self.run_command('purge', '--days', '90', '--dry-run'))
        self.assertEqual(
            (0, 'leases: 0 deleted\nquotes: 0 deleted\n'
                'accounts: 0 deleted\n'),
            self.run_command('purge', '--days', '90', '--account-days', '9'))
        for days in ('0', '-1', 'x'):
            with self.assertRaises(SystemExit):
                self.run_command('purge', '--days', days)

    def test_faulty_database_url_is_named(self):
        for self.url in ('sqlite:////nowhere/leases.sqlite', 'nonsense',
                         'oracle9://x/y'):
            with self.subTest(self.url):
                code, text = self.run_command('sync')
                self.assertEqual(2, code, text)
                self.assertIn('database_url', text)
        self.assertEqual(2, manage.main(
            ['lease-db', 'version', '--config-file', '/nowhere.conf']))
