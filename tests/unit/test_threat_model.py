# SPDX-License-Identifier: Apache-2.0

"""What doc/source/admin/security.rst promises."""

import ast
import os
import pathlib
import re
import stat
import tempfile
import unittest

from secondary_scheduler import conf
from secondary_scheduler.agent import store

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / 'doc/source/admin/security.rst').read_text()
MANUAL = (ROOT / 'doc/source/install/manual.rst').read_text()

_ITEM = re.compile(r'^([A-Z]\d+): ', re.MULTILINE)
_TEST = re.compile(r'^    \* ``(tests/\S+\.py)::(\S+)``$', re.MULTILINE)


def names_in(path):
    """Return the names of a file's tests, as pytest has them."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f'{node.name}::{inner.name}' for inner in node.body
                      if isinstance(inner, ast.FunctionDef)}
    return found


class Page(unittest.TestCase):

    def test_each_item_names_tests_that_are_there(self):
        parts = _ITEM.split(PAGE)[1:]
        items = dict(zip(parts[::2], parts[1::2], strict=True))
        self.assertEqual(len(parts), 2 * len(items))
        self.assertGreater(len(items), 20)
        for item, text in items.items():
            named = _TEST.findall(text)
            self.assertTrue(named, item)
            for path, name in named:
                with self.subTest(f'{item}: {path}::{name}'):
                    self.assertTrue(name.rpartition('::')[2].startswith(
                        'test_'))
                    self.assertIn(name, names_in(ROOT / path))

    def test_every_bullet_is_read(self):
        self.assertEqual(PAGE.count('``tests/'), len(_TEST.findall(PAGE)))

    def test_every_fuzz_test_is_named(self):
        named = {f'{path}::{name}' for path, name in _TEST.findall(PAGE)}
        for path in (ROOT / 'tests').rglob('test_fuzz.py'):
            for name in names_in(path):
                if name.rpartition('::')[2].startswith('test_'):
                    self.assertIn(f'{path.relative_to(ROOT)}::{name}', named)


class Broker(unittest.TestCase):

    def test_the_manual_has_what_the_box_has_tried(self):
        path = ROOT / 'tools/box/stores.py'
        tree = ast.parse(path.read_text())
        tried = {target.id: ast.literal_eval(node.value)
                 for node in tree.body if isinstance(node, ast.Assign)
                 for target in node.targets if isinstance(target, ast.Name)
                 and target.id in ('PERMISSIONS', 'TOPICS')}
        self.assertEqual([3, 2], [len(tried[name]) for name in (
            'PERMISSIONS', 'TOPICS')])
        for one in (*tried['PERMISSIONS'], *tried['TOPICS']):
            self.assertIn(f"'{one.format(host='HOST')}'", MANUAL)


class Secrets(unittest.TestCase):

    def options(self):
        return {f'{group.name}.{option.name}': option
                for group, options in conf.list_opts() for option in options}

    def test_options_with_passwords_are_not_logged(self):
        options = self.options()
        urls = {name for name in options if name.endswith('_url')}
        self.assertIn('secondary_scheduler.transport_url', urls)
        for name in urls:
            self.assertTrue(options[name].secret, name)

    def test_state_is_for_root_only(self):
        with tempfile.TemporaryDirectory() as directory:
            before = os.umask(0)
            self.addCleanup(os.umask, before)
            self.assertTrue(store.StateStore(
                directory).save('limits.json', {}))
            mode = os.stat(os.path.join(directory, 'limits.json')).st_mode
            self.assertEqual(0o600, stat.S_IMODE(mode))

    def test_no_port_is_open_by_default(self):
        options = self.options()
        ports = {name for name in options if name.endswith('_port')}
        self.assertEqual({
            f'secondary_{part}.metrics_port'
            for part in ('agent', 'watcher', 'lease_api')}, ports)
        for name in ports:
            self.assertEqual(0, options[name].default)
            self.assertEqual('127.0.0.1', options[
                name.replace('_port', '_address')].default)
