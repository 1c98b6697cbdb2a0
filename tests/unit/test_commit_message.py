# SPDX-License-Identifier: Apache-2.0

"""The hook for commit messages knows rule 10 of HACKING.rst."""

import importlib.util
import pathlib
import unittest

PATH = pathlib.Path(__file__).parents[2] / 'tools/check_commit_message.py'


class CommitMessageTest(unittest.TestCase):
    def setUp(self) -> None:
        """Load the hook, which is a program and no module of the package."""
        spec = importlib.util.spec_from_file_location('hook', PATH)
        assert spec and spec.loader
        self.hook = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.hook)

    def test_good_subjects_pass(self) -> None:
        for subject in ('agent: bring the limits back after a restart',
                        'docs: describe the glossary\n\nThe body says why.',
                        'Merge branch "x"'):
            with self.subTest(subject):
                self.assertEqual([], self.hook.problems(subject))

    def test_bad_subjects_are_named(self) -> None:
        for subject, words in (
                ('agent: ' + 'x' * 80, 'has 87 characters'),
                ('Agent: raise the floor', 'begins with none'),
                ('raise the floor', 'begins with none'),
                ('agent: raised the floor', 'imperative'),
                ('agent: raising the floor', 'imperative')):
            with self.subTest(subject):
                found = self.hook.problems(subject)
                self.assertEqual(1, len(found))
                self.assertIn(words, found[0])
