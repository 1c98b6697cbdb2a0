# SPDX-License-Identifier: Apache-2.0

"""The script of servers counts, and its counts are read."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from secondary_tempest_plugin.tests.scenario import work


class WorkTest(unittest.TestCase):

    def test_newest_whole_count_is_read(self) -> None:
        self.assertEqual(work.Work('a-1', 12), work.read_work(
            'boot\r\nUNITS a-1 11 a-1 11\r\nUNITS a-1 12 a-1 12\r\n'
            'UNITS a-1 13 a-'))

    def test_damaged_counts_are_left_out(self) -> None:
        for line in ('UNITS a 12 a 1', 'UNITS a 12 b 12', 'UNITS a x a x',
                     'NITS a 12 a 12', ''):
            with self.subTest(line):
                self.assertIsNone(work.read_work(line + '\n'))

    def test_script_counts_on_the_console_and_lets_the_boot_go_on(self
                                                                  ) -> None:
        with tempfile.TemporaryDirectory() as folder:
            console = pathlib.Path(folder) / 'console'
            script = work.SCRIPT.replace(
                '> /dev/console', f'>> {console}').replace('100000', '10'
                ).replace('/proc/cpuinfo', '/dev/null')
            process = subprocess.Popen(['sh', '-c', script],
                                       start_new_session=True)
            try:
                self.assertEqual(0, process.wait(30))
                deadline = time.monotonic() + 30
                found = None
                while (found is None or found.units < 3) and (
                        time.monotonic() < deadline):
                    time.sleep(0.05)
                    found = console.exists() and work.read_work(
                        console.read_text()) or None
            finally:
                os.killpg(process.pid, signal.SIGKILL)
        self.assertIsNotNone(found)
        self.assertEqual(pathlib.Path(
            '/proc/sys/kernel/random/boot_id').read_text().strip(),
            found.boot)
        self.assertGreaterEqual(found.units, 3)


if __name__ == '__main__':
    unittest.main()
