"""Public traces of real clusters: what machines and batch systems have seen.

Files may be compressed (``.gz``, ``.bz2``, ``.xz``). All that is wrong with
one is a ``TraceError`` that names the file.
"""

from collections.abc import Iterator, Sequence
import contextlib
import csv
import os
import typing
import warnings

import numpy as np
import numpy.typing as npt

from secondary_scheduler.simulation.world import Floats

#: Five-minute samples of a row of PlanetLab's: a day.
SAMPLES = 288

#: What is read of a pod: CPU in thousandths of a core, memory in MiB, times
#: in seconds.
POD = np.dtype([('cpu_milli', float), ('memory_mib', float), ('qos', 'U16'),
                ('creation_time', float), ('deletion_time', float)])

#: The fields of a job in the order of the Standard Workload Format 2.2; times
#: in seconds, memory in KiB, -1 for what is not known.
JOB = np.dtype([
    ('job', np.int64), ('submitted', float), ('waited', float),
    ('ran', float), ('processors', np.int64), ('cpu', float),
    ('memory', float), ('requested_processors', np.int64),
    ('requested', float), ('requested_memory', float), ('status', np.int64),
    ('user', np.int64), ('group', np.int64), ('executable', np.int64),
    ('queue', np.int64), ('partition', np.int64), ('preceding', np.int64),
    ('think', float)])

Path = str | os.PathLike[str]


class TraceError(ValueError):
    """What is wrong with a trace: the file, and what was expected."""


def planetlab(path: Path) -> Floats:
    """Return a day of CPU use, (machines, 288), in percent.

    A line is the name of a machine and its use in each five minutes, as in
    CloudSim's copy of the CoMon data.

    :raises TraceError: if the file cannot be read or is something else.
    """
    row = np.dtype([('name', 'U256'), ('use', float, SAMPLES)])
    use = _table(path, row, delimiter=',')['use']
    _require(path, use, 0.0, 100.0, 'a use in percent')
    return np.asarray(use)


def openb(path: Path) -> npt.NDArray[typing.Any]:
    """Return the pods of Alibaba's openb trace, (pods,) of ``POD``.

    The first line names the columns; those not in ``POD`` are left out.

    :raises TraceError: if the file cannot be read or is something else.
    """
    with _trouble(path), np.lib.npyio.DataSource(None).open(
            os.fspath(path), 'rt') as lines:
        header = next(csv.reader(lines), [])
    missing = [name for name in POD.names or () if name not in header]
    if missing:
        raise TraceError(f'{path}: the first line does not name the column '
                         + missing[0])
    pods = _table(path, POD, delimiter=',', skiprows=1,
                  usecols=[header.index(name) for name in POD.names or ()])
    for name in ('cpu_milli', 'memory_mib', 'creation_time'):
        _require(path, pods[name], 0.0, np.inf, name)
    _require(path, pods['deletion_time'] - pods['creation_time'], 0.0,
             np.inf, 'a time between creation and deletion')
    return pods


def swf(path: Path) -> npt.NDArray[typing.Any]:
    """Return the jobs of a log in the Standard Workload Format, (jobs,).

    They are of ``JOB``, in the order of the file. Lines that begin with a
    semicolon are comments
    (https://www.cs.huji.ac.il/labs/parallel/workload/swf.html).

    :raises TraceError: if the file cannot be read or is something else.
    """
    jobs = _table(path, JOB, comments=';')
    for name in JOB.names or ():
        _require(path, jobs[name], -1, np.inf, name)
    return jobs


def _table(path: Path, row: np.dtype[typing.Any], comments: str | None = None,
           delimiter: str | None = None, skiprows: int = 0,
           usecols: Sequence[int] | None = None) -> npt.NDArray[typing.Any]:
    with _trouble(path), warnings.catch_warnings(action='ignore'):
        table = np.loadtxt(path, row, comments, delimiter, None, skiprows,
                           usecols, ndmin=1, encoding='utf-8')
    if not len(table):
        raise TraceError(f'{path}: there are no rows')
    return table


@contextlib.contextmanager
def _trouble(path: Path) -> Iterator[None]:
    """Say which file it is that cannot be read."""
    try:
        yield
    except OSError as exc:
        raise TraceError(f'{path}: {exc.strerror or exc}') from exc
    except (ValueError, EOFError) as exc:
        raise TraceError(f'{path}: {exc}') from exc


def _require(path: Path, values: npt.NDArray[typing.Any], least: float,
             most: float, what: str) -> None:
    """Let no value be out of bounds, or no number."""
    bad = np.argwhere(~((values >= least) & (values <= most)))
    if len(bad):
        value = values[tuple(bad[0])]
        raise TraceError(f'{path}: row {bad[0][0] + 1} has {value:g}, which '
                         f'is not {what}')
