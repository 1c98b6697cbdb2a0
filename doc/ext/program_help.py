# SPDX-License-Identifier: Apache-2.0

"""Sphinx directive ``program-help``: the ``--help`` of a program.

The argument is the name of a console script; the content has one command of
it on each line. ::

    .. program-help:: secondary-scheduler

       host list
       plan check
"""

from importlib import metadata
import os
import subprocess
import sys

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class ProgramHelp(SphinxDirective):
    """Insert the help of a program, and of each command that is listed."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return a literal block, and a section for each command."""
        program = self.arguments[0]
        found: list[nodes.Node] = [_block(help_text(program))]
        for command in filter(None, map(str.strip, self.content)):
            title = f'{program} {command}'
            section = nodes.section(ids=[nodes.make_id(title)])
            section += nodes.title(title, title)
            section += _block(help_text(program, *command.split()))
            found.append(section)
        return found


def _block(text: str) -> nodes.Node:
    return nodes.literal_block(text, text, language='none')


def help_text(program: str, *command: str) -> str:
    """Return what a program prints for ``--help``.

    :raises RuntimeError: if the program fails.
    """
    script, = (one for one in metadata.entry_points(group='console_scripts')
               if one.name == program)
    code = (f'import sys; from {script.module} import {script.attr} as main; '
            f'sys.argv[0] = {program!r}; sys.exit(main())')
    done = subprocess.run(
        [sys.executable, '-c', code, *command, '--help'],
        capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {'COLUMNS': '82'})
    if done.returncode:
        raise RuntimeError(f'{program} {" ".join(command)} --help ends with '
                           f'{done.returncode}: {done.stderr[-2000:]}')
    return done.stdout.strip()


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive('program-help', ProgramHelp)
    return {'parallel_read_safe': True}
