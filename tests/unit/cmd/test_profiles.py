# SPDX-License-Identifier: Apache-2.0

"""``secondary-agent profiles``."""

import contextlib
import io
import json
import os
import pathlib
import stat
import tempfile
import unittest

from secondary_scheduler.cmd import agent, profiles

WEB = {'classes': ['web', 'stress-ng:cpu-50'],
       'uses': {'web': {'cpu': 59}, 'stress-ng:cpu-50': {'cpu': 50}},
       'time_sharing': [[1.25, 1.5], [None, None]], 'space_sharing': None}
BATCH = {'classes': ['batch', 'web'],
         'uses': {'batch': {'cpu': 100}, 'web': {'cpu': None}},
         'time_sharing': [[2.0, 1.8], [1.2, 1.6]],
         'space_sharing': [[1.1, None], [1.0, 1.0]]}


class ProfilesTest(unittest.TestCase):

    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.folder = pathlib.Path(folder)
        self.web, self.batch = self.write('web', WEB), self.write('batch',
                                                                  BATCH)

    def write(self, name, document):
        path = self.folder / f'{name}.json'
        path.write_text(json.dumps(document))
        return str(path)

    def call(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = agent.main(['profiles', *words])
        return code, out.getvalue(), err.getvalue()

    def test_list_shows_victims_by_neighbours(self):
        code, out, err = self.call('list', self.batch)
        self.assertEqual((0, ''), (code, err))
        lines = [' '.join(line.split()) for line in out.splitlines()]
        self.assertIn('batch 100.00 2.00 1.80 1.90 1.60 sensitive, quiet',
                      lines)
        self.assertIn('web ? 1.20 1.60 1.40 1.70 insensitive, noisy', lines)
        self.assertIn('batch 100.00 1.10 ? 1.10 1.05 sensitive, noisy', lines)
        self.assertIn('time_sharing: 4 of 4 slow-downs known', out)
        self.assertIn('CPU model: unknown', out)

    def test_merge_names_conflicts_and_takes_the_larger_value(self):
        code, out, err = self.call('merge', self.web, self.batch)
        self.assertEqual(0, code)
        self.assertEqual(1, err.count('conflict'))
        self.assertIn('time_sharing[web][web]: 1.25 in ' + self.web, err)
        found = json.loads(out)
        self.assertEqual(['web', 'stress-ng:cpu-50', 'batch'],
                         found['classes'])
        self.assertEqual([1.6, 1.5, 1.2], found['time_sharing'][0])
        self.assertEqual(59, found['uses']['web']['cpu'])

    def test_merged_file_is_valid_and_may_lack_generators(self):
        output = str(self.folder / 'all.json')
        self.assertEqual((0, ''), self.call(
            'merge', '--output', output, '--without-generators', self.web,
            self.batch)[:2])
        self.assertEqual(0, self.call('check', output)[0])
        with open(output) as file:
            self.assertEqual(['web', 'batch'], json.load(file)['classes'])
        self.assertEqual(3, len(list(self.folder.iterdir())))

    def test_failed_merge_leaves_the_output_as_it_was(self):
        output = self.write('all', WEB)
        before = pathlib.Path(output).read_text()
        bad = self.write('bad', WEB | {'time_sharing': [[1]]})
        code, _, err = self.call('merge', '--output', output, bad)
        self.assertEqual(1, code)
        self.assertIn(f'{bad}: time_sharing: expected 2 rows', err)
        self.assertEqual(before, pathlib.Path(output).read_text())
        nowhere = str(self.folder / 'none' / 'all.json')
        code, _, err = self.call('merge', '--output', nowhere, self.web)
        self.assertEqual((1, f'secondary-agent: {nowhere}: No such file or '
                             'directory\n'), (code, err))

    def test_device_as_output_is_written_itself(self):
        pipe = f'{self.folder}/pipe'
        os.mkfifo(pipe)
        read = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, read)
        with profiles.replaced_file(pipe) as file:
            file.write('{}')
        self.assertEqual(b'{}', os.read(read, 9))
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))

    def test_generators_alone_leave_nothing(self):
        only = self.write('only', {
            **WEB, 'time_sharing': [[None, 1.5], [None, None]]})
        code, out, err = self.call('merge', '--without-generators', only)
        self.assertEqual((1, ''), (code, out))
        self.assertIn('nothing is known without the generators', err)

    def test_check_names_each_fault_with_file_and_place(self):
        for name, changes, text in (
                ('square', {'time_sharing': [[1.25], [1.5]]},
                 'time_sharing[web]: expected 2 entries'),
                ('nan', {'time_sharing': [[1.25, float('nan')], [1, 1]]},
                 'time_sharing[web][stress-ng:cpu-50]: expected a number'),
                ('below', {'time_sharing': [[0.9, 1], [1, 1]]},
                 'time_sharing[web][web]: expected a number from 1'),
                ('class', {'uses': {'web': {'cpu': 1}, 'other': {'cpu': 1}}},
                 'time_sharing and uses have different classes: other, '
                 'stress-ng:cpu-50')):
            with self.subTest(name):
                path = self.write(name, WEB | changes)
                code, out, err = self.call('check', path, self.batch)
                self.assertEqual(1, code)
                self.assertIn(f'{path}: {text}', err)
                self.assertIn(f'{self.batch}: valid; 2 classes', out)
        for text in ('{', '[' * 10000, '\0'):
            path = self.folder / 'damaged.json'
            path.write_text(text)
            code, out, err = self.call('check', str(path))
            self.assertEqual((1, ''), (code, out))
            self.assertTrue(err.startswith(str(path)))
        code, _, err = self.call('check', os.devnull + '/x')
        self.assertEqual(1, code)
        self.assertIn('Not a directory', err)

    def test_unknown_arguments_are_refused(self):
        code, _, err = self.call('check', self.web, '--stirct')
        self.assertEqual(1, code)
        self.assertIn('unknown arguments: --stirct', err)


if __name__ == '__main__':
    unittest.main()
