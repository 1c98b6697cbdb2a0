# SPDX-License-Identifier: Apache-2.0

"""Text files, plain or compressed, in UTF-8, UTF-16 or UTF-32.

The first bytes determine the compression (gzip, bzip2 or xz) and, by the byte
order mark, the encoding; the default encoding is UTF-8.
"""

import bz2
import codecs
from collections.abc import Iterator, Sequence
import contextlib
import csv
import gzip
import io
import lzma
import os
import re
import sys
import typing
import zlib

from secondary_scheduler.reading.values import (
    MOST,
    InputError,
    parse_number,
    parse_whole,
)

Path = str | os.PathLike[str]

#: Largest number of bytes of a document that is read as a whole, and of a file
#: that is read line by line, both uncompressed; of characters of a line.
LARGEST_DOCUMENT = 1 << 28
LARGEST_FILE = 1 << 32
LONGEST_LINE = 1 << 16

#: Characters of numbers, and blanks between them.
_DIGITS = re.compile('[0-9.eE+ -]*')

_PACKED: Sequence[tuple[bytes, typing.Any]] = (
    (b'\x1f\x8b', gzip.open), (b'BZh', bz2.open),
    (b'\xfd7zXZ\x00', lzma.open))
_MARKS = (
    (codecs.BOM_UTF8, 'utf-8-sig'), (codecs.BOM_UTF32_LE, 'utf-32'),
    (codecs.BOM_UTF32_BE, 'utf-32'), (codecs.BOM_UTF16_LE, 'utf-16'),
    (codecs.BOM_UTF16_BE, 'utf-16'))


class Row:
    """The values of a line, which are read by their index."""

    def __init__(self, path: Path, line: int, values: Sequence[str]) -> None:
        self.path = path
        self.line = line
        self.values = values

    def wrong(self, problem: str) -> InputError:
        """Return an error that names this line."""
        return InputError(f'{name_of(self.path)}, line {self.line}: {problem}')

    def whole(self, index: int, name: str, least: int = 0,
              most: int = MOST) -> int:
        """Return a whole number.

        :param name: name of the number, for the message.
        :raises InputError: if it is not a whole number, or out of bounds.
        """
        try:
            return parse_whole(self.values[index], least, most)
        except InputError as exc:
            raise self.wrong(f'field {index + 1}, {name}: {exc}') from None

    def number(self, index: int, name: str, least: float = 0,
               most: float = MOST) -> float:
        """Return a number; see ``whole``."""
        try:
            return parse_number(self.values[index], least, most)
        except InputError as exc:
            raise self.wrong(f'field {index + 1}, {name}: {exc}') from None

    def numbers(self, first: int, names: Sequence[str], least: float = 0,
                most: float = MOST) -> list[float]:
        """Return the numbers from an index on, one for each name."""
        values = self.values[first:first + len(names)]
        if _DIGITS.fullmatch(' '.join(values)):
            with contextlib.suppress(ValueError):
                found = list(map(float, values))
                if least <= min(found) and max(found) <= most:
                    return found
        return [self.number(first + index, name, least, most)
                for index, name in enumerate(names[:len(values)])]


def name_of(path: Path) -> str:
    """Return the name of a file in a message."""
    return 'standard input' if path == '-' else os.fspath(path)


def _encoding(start: bytes) -> str:
    return next((name for mark, name in _MARKS if start.startswith(mark)),
                'utf-8')


