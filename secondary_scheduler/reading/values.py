"""Single values: numbers within bounds, and how a wrong one is shown."""

import json
import math
import re

#: The largest number that a file may give for anything: with it sums over a
#: million of them still fit into 64 bits.
MOST = 10**12

_NUMBER = re.compile(r'[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?', re.ASCII)
_WHOLE = re.compile(r'[+-]?\d{1,20}', re.ASCII)
_SHOWN = 60


class InputError(ValueError):
    """Input that cannot be read; the text is for its author."""


class UnreadableNumber:
    """A number of a file that is beyond all bounds, as its text."""

    def __init__(self, text: str) -> None:
        self.text = text


def expected_number(least: float, most: float, whole: bool = False) -> str:
    """Return what is expected where a number has bounds."""
    return (('a whole number' if whole else 'a number')
            + ('' if least == -math.inf else f' from {_plain(least)}')
            + ('' if most == math.inf else f' to {_plain(most)}'))


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else f'{value:g}'


def parse_whole(text: str, least: int = 0, most: int = MOST) -> int:
    """Return a whole number that is written in ASCII digits.

    :raises InputError: saying what is expected, and what is there.
    """
    stripped = text.strip(' ')
    if _WHOLE.fullmatch(stripped):
        value = int(stripped)
        if least <= value <= most:
            return value
    raise InputError(f'expected {expected_number(least, most, True)}, not '
                     f'{shown(text)}')


def parse_number(text: str, least: float = 0, most: float = MOST) -> float:
    """Return a finite number that is written in ASCII digits.

    :raises InputError: saying what is expected, and what is there.
    """
    if _NUMBER.fullmatch(text.strip(' ')):
        value = float(text)
        if least <= value <= most and math.isfinite(value):
            return value
    raise InputError(f'expected {expected_number(least, most)}, not '
                     f'{shown(text)}')


def shown(value: object) -> str:
    """Return a wrong value in ASCII, cut off where it is long."""
    text = (value.text if isinstance(value, UnreadableNumber)
            else json.dumps(value, default=shown))
    return text if len(text) <= _SHOWN else text[:_SHOWN - 3] + '...'
