# SPDX-License-Identifier: Apache-2.0

"""The command lines that documents quote, and the parsers that read them.

``faults`` is to run in a process of its own: benchmarks and commands load
Nova, Watcher and Placement, which all fill the one global configuration.
"""

import argparse
from collections.abc import Callable, Iterator
import configparser
import contextlib
import dataclasses
import importlib
import importlib.metadata
import io
import os
import pathlib
import pkgutil
import re
import runpy
import shlex
import sys
import tempfile
from unittest import mock

from oslo_config import cfg

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Programs that are directories; the second has modules of the first.
TOOLS = (ROOT / 'tools/box', ROOT / 'tools/devstack')
#: Where users read commands; of programs, what they say of themselves.
DOCUMENTS = ('README.md', 'CONTRIBUTING.md', 'benchmarks/README.md',
             'doc/source/**/*.rst', 'benchmarks/*.py', 'tools/*/*.py',
             'secondary_scheduler/cmd/*.py',
             'secondary_scheduler/leases/client/**/*.py')

_PROGRAM = (r'(?:python3? |openstack |tox |secondary-(?:agent|lease-api|'
            r'scheduler|scheduler-status)(?= |$))')
_LINE = re.compile(rf'^ +(?:[A-Z]+=\S+ )*({_PROGRAM}.*)$')
_INLINE = re.compile(rf'`({_PROGRAM}[^`]*)`')
#: What is left out of a command is told by this.
_MORE = '...'
_REQUIRED = 'arguments are required'
_FILE = re.compile(r'[A-Za-z][\w-]*\.(conf|csv|json|lwf|sh|swf|ya?ml)')
_OURS = 'openstack.secondary_lease.v1'


@dataclasses.dataclass(frozen=True)
class Quoted:
    """A command line of a document; one within a sentence may be cut short.
    """

    place: str
    text: str
    whole: bool

    def words(self) -> list[str]:
        """Return its words, without what only readers or shells need."""
        text = re.sub(r'[][]', '', self.text)           # optional ones too
        text = re.sub(r'(\w)\|[\w|]+', r'\1', text)     # the first of some
        lexer = shlex.shlex(text, posix=True, punctuation_chars='|>&;')
        lexer.whitespace_split, lexer.commenters = True, '#'
        words = []
        for word in lexer:
            if set(word) <= set('|>&;'):
                break
            words.append(word)
        return [word for word in words if word != _MORE]

    @property
    def lenient(self) -> bool:
        """Whether it may lack what its program requires."""
        return not self.whole or _MORE in self.text

    @property
    def platform(self) -> str:
        """The package whose global configuration its program fills.

        Nova's and Watcher's options of one name cannot be in one process.
        """
        script = next((ROOT / word for word in self.words()
                       if word.startswith('benchmarks/')), None)
        imports_watcher = script and script.is_file() and (
            '\nfrom watcher' in script.read_text())
        return 'watcher' if imports_watcher else 'nova'


def quoted() -> list[Quoted]:
    """Return every command line that the documents quote."""
    found = []
    for pattern in DOCUMENTS:
        for path in sorted(ROOT.glob(pattern)):
            found += _of(path)
    return found


def _of(path: pathlib.Path) -> Iterator[Quoted]:
    name = str(path.relative_to(ROOT))
    lines = path.read_text().replace('\\\\\n', '\\\n').split('\n')
    for number, line in enumerate(lines, 1):
        place = f'{name}:{number}'
        if match := _LINE.match(line):
            text, more = match[1], number
            while text.endswith('\\'):
                text = text[:-1] + lines[more].strip()
                more += 1
            yield Quoted(place, text, True)
        elif path.suffix != '.py':
            for text in _INLINE.findall(line):
                yield Quoted(place, text, False)


# --- the parsers -------------------------------------------------------------

class Parsed(BaseException):
    """A command line was read; nothing of what it asks for is done."""


@contextlib.contextmanager
def _read_only() -> Iterator[None]:
    """Have programs end when they have read their command line."""
    read = argparse.ArgumentParser.parse_args

    def parse_args(self: argparse.ArgumentParser, *more: object) -> object:
        read(self, *more)
        raise Parsed

    with mock.patch.object(argparse.ArgumentParser, 'parse_args', parse_args):
        yield


@contextlib.contextmanager
def _options_in_full() -> Iterator[None]:
    """Take no abbreviation of an option: another one may be added."""
    found = argparse.ArgumentParser._get_option_tuples

    def options(self: argparse.ArgumentParser, text: str) -> object:
        return [] if text.startswith('--') else found(self, text)

    with mock.patch.object(argparse.ArgumentParser, '_get_option_tuples',
                           options):
        yield


