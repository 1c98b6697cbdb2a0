# SPDX-License-Identifier: Apache-2.0

"""Single values: parsing of numbers, and display of invalid values."""

import json
import math
import re

#: The largest number that files may contain: a sum of a million of them still
#: fits into 64 bits.
MOST = 10**12

_NUMBER = re.compile(r'[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?',
                     re.ASCII)
_WHOLE = re.compile(r'[+-]?\d{1,20}', re.ASCII)
_SHOWN = 60


class InputError(ValueError):
    """Invalid input; the text is for its author."""


class UnreadableNumber:
    """A number in a file that exceeds all bounds, as its text."""

    def __init__(self, text: str) -> None:
        self.text = text


def expected_number(least: float, most: float, whole: bool = False) -> str:
    """Describe a number with bounds, for an error message."""
    return (('a whole number' if whole else 'a number')
            + ('' if least == -math.inf else f' from {_plain(least)}')
            + ('' if most == math.inf else f' to {_plain(most)}'))


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else f'{value:g}'


def parse_whole(text: str, least: int = 0, most: int = MOST) -> int:
    """Parse a whole number in ASCII digits.

    :raises InputError: naming the expected and the given value.
    """
    stripped = text.strip(' ')
    if _WHOLE.fullmatch(stripped):
        value = int(stripped)
        if least <= value <= most:
            return value
    raise InputError(f'expected {expected_number(least, most, True)}, not '
                     f'{shown(text)}')


def parse_number(text: str, least: float = 0, most: float = MOST) -> float:
    """Parse a finite number in ASCII digits.

    :raises InputError: naming the expected and the given value.
    """
    if _NUMBER.fullmatch(text.strip(' ')):
        value = float(text)
        if least <= value <= most and math.isfinite(value):
            return value
    raise InputError(f'expected {expected_number(least, most)}, not '
                     f'{shown(text)}')


def shown(value: object) -> str:
    """Return an invalid value as ASCII text, shortened if it is long."""
    text = (value.text if isinstance(value, UnreadableNumber)
            else json.dumps(value, default=shown))
    return text if len(text) <= _SHOWN else text[:_SHOWN - 3] + '...'
