# SPDX-License-Identifier: Apache-2.0

"""What the logs of services have of a test: our tracebacks, last records."""

from collections.abc import Iterable, Iterator, Mapping
import pathlib
import re

import layout

#: A line of a traceback that lies in our code.
_FRAME = re.compile(r'File ".*/secondary_scheduler/')
#: The head of each line of a record of oslo.log.  Only the first line of a
#: record goes on with its context, in brackets.
_RECORD = re.compile(r'\S+ \S+ \d+ [A-Z]+ \S+ ?')
#: A record that tells of a problem.
_PROBLEM = re.compile(r'\S+ \S+ \d+ (WARNING|ERROR|CRITICAL) ')
#: How much of the end of a log is read, in bytes, and of a line, in letters.
_END, _WIDTH = 100_000, 240
#: The last line of a traceback of a failed action, which reports to Watcher by
#: raising, or of a failure made by a test.
_TOLD = re.compile(r'(\w+\.)+(ActionExecutionFailure|CloudError): '
                   r'(?!an answer cannot be read)'
                   r'|RuntimeError: made to raise by a test$')


def sizes() -> Mapping[pathlib.Path, int]:
    """Return the size of each log in bytes."""
    return {path: path.stat().st_size for path in layout.LOG.glob('*.log')}


def _head(line: str) -> str:
    head = _RECORD.match(line)
    return head[0] if head else ''


def _records(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the lines of each record without their head.

    Records of the same millisecond may have the same head.
    """
    known, bodies = '', []
    for line in lines:
        head = _head(line)
        body = line.removeprefix(head).rstrip()
        if bodies and (head != known or body.startswith('[')):
            yield bodies
            bodies = []
        known = head
        if body:
            bodies.append(body)
    if bodies:
        yield bodies


def frames_since(before: Mapping[pathlib.Path, int]) -> list[str]:
    """Return the lines of tracebacks in our code that logs have got since."""
    found = []
    for path, size in sizes().items():
        with path.open(errors='replace') as log:
            log.seek(min(size, before.get(path, 0)))
            for bodies in _records(log):
                frames = [line for line in bodies if _FRAME.search(line)]
                if frames and not _TOLD.match(bodies[-1]):
                    found += [f'{path.name}: {line}' for line in frames]
    return found


def last_records() -> list[str]:
    """Return the last problem of each log, and the last record of computes.

    For the report of a test that has failed: the machine of a gate is gone
    when its output is read.
    """
    found = []
    for path, size in sorted(sizes().items()):
        with path.open(errors='replace') as log:
            log.seek(max(0, size - _END))
            records = [line.rstrip() for line in log if _RECORD.match(line)]
        wanted = [line for line in records if _PROBLEM.match(line)][-1:]
        if path.name.startswith('nova-compute'):
            wanted += records[-1:]
        found += [f'{path.name}: {line[:_WIDTH]}' for line in wanted]
    return found