def _tool(program: str, *words: str) -> None:
    spec = importlib.util.spec_from_file_location(
        program.replace('/', '_'), ROOT / program / '__main__.py')
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    options = module.parser().parse_args(words)
    inner = getattr(options, 'arguments', [])
    if options.command == 'openstack':
        _parse(['openstack', *inner])
    elif options.command == 'exec':
        _parse([options.program, *inner])
    elif options.command in ('script', 'bare'):
        _parse(['python', options.file, *inner])
    for path in getattr(options, 'tests', []):
        assert path == 'FILES' or (ROOT / path).exists(), f'no {path}'


def _script(words: list[str]) -> None:
    """Read the command line of a benchmark; placeholders stand for any."""
    path = ROOT / words[0]
    if path.name == 'FILE':
        return
    with mock.patch.object(sys, 'argv', [str(path), *words[1:]]), (
            mock.patch.object(sys, 'path', [str(path.parent), *sys.path])), (
            _read_only()):
        runpy.run_path(str(path), run_name='__main__')


def _manage(words: list[str]) -> None:
    from secondary_scheduler.cmd import manage
    from secondary_scheduler.simulation import experiments
    options = manage.build_parser().parse_args(words)
    if options.action == 'simulate_run':
        assert options.name in experiments.EXPERIMENTS, options.name


def _agent(words: list[str]) -> None:
    from secondary_scheduler.cmd import agent
    with contextlib.ExitStack() as stack:
        for name in agent._COMMANDS:
            stack.enter_context(mock.patch.object(
                agent, name, lambda *arguments: 0))
        sys.exit(agent.main(words))


def _status(words: list[str]) -> None:
    from secondary_scheduler.cmd import status
    with mock.patch.object(status.Checks, 'check', lambda self: 0):
        sys.exit(status.main(words))


def _lease_api(words: list[str]) -> None:
    from secondary_scheduler.cmd import lease_api
    with _read_only():
        lease_api.main(words)


def _openstack(words: list[str]) -> None:
    from cliff import commandmanager
    commands = commandmanager.CommandManager('openstack.cli')
    # The newest version of each service comes last.
    for group in sorted(importlib.metadata.entry_points().groups):
        if re.fullmatch(r'openstack\.(common|[a-z_]+\.v\d+)', group):
            commands.add_command_group(group)
    # Ours are those of this source, whatever is installed.
    setup = configparser.ConfigParser()
    setup.read(ROOT / 'setup.cfg')
    for line in setup['entry_points'][_OURS].split('\n'):
        if line:
            name, _, target = line.partition(' = ')
            commands.add_command(name.replace('_', ' '),
                                 pkgutil.resolve_name(target))
    factory, name, rest = commands.find_command(words)
    factory(mock.MagicMock(), None).get_parser(name).parse_args(rest)


def _tox(words: list[str]) -> None:
    tox = configparser.ConfigParser()
    tox.read(ROOT / 'tox.ini')
    known = {'py3', *(name.removeprefix('testenv:') for name in tox)}
    options = argparse.ArgumentParser()
    options.add_argument('-e', type=lambda text: text.split(','))
    assert set(options.parse_args(words).e) <= known, words


_PARSERS: dict[str, Callable[[list[str]], None]] = {
    'openstack': _openstack, 'tox': _tox, 'secondary-scheduler': _manage,
    'secondary-agent': _agent, 'secondary-scheduler-status': _status,
    'secondary-lease-api': _lease_api}


def _parse(words: list[str]) -> None:
    """Read a command line; programs of others are left alone."""
    program, *rest = words
    if program in ('python', 'python3') and rest:
        if rest[0] in ('tools/box', 'tools/devstack'):
            _tool(*rest)
        elif rest[0].startswith('benchmarks/'):
            _script(rest)
    elif program in _PARSERS and rest:
        _PARSERS[program]([
            os.devnull if before == '--config-file' else word
            for before, word in zip(words, rest, strict=False)])


def fault(one: Quoted) -> str | None:
    """Return why a command line cannot be given, None if it can be."""
    said = io.StringIO()
    cfg.CONF.reset()    # as in a process of its own
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(
                io.StringIO()), _options_in_full():
            words = one.words()
            for word in filter(_FILE.fullmatch, words):
                pathlib.Path(word).write_text('#!/bin/sh\n')
            _parse(words)
    except Parsed:
        return None
    except SystemExit as exc:
        if not exc.code or one.lenient and _REQUIRED in said.getvalue():
            return None
        return said.getvalue().strip().rpartition('\n')[2] or str(exc.code)
    except Exception as exc:
        return f'{type(exc).__name__}: {exc}'
    return None


def faults(lines: list[Quoted]) -> list[str]:
    """Return what is wrong with command lines of one platform.

    They are read in a process of its own, in a directory that has the files
    that they name.
    """
    sys.path[:0] = [str(ROOT), *map(str, TOOLS)]
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        return [f'{one.place}: {one.text}: {why}' for one in lines
                if (why := fault(one))]
