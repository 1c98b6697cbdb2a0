# SPDX-License-Identifier: Apache-2.0

"""Public traces of real clusters.

Files may be compressed.  An error in one is an ``InputError`` that names the
file, the line and the expected content.
"""

from collections.abc import Sequence
import typing

import numpy as np
import numpy.typing as npt

from secondary_scheduler.reading import files
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.world import Floats

#: Five-minute samples in a row of PlanetLab's trace: a day.
SAMPLES = 288

_USES = ('a use in percent',) * SAMPLES

#: Columns of a pod: CPU in thousandths of a core, memory in MiB, times in
#: seconds.
POD = np.dtype([('cpu_milli', float), ('memory_mib', float), ('qos', 'U16'),
                ('creation_time', float), ('deletion_time', float)])


def read_planetlab(path: files.Path) -> Floats:
    """Return a day of CPU use, (machines, 288), in percent.

    A line is the name of a machine and its use in each five minutes, as in
    CloudSim's copy of the CoMon data.

    :raises InputError: if the file cannot be read or has another format.
    """
    found = []
    for row in files.read_csv(path):
        _require_columns(row, SAMPLES + 1)
        found.append(row.numbers(1, _USES, 0, 100))
    return np.array(_some(path, found))


def read_openb(path: files.Path) -> npt.NDArray[typing.Any]:
    """Return the pods of Alibaba's openb trace, (pods,) of ``POD``.

    The first line names the columns; columns not in ``POD`` are left out.

    :raises InputError: if the file cannot be read or has another format.
    """
    names = POD.names or ()
    rows = files.read_csv(path)
    header = next(rows, files.Row(path, 1, []))
    missing = [name for name in names if name not in header.values]
    if missing:
        raise header.wrong(f'expected the name of the column {missing[0]}')
    columns = {name: list(header.values).index(name) for name in names}
    found = []
    for row in rows:
        _require_columns(row, len(header.values))
        values = {name: row.values[column] if name == 'qos'
                  else row.number(column, name)
                  for name, column in columns.items()}
        if values['deletion_time'] < values['creation_time']:
            raise row.wrong('expected a deletion_time that is no earlier '
                            'than the creation_time')
        found.append(tuple(values.values()))
    return np.array(_some(path, found), POD)


def _require_columns(row: files.Row, number: int) -> None:
    if len(row.values) != number:
        raise row.wrong(f'expected {number} columns, not {len(row.values)}')


def _some(path: files.Path, rows: Sequence[typing.Any]
          ) -> Sequence[typing.Any]:
    if not rows:
        raise InputError(f'{path}: there are no rows')
    return rows
