# SPDX-License-Identifier: Apache-2.0

"""Values of command line options, and files to write."""

import typing

from secondary_scheduler.reading.values import InputError


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
