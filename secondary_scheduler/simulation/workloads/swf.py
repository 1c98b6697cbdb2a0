"""The Standard Workload Format of the Parallel Workloads Archive."""

from collections.abc import Iterator
import gzip
import pathlib
import typing

from secondary_scheduler.leases.lease import NodeSet, Terms
from secondary_scheduler.simulation.workloads.requests import (
    Request,
    WorkloadError,
)

#: Fields of a line, counted from 0.
_JOB, _SUBMIT, _RUN, _USED, _ASKED, _REQUESTED, _STATUS, _USER = (
    0, 1, 3, 4, 7, 8, 10, 11)
_CANCELLED = 5


def read(path: pathlib.Path, need: tuple[int, ...]) -> list[Request]:
    """Read a trace, each processor of which is a node that takes ``need``.

    Jobs that were cancelled before they ran are left out, as are those that
    ask for no time; one that ran for no second ran for one.  Times are
    relative to the start of the trace.
    """
    requests = []
    for number, fields in _lines(path):
        try:
            values = [int(float(field)) for field in fields]
            if len(values) <= _USER:
                raise ValueError(f'{len(values)} fields of at least 12')
        except ValueError as exc:
            raise WorkloadError(f'{path}, line {number}: no job: {exc}'
                                ) from exc
        nodes = values[_ASKED] if values[_ASKED] > 0 else values[_USED]
        requested, ran = values[_REQUESTED], values[_RUN]
        if requested <= 0 or nodes <= 0 or (
                ran < 0 and values[_STATUS] == _CANCELLED):
            continue
        requests.append(Request(
            fields[_JOB], values[_SUBMIT],
            Terms((NodeSet(nodes, need),), requested,
                  user=fields[_USER] if values[_USER] >= 0 else ''),
            min(max(ran, 1), requested)))
    if not requests:
        raise WorkloadError(f'{path}: no jobs')
    return requests


def _lines(path: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
    opened: typing.IO[str]
    try:
        with (gzip.open(path, 'rt') if path.suffix == '.gz'
              else path.open()) as opened:
            for number, line in enumerate(opened, 1):
                fields = line.split()
                if fields and not line.lstrip().startswith(';'):
                    yield number, fields
    except (OSError, UnicodeDecodeError) as exc:
        raise WorkloadError(f'{path}: {exc}') from exc
