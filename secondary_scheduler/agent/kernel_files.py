"""Bounded, typed reading of files of /proc, /sys and the control groups.

A file that is not there, or that the kernel refuses to read, raises OSError.
One that says something else than its format allows raises ``Damaged`` with
its path and what is expected.  Callers take both for *unknown*: no wrong value
becomes a 0, and none is cut off.

Names in these files are bytes.  They are decoded as the file system's are, so
that any path can be opened again.
"""

from collections.abc import Iterable
import os
import re

#: Bytes of the longest file that is read: /proc/PID/cmdline and mountinfo.
MOST_BYTES = 1 << 20
#: Counters and limits of the kernel have 64 bits.
LARGEST = 1 << 64
#: CPUs that Linux can be built for.
MOST_CPUS = 1 << 16

_COUNT = re.compile(r'[0-9]{1,20}')
#: Characters of a wrong value that a message quotes.
_QUOTED = 40


class Damaged(ValueError):
    """A file that does not say what the kernel writes there."""

    def __init__(self, path: str, text: str, expected: str) -> None:
        super().__init__(f'{path} says {text[:_QUOTED]!r}, where {expected} '
                         'is expected')


def explain(problem: Exception) -> str:
    """Return an error's text, the path of its file as it is.

    (Python would quote it, and a group of systemd's has backslashes.)
    """
    if isinstance(problem, OSError) and isinstance(problem.filename, str):
        return f'{problem.filename}: {problem.strerror}'
    return str(problem) or type(problem).__name__


def read(path: str, most: int = MOST_BYTES) -> str:
    """Return a file's text.

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
    """Return a file's first line, or as much as ``most`` bytes of it.

    :raises OSError: if it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.fsdecode(os.read(fd, most)).partition('\n')[0]
    finally:
        os.close(fd)


def parse_count(text: str, path: str) -> int:
    """Return a number that counts.

    :raises Damaged: if it is none, or has more than 64 bits.
    """
    word = text.strip()
    if not _COUNT.fullmatch(word) or int(word) >= LARGEST:
        raise Damaged(path, word, 'a number')
    return int(word)


def parse_counts(words: Iterable[str], least: int, path: str) -> list[int]:
    """Return numbers that count.

    :raises Damaged: if one is none, or if they are less than ``least``.
    """
    counts = [parse_count(word, path) for word in words]
    if len(counts) < least:
        raise Damaged(path, ' '.join(map(str, counts)),
                      f'a line of at least {least} numbers')
    return counts


def parse_table(text: str, names: Iterable[str], path: str) -> list[int]:
    """Return what lines ``NAME VALUE`` or ``NAME: VALUE`` say of some names.

    :raises Damaged: if a name is missing, or its value is no number.
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
    """Return the CPUs of a list like ``0-3,8``.

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
    """Return the number that a file holds; see ``parse_count``."""
    return parse_count(read(path), path)


def read_counts(path: str, least: int) -> list[int]:
    """Return the numbers that a file holds; see ``parse_counts``."""
    return parse_counts(read(path).split(), least, path)


def read_table(path: str, *names: str) -> list[int]:
    """Return what a file says of some names; see ``parse_table``."""
    return parse_table(read(path), names, path)
