# SPDX-License-Identifier: Apache-2.0

import os
import tempfile
import unittest

from hypothesis import example, given
from hypothesis import strategies as st

from secondary_scheduler.agent import kernel_files
from secondary_scheduler.agent.kernel_files import Damaged
from tests.unit import fuzzing


class Reading(unittest.TestCase):
    def setUp(self):
        self.path = tempfile.mkstemp()[1]
        self.addCleanup(os.unlink, self.path)

    def put(self, data):
        with open(self.path, 'wb') as file:
            file.write(data)

    def test_other_bytes_survive_decoding(self):
        self.put(b'/mnt/\xe9\n')
        self.assertEqual(b'/mnt/\xe9\n', os.fsencode(
            kernel_files.read_text(self.path)))

    def test_too_long_file_is_damaged(self):
        self.put(b'9' * 5000)
        with self.assertRaisesRegex(Damaged, 'no more than 4999 bytes'):
            kernel_files.read_text(self.path, 4999)
        self.assertEqual(5000, len(kernel_files.read_text(self.path, 5000)))

    def test_missing_file_is_an_oserror(self):
        for path in ('/nonexistent', '/proc/self/root'):
            with self.assertRaises(OSError):
                kernel_files.read_text(path)

    def test_read_line_stops_at_the_first_line(self):
        self.put(b'cpu 1 2\n' + b'intr 0' * 10000)
        self.assertEqual('cpu 1 2', kernel_files.read_line(self.path))

    def test_tables(self):
        self.put(b'MemTotal:  5 kB\nread_bytes: 7\nusage_usec 9\nempty:\n')
        self.assertEqual([9, 5, 7], kernel_files.read_table(
            self.path, 'usage_usec', 'MemTotal', 'read_bytes'))
        for name in ('MemFree', 'empty'):
            with self.assertRaisesRegex(Damaged, f'{self.path}.*{name}'):
                kernel_files.read_table(self.path, name)

    def test_too_few_numbers_are_damaged(self):
        self.put(b'1 2 3\n')
        self.assertEqual([1, 2, 3], kernel_files.read_counts(self.path, 3))
        with self.assertRaisesRegex(Damaged, 'at least 4 numbers'):
            kernel_files.read_counts(self.path, 4)


class Values(unittest.TestCase):
    @fuzzing.fuzzed
    @given(st.sampled_from(fuzzing.NUMBERS) | st.text(max_size=30))
    @example(str((1 << 64) - 1))
    @example('+5')
    @example('0' * 5000)
    def test_any_text_is_a_number_or_damaged(self, text):
        try:
            value = kernel_files.parse_count(text, '/a/path')
        except Damaged as exc:
            self.assertTrue(str(exc).startswith('/a/path says '))
            self.assertLess(len(str(exc)), 400)
        else:
            self.assertTrue(0 <= value < 1 << 64)
            self.assertRegex(text.strip(), '^[0-9]+$')

    @fuzzing.fuzzed
    @given(st.sampled_from(fuzzing.NUMBERS) | st.text(
        alphabet='0123456789,- \n', max_size=20))
    def test_any_text_is_a_cpu_list_or_damaged(self, text):
        try:
            cpus = kernel_files.parse_cpus(text, '/a/path')
        except Damaged:
            return
        self.assertEqual(cpus, kernel_files.parse_cpus(
            kernel_files.format_cpus(cpus), '/a/path'))

    def test_cpu_lists(self):
        self.assertEqual({0, 1, 2, 3, 8},
                         kernel_files.parse_cpus('0-3,8\n', ''))
        self.assertEqual(frozenset(), kernel_files.parse_cpus('\n', ''))
        self.assertEqual('0-1,3,7-8', kernel_files.format_cpus(
            [8, 7, 0, 1, 3]))
        for text in ('5-0', '0-', '-1', '0-99999999', 'all', '0 1'):
            with self.assertRaises(Damaged):
                kernel_files.parse_cpus(text, '')
