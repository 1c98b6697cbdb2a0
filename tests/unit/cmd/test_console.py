# SPDX-License-Identifier: Apache-2.0

"""Tests of output and exit codes common to all commands."""

import io
import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

from secondary_scheduler.cmd import console

ROOT = pathlib.Path(__file__).parents[3]


class ConsoleTest(unittest.TestCase):

    def test_any_text_can_be_printed(self):
        for encoding in ('ascii', 'latin-1', 'utf-8'):
            out = io.BytesIO()
            with mock.patch('sys.stdout', io.TextIOWrapper(out, encoding)):
                self.assertEqual(0, console.command(
                    lambda: print('\ud800 \u591c') or 0)())
                self.assertIn(b'\\ud800', out.getvalue())

    def test_interrupt_ends_with_code_130(self):
        def interrupted():
            raise KeyboardInterrupt

        self.assertEqual(130, console.command(interrupted)())

    def test_closed_output_gives_no_traceback(self):
        """Close the output early, like "head"."""
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c',
             'import sys; from secondary_scheduler.cmd import console; '
             'sys.exit(console.command(lambda: print("x" * 10**6) or 0)())'],
            stdout=self.closed(), stderr=subprocess.PIPE, text=True,
            cwd=ROOT)
        self.assertEqual((1, ''), (done.returncode, done.stderr))

    def test_full_disk_is_an_error_without_traceback(self):
        with open('/dev/full', 'w') as full:
            done = subprocess.run(
                [sys.executable, '-W', 'ignore', '-m',
                 'secondary_scheduler.cmd.manage', 'simulate', 'list'],
                stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        self.assertEqual(1, done.returncode)
        self.assertIn('No space left', done.stderr)
        self.assertNotIn('Traceback', done.stderr)

    def closed(self):
        """Return the writing end of a pipe without a reader."""
        reading, writing = os.pipe()
        os.close(reading)
        self.addCleanup(os.close, writing)
        return writing

    def test_command_runs_without_standard_streams(self):
        with mock.patch('sys.stdout', None), mock.patch('sys.stderr', None):
            self.assertEqual(3, console.command(lambda: 3)())
