# SPDX-License-Identifier: Apache-2.0

"""Standard Workload Format of the Parallel Workloads Archive.

See https://www.cs.huji.ac.il/labs/parallel/workload/swf.html, version 2.2.
"""

from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import pathlib
import re
import typing

from secondary_scheduler.leases.scheduling.lease import NodeSet, Terms
from secondary_scheduler.reading import files
from secondary_scheduler.reading.values import MOST, InputError, parse_whole
from secondary_scheduler.simulation.workloads.requests import (
    MOST_NODES,
    TraceRequest,
)

#: Fields of a line; the user and all after it may be missing.
FIELDS = (
    'job number', 'submit time', 'wait time', 'run time',
    'allocated processors', 'average CPU time', 'used memory',
    'requested processors', 'requested time', 'requested memory', 'status',
    'user', 'group', 'executable', 'queue', 'partition', 'preceding job',
    'think time')
_FEWEST = 12
_CANCELLED = 5
#: Status of a part of a job: continued later, completed, or failed.
_PARTS = (2, 3, 4)
#: Size of the site in a comment; processors are nodes here.
_SITE = re.compile(r';\s*(MaxProcs|MaxNodes)\s*:\s*(\d[\d,]*)(?!\S)',
                   re.ASCII | re.IGNORECASE)
#: Largest number of omitted jobs to name.
_NAMED = 10


class SwfJob(typing.NamedTuple):
    """Values of a line; times in seconds, negative if unknown."""

    number: int
    submitted: int
    ran: int
    used: int
    asked: int
    requested: int
    status: int
    user: int

    @property
    def nodes(self) -> int:
        """Number of requested processors, or else of used ones."""
        return self.asked if self.asked > 0 else self.used


@dataclasses.dataclass(frozen=True)
class Trace:
    """Jobs of a trace as requests, and notes for the user.

    ``nodes`` is the size of the site in the header, None without one.
    """

    requests: list[TraceRequest]
    nodes: int | None
    notes: tuple[str, ...] = ()


def read_trace(path: pathlib.Path, need: tuple[int, ...]) -> Trace:
    """Read a trace; each processor is a node with a need.

    Times are relative to the start of the trace.

    * Jobs that were cancelled before they ran are left out.  So are jobs with
      an unknown submit time, unknown processors, or neither run time nor
      requested time.
    * A run time of 0 is a second.
    * A job without a requested time requests its run time.
    * The parts of a job count once, as the job.

    :raises InputError: naming the invalid line.
    """
    reader = _LineReader(path)
    jobs, notes = _whole(list(reader.jobs()))
    out: dict[str, list[int]] = {}
    requests, guessed = [], 0
    for job in jobs:
        why = _unknown(job)
        if why:
            out.setdefault(why, []).append(job.number)
            continue
        requested = job.requested if job.requested > 0 else max(job.ran, 1)
        guessed += job.requested <= 0
        requests.append(TraceRequest(
            str(job.number), job.submitted,
            Terms((NodeSet(job.nodes, need),), requested,
                  user=str(job.user) if job.user >= 0 else ''),
            min(max(job.ran, 1), requested)))
    if guessed:
        notes.append(f'{guessed} of {len(jobs)} jobs have no requested time: '
                     'they ask for as long as they ran')
    notes += [f'left out, since {why}: {_named("job", numbers)}'
              for why, numbers in out.items()]
    if reader.wider:
        notes.append('columns after the 18th are ignored')
    if not requests:
        raise InputError(f'{path}: no jobs' + ''.join(
            f'; {note}' for note in notes))
    return Trace(requests, reader.nodes, tuple(notes))


def _unknown(job: SwfJob) -> str:
    """Return the reason to leave a job out; empty if there is none."""
    if job.ran < 0 and job.status == _CANCELLED:
        return 'it was cancelled before it ran'
    if job.submitted < 0:
        return 'its submit time is unknown'
    if job.nodes <= 0:
        return 'its processors are unknown'
    if job.ran < 0 and job.requested <= 0:
        return 'its run time and its requested time are unknown'
    return ''


def _named(what: str, numbers: Sequence[int]) -> str:
    more = len(numbers) - _NAMED
    return (f'{what}{"s" * (len(numbers) > 1)} '
            + ', '.join(map(str, numbers[:_NAMED]))
            + (f' and {more} more' if more > 0 else ''))


class _LineReader:
    """Reader of lines, of the size of the site, and of extra columns."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._site: dict[str, int] = {}
        self.wider = False

    @property
    def nodes(self) -> int | None:
        """Number of nodes of the site in the header."""
        return (self._site.get('maxprocs') or self._site.get('maxnodes')
                or None)

    def jobs(self) -> Iterator[SwfJob]:
        """Yield the jobs of the lines."""
        for number, line in files.read_lines(self._path):
            if line.lstrip().startswith(';'):
                self._note(files.Row(self._path, number, [line]))
            elif values := line.split():
                yield self._job(files.Row(self._path, number, values))

    def _note(self, row: files.Row) -> None:
        found = _SITE.match(row.values[0].lstrip())
        if found:
            name, amount = found.groups()
            try:
                self._site[name.lower()] = parse_whole(
                    amount.replace(',', ''), 0, MOST_NODES)
            except InputError as exc:
                raise row.wrong(f'{name}: {exc}') from None

    def _job(self, row: files.Row) -> SwfJob:
        if len(row.values) < _FEWEST:
            raise row.wrong(f'no job: expected at least {_FEWEST} fields, '
                            f'not {len(row.values)}')
        self.wider |= len(row.values) > len(FIELDS)
        values = list(map(int, row.numbers(0, FIELDS, -MOST)))
        return SwfJob(values[0], values[1], *values[3:5], *values[7:9],
                      *values[10:12])


def _whole(lines: Iterable[SwfJob]) -> tuple[list[SwfJob], list[str]]:
    """Return each job once, and notes on parts of jobs.

    A log of checkpoints has a line for a whole job, and one for each part.
    Without a line for the whole, the parts are put together.
    """
    lines = list(lines)
    whole = {one.number for one in lines if one.status not in _PARTS}
    jobs: dict[int, SwfJob] = {}
    found: list[SwfJob | int] = []
    parts = 0
    for one in lines:
        if one.status not in _PARTS:
            found.append(one)
            continue
        parts += 1
        if one.number in whole:
            continue
        if one.number not in jobs:
            found.append(one.number)
            jobs[one.number] = one
        else:
            before = jobs[one.number]
            jobs[one.number] = before._replace(
                submitted=before.submitted if before.submitted >= 0
                else one.submitted,
                ran=max(before.ran, 0) + max(one.ran, 0),
                requested=max(before.requested, one.requested),
                status=one.status)
    notes = [f'{parts} lines are parts of jobs: each job counts once'
             ] * bool(parts)
    return [jobs[one] if isinstance(one, int) else one
            for one in found], notes
