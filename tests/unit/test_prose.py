# SPDX-License-Identifier: Apache-2.0

"""The language of the project follows HACKING.rst."""

import ast
from collections import defaultdict
import pathlib
import tempfile
import unittest

from tests.unit import prose

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ('secondary_dashboard', 'secondary_scheduler',
            'secondary_tempest_plugin')
#: Class names that several modules may have, each with one meaning.
SHARED_CLASSES = 12


def modules(*folders: str) -> list[pathlib.Path]:
    """Return the Python files of folders of the repository."""
    return sorted(path for folder in folders
                  for path in (ROOT / folder).rglob('*.py'))


def pages() -> list[pathlib.Path]:
    """Return the pages of the documentation and README."""
    return [ROOT / 'README.md', *sorted((ROOT / 'doc/source').rglob('*.rst'))]


class DocstringTest(unittest.TestCase):
    def setUp(self) -> None:
        """Read all docstrings of the package."""
        self.texts = [text for path in modules(*PACKAGES)
                      for text in prose.read_docstrings(path)]

    def test_no_docstring_opens_with_an_interrogative(self) -> None:
        self.assertEqual([], prose.openings(self.texts))

    def test_vague_pronouns_are_rare(self) -> None:
        self.assertLessEqual(
            prose.vague_share([one.text for one in self.texts]), 1.0)

    def test_an_added_docstring_is_found(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'module.py'
            path.write_text('"""Who fits may come in, says R36."""\n')
            texts = list(prose.read_docstrings(path))
            self.assertEqual(1, len(prose.openings(texts)))
            self.assertLess(1.0, prose.vague_share(
                [one.text for one in texts]))
            self.assertEqual(1, len(prose.foreign_citations(texts, ROOT)))


class PageTest(unittest.TestCase):
    def test_vague_pronouns_are_rare(self) -> None:
        self.assertLessEqual(prose.vague_share(
            [path.read_text() for path in pages()]), 2.0)


class CitationTest(unittest.TestCase):
    def test_docstrings_and_comments_cite_the_repository_only(self) -> None:
        texts = [text for path in modules(
                     *PACKAGES, 'tools', 'benchmarks', 'tests')
                 if path != pathlib.Path(__file__).resolve()
                 for read in (prose.read_docstrings, prose.read_comments)
                 for text in read(path)]
        self.assertEqual([], prose.foreign_citations(texts, ROOT))

    def test_pages_cite_the_repository_only(self) -> None:
        texts = [prose.Text(path, number, line) for path in pages()
                 for number, line in enumerate(
                     path.read_text().splitlines(), 1)]
        self.assertEqual([], prose.foreign_citations(texts, ROOT))


class StructureTest(unittest.TestCase):
    def test_few_class_names_are_used_twice(self) -> None:
        found = defaultdict(set)
        for path in modules('secondary_scheduler'):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].add(str(path.relative_to(ROOT)))
        twice = {name: sorted(paths) for name, paths in found.items()
                 if len(paths) > 1}
        self.assertLessEqual(len(twice), SHARED_CLASSES, twice)

    def test_modules_are_short(self) -> None:
        lines = {str(path.relative_to(ROOT)): len(
            path.read_text().splitlines())
            for path in modules(*PACKAGES)}
        self.assertEqual({}, {path: count for path, count in lines.items()
                              if count > 520})
        long = {path: count for path, count in lines.items() if count > 400}
        self.assertLessEqual(len(long), 8, long)
