# SPDX-License-Identifier: Apache-2.0

"""Strict reading of JSON documents, field by field.

An error names the path of the field, like ``hosts[3].capacity.vcpus``, and the
expected value. An unknown field is an error, too.
"""

from collections.abc import Callable, Collection, Iterator
import json
import math
import typing

from secondary_scheduler.reading.values import (
    MOST,
    InputError,
    UnreadableNumber,
    expected_number,
    shown,
)

_NEEDED = object()
#: Numbers with more digits exceed all bounds; Python refuses 4,300 digits.
_DIGITS = 400


class DocumentError(InputError):
    """An invalid document; the text is for its author."""


def load(text: str) -> 'Fields':
    """Read a JSON object.

    :raises DocumentError: if it is not an object, or has a name twice.
    """
    try:
        return Fields(json.loads(
            text, object_pairs_hook=_unique, parse_constant=UnreadableNumber,
            parse_int=_parse_int, parse_float=_parse_float), '')
    except json.JSONDecodeError as exc:
        raise DocumentError(f'line {exc.lineno}, column {exc.colno}: not '
                            f'JSON: {exc.msg}') from None
    except RecursionError:
        raise DocumentError('nested too deeply to be a document') from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _value in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DocumentError(f'the name "{twice}" is given twice in one '
                            'object: expected once')
    return found


def _parse_int(text: str) -> object:
    return int(text) if len(text) < _DIGITS else UnreadableNumber(text)


def _parse_float(text: str) -> object:
    value = float(text)
    return value if math.isfinite(value) else UnreadableNumber(text)


def _is_text(value: object) -> bool:
    """Return whether a value is text without lone surrogates."""
    return isinstance(value, str) and not any(
        '\ud800' <= one <= '\udfff' for one in value)


class Fields:
    """A JSON object; each field is taken once, ``done`` finds the rest."""

    def __init__(self, value: object, path: str) -> None:
        self.path = path
        if not isinstance(value, dict):
            raise DocumentError(f'{path or "the document"}: expected an '
                                f'object, not {shown(value)}')
        self._left: dict[str, typing.Any] = dict(value)
        self._known: list[str] = []

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f'{self.path}.{name}' if self.path else name

    def wrong(self, name: str, expected: str, value: object
              ) -> typing.NoReturn:
        """Raise an error for a field.

        :raises DocumentError: always.
        """
        raise DocumentError(
            f'{self.at(name)}: expected {expected}, not {shown(value)}')

    def take(self, name: str, expected: str,
             accept: Callable[[typing.Any], bool],
             default: object = _NEEDED) -> typing.Any:
        """Return the value of a field, ``default`` if it is missing.

        If the default is None, the value may also be null.

        :raises DocumentError: if it is not acceptable, or missing.
        """
        self._known.append(name)
        if name not in self._left:
            if default is _NEEDED:
                raise DocumentError(f'{self.at(name)}: is missing: expected '
                                    f'{expected}')
            return default
        value = self._left.pop(name)
        if not accept(value) and not (default is None and value is None):
            self.wrong(name, expected, value)
        return value

    def text(self, name: str, default: object = _NEEDED) -> typing.Any:
        """Take a non-empty text."""
        return self.take(name, 'a text', lambda value:
                         _is_text(value) and value != '', default)

    def choice(self, name: str, values: Collection[str],
               default: object = _NEEDED) -> typing.Any:
        """Take one of the given texts."""
        return self.take(name, 'one of ' + ', '.join(values), lambda value:
                         isinstance(value, str) and value in values, default)

    def truth(self, name: str, default: bool) -> bool:
        """Take true or false."""
        return bool(self.take(name, 'true or false', lambda value:
                              isinstance(value, bool), default))

    def whole(self, name: str, default: object = _NEEDED,
              least: int = 0, most: int = MOST) -> typing.Any:
        """Take a whole number."""
        return self.take(
            name, expected_number(least, most, True), lambda value:
            isinstance(value, int) and not isinstance(value, bool)
            and least <= value <= most, default)

    def number(self, name: str, default: object = _NEEDED,
               least: float = 0, most: float = MOST) -> typing.Any:
        """Take a finite number."""
        return self.take(
            name, expected_number(least, most), lambda value:
            isinstance(value, int | float) and not isinstance(value, bool)
            and least <= value <= most, default)

    def objects(self, name: str, optional: bool = False
                ) -> Iterator['Fields']:
        """Take a list of objects."""
        for number, value in enumerate(self.items(name, optional)):
            yield Fields(value, f'{self.at(name)}[{number}]')

    def items(self, name: str, optional: bool = False) -> list[object]:
        """Take a list; an optional one may be left out."""
        return list(self.take(name, 'a list', lambda value:
                              isinstance(value, list),
                              [] if optional else _NEEDED))

    def texts(self, name: str) -> list[str]:
        """Take an optional list of texts."""
        values = self.items(name, optional=True)
        for number, value in enumerate(values):
            if not _is_text(value):
                self.wrong(f'{name}[{number}]', 'a text', value)
        return [str(value) for value in values]

    def wholes(self, name: str) -> list[int]:
        """Take an optional list of whole numbers."""
        values = self.items(name, optional=True)
        for number, value in enumerate(values):
            if not isinstance(value, int) or isinstance(value, bool) or (
                    not 0 <= value <= MOST):
                self.wrong(f'{name}[{number}]', expected_number(
                    0, MOST, True), value)
        return [value for value in values if isinstance(value, int)]

    def object(self, name: str, optional: bool = False) -> 'Fields':
        """Take an object; an optional one may be left out."""
        return Fields(self.take(name, 'an object', lambda value:
                                isinstance(value, dict),
                                {} if optional else _NEEDED), self.at(name))

    def numbers(self, name: str, most: float = MOST,
                known: Collection[str] | None = None) -> dict[str, float]:
        """Take an optional object whose values are numbers from 0 on.

        :param known: the allowed names; None allows any.
        """
        fields = self.object(name, optional=True)
        found = {one: fields.number(one, most=most)
                 for one in fields.names if known is None or one in known}
        fields.done(known)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields that are not taken yet."""
        return tuple(self._left)

    def done(self, known: Collection[str] | None = None) -> None:
        """Check that all fields are taken.

        :param known: allowed names for the message; None: the taken ones.
        :raises DocumentError: naming an unknown field.
        """
        for name in self.names:
            raise DocumentError(
                f'{self.at(shown(name)[1:-1])}: is not known; expected only '
                + ', '.join(self._known if known is None else known))