@contextlib.contextmanager
def _opened(path: Path, place: typing.Callable[[], str] = str,
            packed: bool = True) -> Iterator[typing.BinaryIO]:
    """Open a file; uncompress it if it may be ``packed``.

    :param place: returns the position in the file, for messages.
    """
    try:
        with contextlib.ExitStack() as stack:
            raw: typing.Any = (getattr(sys.stdin, 'buffer', None) if path
                               == '-' else stack.enter_context(
                                   open(path, 'rb')))
            if raw is None:
                raise InputError('standard input is not a file of bytes')
            start = raw.peek(8)
            for magic, unpack in _PACKED if packed else ():
                if start.startswith(magic):
                    raw = stack.enter_context(unpack(raw, 'rb'))
                    break
            yield raw
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as exc:
        if isinstance(exc, OSError) and exc.strerror:
            raise InputError(f'{name_of(path)}: {exc.strerror}') from exc
        raise InputError(
            f'{name_of(path)}{place()}: the compressed data are damaged or '
            f'cut off ({exc}): expected a whole file') from exc
    except ValueError as exc:
        if isinstance(exc, InputError):
            raise
        # A null byte in the path, or an invalid byte in the text.
        raise InputError(f'{name_of(path)}{place()}: {exc}') from exc


def read_bytes(path: Path, packed: bool = True) -> bytes:
    """Return the content of a file; - is standard input.

    :param packed: whether it may be compressed; then it is uncompressed.
    :raises InputError: if it cannot be read, or is too large.
    """
    with _opened(path, packed=packed) as opened:
        data = opened.read(LARGEST_DOCUMENT + 1)
    if len(data) > LARGEST_DOCUMENT:
        raise InputError(f'{name_of(path)}: expected at most '
                         f'{LARGEST_DOCUMENT >> 20} MiB')
    return data


def read_document(path: Path) -> str:
    """Return the whole text of a file; - is standard input.

    :raises InputError: if it cannot be read, is too large, or is not text.
    """
    data = read_bytes(path)
    return _decoded(path, data, _encoding(data))


def read_plain(path: Path) -> str:
    """Return the text of an uncompressed file in UTF-8.

    For files that other libraries read, too.

    :raises InputError: if it cannot be read, is too large, or is not text.
    """
    return _decoded(path, read_bytes(path, packed=False), 'utf-8')


def _decoded(path: Path, data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as exc:
        line = data.count(b'\n', 0, exc.start) + 1
        raise InputError(
            f'{name_of(path)}, line {line}: expected text in '
            f'{encoding.removesuffix("-sig").upper()}, not the byte '
            f'0x{data[exc.start]:02x}') from None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of each line of a file, numbered from 1.

    Invalid bytes become lone surrogates, which no value may contain. So a
    comment may be in any encoding.

    :raises InputError: if the file cannot be read, or a line is too long.
    """
    number = size = 0
    with _opened(path, lambda: f', after line {number}') as opened:
        start: bytes = opened.peek(4)   # type: ignore[attr-defined]
        text = io.TextIOWrapper(opened, _encoding(start),
                                errors='surrogateescape')
        while line := text.readline(LONGEST_LINE + 1):
            number += 1
            size += len(line)
            if len(line) > LONGEST_LINE:
                raise InputError(f'{name_of(path)}, line {number}: expected '
                                 f'at most {LONGEST_LINE} characters')
            if size > LARGEST_FILE:
                raise InputError(f'{name_of(path)}: expected at most '
                                 f'{LARGEST_FILE >> 20} MiB')
            yield number, line


def read_csv(path: Path) -> Iterator[Row]:
    """Yield the rows of a file of comma-separated values.

    Empty lines are skipped; ``line`` is the last line of a row.

    :raises InputError: if the file cannot be read.
    """
    rows = csv.reader(line for _number, line in read_lines(path))
    while True:
        try:
            values = next(rows, None)
        except csv.Error as exc:
            raise InputError(f'{name_of(path)}, line {rows.line_num}: {exc}'
                             ) from None
        if values is None:
            return
        if values:
            yield Row(path, rows.line_num, values)


def read_table(path: Path, comment: str) -> Iterator[Row]:
    """Yield the rows of a file whose values are separated by blanks.

    Empty lines and lines that begin with ``comment`` are skipped.

    :raises InputError: if the file cannot be read.
    """
    for number, line in read_lines(path):
        values = line.split()
        if values and not values[0].startswith(comment):
            yield Row(path, number, values)
