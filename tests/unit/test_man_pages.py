# SPDX-License-Identifier: Apache-2.0

"""Each program has a man page that names all of its commands and options."""

import argparse
from collections.abc import Iterator
import importlib.util
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile
import unittest

from secondary_scheduler.cmd import agent, manage
from tests.unit import test_packaging
from tests.unit.test_packaging import ROOT

SOURCE = ROOT / 'doc/source'
#: Commands of "openstack" have a page of their own.
CLIENT = 'openstack-secondary-lease'
#: Packages with which the pages are built.
BUILDERS = ('cliff', 'openstackclient', 'openstackdocstheme', 'sphinx')


def man_pages() -> dict[str, pathlib.Path]:
    """Return the sources of the man pages by name."""
    settings = runpy.run_path(str(SOURCE / 'conf.py'))
    return {name: SOURCE / f'{page}.rst'
            for page, name, _, _, _ in settings['man_pages']}


def leaves(parser: argparse.ArgumentParser, *words: str
           ) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands of a parser that have no commands of their own."""
    inner = [one for one in parser._actions
             if isinstance(one, argparse._SubParsersAction)]
    if not inner:
        yield ' '.join(words), parser
    for actions in inner:
        for name, one in actions.choices.items():
            yield from leaves(one, *words, name)


class ManPageTest(unittest.TestCase):

    def test_each_program_has_a_page_about_it(self) -> None:
        programs = test_packaging.entry_points()['console_scripts']
        pages = man_pages()
        self.assertEqual({*programs, CLIENT}, set(pages))
        for program in programs:
            with self.subTest(program):
                self.assertIn(f'\n.. program-help:: {program}\n',
                              pages[program].read_text())
        self.assertIn(
            '\n.. autoprogram-cliff:: openstack.secondary_lease.v1\n',
            pages[CLIENT].read_text())

    def test_each_command_of_operators_is_on_the_page(self) -> None:
        # The other commands of the agent have no options of their own.
        plain = {'run', 'floor', 'release', 'status'}
        for program, parser, missing in (
                ('secondary-scheduler', manage.build_parser(), set()),
                ('secondary-agent', agent.build_parser(), plain)):
            text = man_pages()[program].read_text()
            listed = text.partition('.. program-help::')[2].splitlines()[1:]
            self.assertEqual(
                {name for name, _ in leaves(parser)} - missing,
                {line.strip() for line in listed if line.strip()})


@unittest.skipUnless(
    all(map(importlib.util.find_spec, BUILDERS)),
    'pages are built by "tox -e docs": no ' + ', '.join(BUILDERS))
class BuiltManPageTest(unittest.TestCase):

    def test_built_pages_name_each_option(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, '-m', 'sphinx', '-q', '-b', 'man',
                 SOURCE, folder], capture_output=True, text=True,
                env=os.environ | {'PYTHONPATH': str(ROOT)})
            self.assertEqual(0, done.returncode, done.stderr)
            text = {path.stem: path.read_text().replace('\\-', '-')
                    for path in pathlib.Path(folder).glob('*.1')}
        self.assertEqual(set(man_pages()), set(text))
        for program, whole in (('secondary-scheduler', manage.build_parser()),
                               ('secondary-agent', agent.build_parser())):
            for name, parser in leaves(whole):
                for action in parser._actions:
                    for option in action.option_strings:
                        with self.subTest(f'{program} {name} {option}'):
                            self.assertRegex(
                                text[program],
                                rf'(?<![\w-]){re.escape(option)}\b')
        for name, option in (('secondary-agent', '--dry-run'),
                             ('secondary-lease-api', '--port'),
                             ('secondary-scheduler-status', 'UPGRADE CHECK'),
                             (CLIENT, '--deadline')):
            with self.subTest(f'{name} {option}'):
                self.assertIn(option, text[name])


if __name__ == '__main__':
    unittest.main()
