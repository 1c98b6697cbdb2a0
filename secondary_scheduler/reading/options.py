# SPDX-License-Identifier: Apache-2.0

"""Configuration files of oslo.config, with errors that name file and line.

oslo.config parses a value at its first use. ``load_options`` reads all values
at once, so that a service refuses to start, or to reload, instead of failing
later.
"""

import argparse
from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import pathlib
import re
import typing

from oslo_config import cfg, iniparser, types

from secondary_scheduler.reading import files
from secondary_scheduler.reading.values import (
    InputError,
    expected_number,
    shown,
)

_SECTION_OR_OPTION = 'expected "[SECTION]", "OPTION = VALUE" or a comment'
_SEPARATOR = re.compile('[:=]')


def load_options(conf: cfg.ConfigOpts, arguments: Sequence[str],
                 **named: typing.Any) -> None:
    """Read configuration files, and the values of all options.

    :param named: further arguments of the call of ``conf``.
    :raises InputError: naming file, line and expected value.
    """
    for path in _paths(arguments, **named):
        check_file(path)
    try:
        conf(list(arguments), **named)
    except (cfg.Error, OSError) as exc:
        raise InputError(str(exc).strip()) from exc
    check_values(conf)


def _paths(arguments: Sequence[str], project: str | None = None,
           prog: str | None = None,
           default_config_files: Sequence[str] | None = None,
           default_config_dirs: Sequence[str] | None = None,
           **_named: object) -> Iterator[str]:
    """Yield the existing configuration files that will be read."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument('--config-file', action='append', default=[])
    parser.add_argument('--config-dir', action='append', default=[])
    with contextlib.suppress(argparse.ArgumentError):
        given, _rest = parser.parse_known_args(list(arguments))
        if default_config_files is None:
            default_config_files = cfg.find_config_files(project, prog)
        if default_config_dirs is None:
            default_config_dirs = cfg.find_config_dirs(project, prog)
        for path in given.config_file or default_config_files:
            if pathlib.Path(path).exists():
                yield path
        for folder in given.config_dir or default_config_dirs:
            yield from map(str, sorted(pathlib.Path(folder).glob('*.conf')))


def check_file(path: str) -> None:
    """Check that oslo.config can parse a file.

    :raises InputError: naming line and expected text.
    """
    text = files.read_plain(path)
    if text.startswith('\ufeff'):
        raise InputError(f'{path}, line 1: expected no byte order mark')
    for number, line in enumerate(text.split('\n'), 1):
        if '\0' in line:
            raise InputError(f'{path}, line {number}: expected text, not a '
                             'null byte')
    parser = cfg.ConfigParser(path, {})
    try:
        iniparser.BaseParser.parse(parser, text.splitlines())
    except iniparser.ParseError as exc:
        raise InputError(f'{path}, line {exc.lineno}: {exc.msg}: '
                         f'{_SECTION_OR_OPTION}') from None


@dataclasses.dataclass(frozen=True)
class Setting:
    """A line of a configuration file that sets an option."""

    path: str
    line: int
    section: str
    name: str
    value: str


def read_settings(conf: cfg.ConfigOpts) -> Iterator[Setting]:
    """Yield the settings in the files that were read, in their order.

    :raises InputError: if a file cannot be read any more.
    """
    paths = [*(conf.config_file or ()), *(
        str(path) for folder in conf.config_dir or ()
        for path in sorted(pathlib.Path(folder).glob('*.conf')))]
    for path in paths:
        section = 'DEFAULT'
        for number, line in enumerate(
                files.read_plain(path).splitlines(), 1):
            if line.startswith('['):
                section = line.rstrip()[1:-1]
                continue
            name, equals, value = _SEPARATOR.sub('=', line, 1).partition('=')
            # A line that begins with white space continues a value.
            if equals and not line[0].isspace():
                yield Setting(path, number, section, name.strip(),
                              value.strip())


def check_values(conf: cfg.ConfigOpts) -> None:
    """Read the values of all registered options.

    :raises InputError: naming file, line and expected value.
    """
    for name in conf:
        try:
            value = conf[name]
        except (cfg.Error, ValueError) as exc:
            raise _wrong(conf, 'DEFAULT', name, exc) from exc
        if isinstance(value, cfg.ConfigOpts.GroupAttr):
            for one in value:
                try:
                    value[one]
                except (cfg.Error, ValueError) as exc:
                    raise _wrong(conf, name, one, exc) from exc


def _wrong(conf: cfg.ConfigOpts, group: str, name: str, exc: Exception
           ) -> InputError:
    option = next((one['opt'] for one in _registered(conf, group).values()
                   if one['opt'].dest == name), None)
    unknown = isinstance(exc, cfg.NoSuchOptError | cfg.NoSuchGroupError
                         | cfg.TemplateSubstitutionError)
    expected = ('$$ for a dollar sign, or the name of an option after it'
                if unknown else _expected(option.type if option else None))
    names = {name, name.replace('_', '-')}
    for one in option.deprecated_opts if option else ():
        names |= {one.name, str(one.name).replace('-', '_')}
    place, value = _place(conf, group, names, '$' if unknown else '')
    return InputError(f'{place}[{group}] {name}: expected {expected}'
                      + (f', not {shown(value)}' if place else f': {exc}'))


def _registered(conf: cfg.ConfigOpts, group: str) -> typing.Any:
    return conf._opts if group == 'DEFAULT' else conf._groups[group]._opts


def _place(conf: cfg.ConfigOpts, group: str, names: set[str], within: str
           ) -> tuple[str, str]:
    """Return place and text of the last setting of an option, or ''."""
    found = '', ''
    for one in read_settings(conf):
        if one.section == group and one.name in names and within in one.value:
            found = f'{one.path}, line {one.line}: ', one.value
    return found


def _expected(kind: typing.Any) -> str:
    """Describe the values of a type, for an error message."""
    if isinstance(kind, types.Integer | types.Float):
        return expected_number(
            -float('inf') if kind.min is None else kind.min,
            float('inf') if kind.max is None else kind.max,
            isinstance(kind, types.Integer))
    if isinstance(kind, types.Boolean):
        return 'true or false'
    if isinstance(kind, types.List):
        return f'a list, each being {_expected(kind.item_type)}'
    if getattr(kind, 'choices', None):
        return 'one of ' + ', '.join(map(str, kind.choices))
    return f'a value of the type {kind}' if kind else 'another value'
