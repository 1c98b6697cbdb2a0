# SPDX-License-Identifier: Apache-2.0

"""File with the operator's placement constraints."""

import os
import pathlib
import tempfile
from unittest import TestCase

from secondary_scheduler.model.constraints import Ban, Quarantine, Spread
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.watcher import constraint_file
from secondary_scheduler.watcher.cloud_snapshot import CloudSnapshot
from tests.unit.watcher import fakes

SNAPSHOT = CloudSnapshot(
    {name: fakes.host(name) for name in ('h1', '12')},
    {one.uuid: one for one in (
        fakes.server(1, metadata={'lease': 'x'}), fakes.server(2),
        fakes.server(3))})
SPREAD = f'''
# Two that must not fail together.
- spread: {{instances: [{fakes.uid(1)}, {fakes.uid(2)}]}}
'''
VALID = (Spread(frozenset(map(fakes.uid, (1, 2)))),)


class ConstraintFileTest(TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name) / 'constraints.yaml'
        self.file = constraint_file.ConstraintFile(lambda: str(self.path))
        self.moment = 1

    def find(self, text=None):
        if text is not None:
            self.path.write_text(text)
            self.moment += 1    # a file system may have coarse times
            os.utime(self.path, (self.moment, self.moment))
        return self.file.find_constraints(lambda: SNAPSHOT.names)

    def test_file_is_read_again_when_it_changes(self):
        self.assertEqual(VALID, self.find(SPREAD))
        self.assertEqual(
            (Ban(frozenset({fakes.uid(3)}), frozenset({'12'})),),
            self.find(f'- ban: {{leases: [{fakes.uid(3)}], hosts: [12]}}'))
        self.assertEqual((), self.find('[]'))

    def test_last_valid_constraints_stay_in_force(self):
        self.find(SPREAD)
        for bad in ('- spread', '', '- [', '- spread: {instances: []}'):
            with self.subTest(bad), self.assertLogs(
                    constraint_file.LOG.logger, 'ERROR') as logged:
                self.assertEqual(VALID, self.find(bad))
                self.assertEqual(VALID, self.find())
            self.assertEqual(1, len(logged.output))
        self.path.unlink()
        with self.assertLogs(constraint_file.LOG.logger, 'ERROR'):
            self.assertEqual(VALID, self.find())

    def test_nothing_moves_if_the_file_was_never_readable(self):
        closed = (Quarantine(frozenset({'h1', '12'})),)
        with self.assertLogs(constraint_file.LOG.logger, 'ERROR') as logged:
            self.assertEqual(closed, self.find())
            self.assertEqual(closed, self.find())
        self.assertEqual(1, len(logged.output))
        self.assertEqual(VALID, self.find(SPREAD))

    def test_rules_of_another_file_do_not_stay_in_force(self):
        self.find(SPREAD)
        self.path = self.path.with_name('missing.yaml')
        with self.assertLogs(constraint_file.LOG.logger, 'ERROR'):
            self.assertIsInstance(self.find()[0], Quarantine)

    def test_unknown_names_are_logged_once(self):
        text = SPREAD + '- ban: {leases: [gone], hosts: [h1]}\n'
        with self.assertLogs(constraint_file.LOG.logger, 'WARNING') as logged:
            self.assertEqual(VALID, self.find(text))
            self.assertEqual(VALID, self.find())
        self.assertEqual(1, len(logged.output))
        self.assertIn('entry 2, ban: lease gone has no instances',
                      logged.output[0])

    def test_no_file_means_no_constraints(self):
        for path in ('', None):
            file = constraint_file.ConstraintFile(lambda path=path: path)
            self.assertEqual((), file.find_constraints(lambda: SNAPSHOT.names))

    def test_error_names_file_and_line_and_entry(self):
        for text, expected in (
                ('', 'line 1: expected a list'),
                ('a: 1', 'line 1: expected a list'),
                ('- [', 'line 1: expected YAML'),
                (SPREAD + '- ban:\n    hosts: [h1]\n',
                 'line 4: entry 2.ban.instances: expected'),
                ('- {root: {leases: [a]}, root: {leases: [a]}}',
                 'the name "root" is given twice'),
                ('- &a [*a]', 'nested 8 deep')):
            with self.subTest(text), self.assertRaisesRegex(
                    InputError, expected) as caught:
                self.path.write_text(text)
                constraint_file.read_constraint_file(str(self.path))
            self.assertIn(str(self.path), str(caught.exception))
