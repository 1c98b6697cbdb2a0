"""Options of users, and files to write."""

import typing

from secondary_scheduler.reading.values import InputError


def pair(text: str) -> tuple[str, str]:
    """Return key and value of what --set takes."""
    key, equals, value = text.partition('=')
    if not equals:
        raise InputError(f'--set takes KEY=VALUE, like profile=thesis, not '
                         f'{text!r}')
    return key, value


def open_for_writing(path: str) -> typing.TextIO:
    """Open a file that the user named."""
    try:
        return open(path, 'w', encoding='utf-8')
    except OSError as exc:
        raise InputError(f'{path}: {exc.strerror}') from exc
