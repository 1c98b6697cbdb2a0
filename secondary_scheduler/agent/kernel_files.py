# SPDX-License-Identifier: Apache-2.0

"""Bounded, typed reading of files of /proc, /sys and the control groups.

A file that is missing, or that the kernel refuses to read, raises OSError.
A file with unexpected content raises ``Damaged`` with its path and the
expected content.  Callers treat both as *unknown*: a wrong value neither
becomes 0 nor is cut off.

Names in these files are bytes.  They are decoded like names in the file
system, so that any path can be opened again.
"""

from collections.abc import Iterable
import os
import re

#: Bytes of the longest file that is read: /proc/PID/cmdline and mountinfo.
MOST_BYTES = 1 << 20
#: Counters and limits of the kernel have 64 bits.
LARGEST = 1 << 64
#: Largest number of CPUs for which Linux can be built.
MOST_CPUS = 1 << 16

_COUNT = re.compile(r'[0-9]{1,20}')
#: Characters of a wrong value that a message quotes.
_QUOTED = 40


class Damaged(ValueError):
    """A file with content that the kernel cannot have written."""

    def __init__(self, path: str, text: str, expected: str) -> None:
        super().__init__(f'{path} says {text[:_QUOTED]!r}, where {expected} '
                         'is expected')


def explain(problem: Exception) -> str:
    """Return the text of an error, with the path of its file unquoted.

    Python would escape the backslashes in names of systemd's groups.
    """
    if isinstance(problem, OSError) and isinstance(problem.filename, str):
        return f'{problem.filename}: {problem.strerror}'
    return str(problem) or type(problem).__name__


def read_text(path: str, most: int = MOST_BYTES) -> str:
    """Return the text of a file.

    :raises OSError: if it cannot be read.
    :raises Damaged: if it is longer than ``most`` bytes.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b''
        while len(data) <= most and (more := os.read(fd, most + 1
                                                     - len(data))):
            data += more
    finally:
        os.close(fd)
    if len(data) > most:
        raise Damaged(path, os.fsdecode(data[:_QUOTED]),
                      f'no more than {most} bytes')
    return os.fsdecode(data)


def read_line(path: str, most: int = 4096) -> str:
    """Return the first line of a file, at most ``most`` bytes of it.

    :raises OSError: if it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.fsdecode(os.read(fd, most)).partition('\n')[0]
    finally:
        os.close(fd)


def parse_count(text: str, path: str) -> int:
    """Parse a number that is not negative.

    :raises Damaged: if it is none, or has more than 64 bits.
    """
    word = text.strip()
    if not _COUNT.fullmatch(word) or int(word) >= LARGEST:
        raise Damaged(path, word, 'a number')
    return int(word)


def parse_counts(words: Iterable[str], least: int, path: str) -> list[int]:
    """Parse numbers that are not negative.

    :raises Damaged: if one is none, or if there are fewer than ``least``.
    """
    counts = [parse_count(word, path) for word in words]
    if len(counts) < least:
        raise Damaged(path, ' '.join(map(str, counts)),
                      f'a line of at least {least} numbers')
    return counts


def parse_table(text: str, names: Iterable[str], path: str) -> list[int]:
    """Parse the values of some names in lines ``NAME VALUE``.

    A colon after the name is allowed.

    :raises Damaged: if a name is missing, or if its value is no number.
    """
    rows = {words[0].removesuffix(':'): words[1:]
            for line in text.splitlines() if (words := line.split())}
    found = []
    for name in names:
        if not rows.get(name):
            raise Damaged(path, text, f'a line {name} with a number')
        found.append(parse_count(rows[name][0], path))
    return found


def parse_cpus(text: str, path: str) -> frozenset[int]:
    """Parse a list of CPUs like ``0-3,8``.

    :raises Damaged: if it is none.
    """
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(',')):
        first, dash, last = part.partition('-')
        low = parse_count(first, path)
        high = parse_count(last, path) if dash else low
        if not low <= high < MOST_CPUS:
            raise Damaged(path, part, 'a range of CPUs')
        cpus.update(range(low, high + 1))
    return frozenset(cpus)


def format_cpus(cpus: Iterable[int]) -> str:
    """Return a list of CPUs as the kernel writes it, such as ``0-3,8``."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ','.join(str(low) if low == high else f'{low}-{high}'
                    for low, high in ranges)


def read_count(path: str) -> int:
    """Return the number in a file; see ``parse_count``."""
    return parse_count(read_text(path), path)


def read_counts(path: str, least: int) -> list[int]:
    """Return the numbers in a file; see ``parse_counts``."""
    return parse_counts(read_text(path).split(), least, path)


def read_table(path: str, *names: str) -> list[int]:
    """Return the values of some names in a file; see ``parse_table``."""
    return parse_table(read_text(path), names, path)
