# SPDX-License-Identifier: Apache-2.0

"""Values of command line options, and files to write."""

from collections.abc import Mapping
import dataclasses
import typing

from secondary_scheduler.reading.values import InputError

Values = typing.TypeVar('Values')


def parse_pair(text: str) -> tuple[str, str]:
    """Return key and value of an argument of --set."""
    key, equals, value = text.partition('=')
    if not equals:
        raise InputError(f'--set takes KEY=VALUE, like profile=thesis, not '
                         f'{text!r}')
    return key, value


def open_for_writing(path: str) -> typing.TextIO:
    """Open a file named on the command line."""
    try:
        return open(path, 'w', encoding='utf-8')
    except OSError as exc:
        raise InputError(f'{path}: {exc.strerror}') from exc


def change_fields(values: Values, changes: Mapping[str, str]) -> Values:
    """Return a dataclass with some fields set from the text of --set.

    The field ``name`` cannot be set.

    :raises InputError: for an unknown field, or a value of another type
    """
    some: typing.Any = values
    fields = {one.name: one.type for one in dataclasses.fields(some)
              if one.name != 'name'}
    found: dict[str, typing.Any] = {}
    for key, text in changes.items():
        if key not in fields:
            raise InputError(f'--set: there is no parameter {key}; there '
                             'are: ' + ', '.join(sorted(fields)))
        found[key] = _value(key, text, fields[key])
    changed: Values = dataclasses.replace(some, **found)
    return changed


def _value(key: str, text: str, kind: object) -> object:
    words = {'on': True, 'true': True, 'off': False, 'false': False}
    if kind is bool:
        if text.lower() not in words:
            raise InputError(f'--set: {key} is on or off, not {text!r}')
        return words[text.lower()]
    if kind is str:
        return text
    try:
        value = int(text) if kind is int else float(text)
    except ValueError:
        value = -1
    if not 0 <= value < float('inf'):
        raise InputError(f'--set: {key} is a number from 0, not {text!r}')
    return value
