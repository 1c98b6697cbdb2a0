# SPDX-License-Identifier: Apache-2.0

"""``secondary-agent profiles``: list, merge and check profiles of classes."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
import contextlib
import json
import math
import os
import sys
import typing

from secondary_scheduler.agent.profile_files import read_profiles
from secondary_scheduler.cmd.arguments import Groups
from secondary_scheduler.cmd.console import CommandError
from secondary_scheduler.cpu_affinity.measurements import GENERATOR_PREFIX
from secondary_scheduler.cpu_affinity.profile_merging import (
    cpu_model_of,
    merge_profiles,
)
from secondary_scheduler.cpu_affinity.workload_profiles import (
    SlowdownMatrix,
    WorkloadProfiles,
    format_profiles,
)
from secondary_scheduler.reading.values import InputError

LIST = """\
Show the workload classes of a file and their slow-downs: a row for each
victim, a column for each neighbour. "?" is unknown. The last columns are the
mean slow-down of a class, and the mean slow-down that it causes. A class is
sensitive, or noisy, where that is above the mean of all. These words are for
readers; decisions use the numbers.
"""

MERGE = """\
Merge files that were measured on hosts of one CPU model. Where two files
differ by more than 10 %, both values are named, and the larger one counts.
"""

CHECK = """\
Check files as an agent would read them. A fault is named with its place; the
exit code is 1 then.
"""


def add_parser(commands: Groups, summary: str) -> None:
    """Add the command ``profiles``."""
    groups = commands.add_parser('profiles', help=summary).add_subparsers(
        dest='action', required=True, metavar='list|merge|check')
    for name, text in (('list', LIST), ('merge', MERGE), ('check', CHECK)):
        parser = groups.add_parser(
            name, description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument('files', nargs='+', metavar='FILE',
                            help='profiles in JSON; - is standard input')
        if name == 'merge':
            parser.add_argument(
                '--output', metavar='FILE',
                help='file to write (default: standard output)')
            parser.add_argument(
                '--without-generators', action='store_true',
                help='leave out the classes of generators of load')


def profiles(action: str, files: Sequence[str], output: str | None = None,
             without_generators: bool = False) -> int:
    """Run a command on files; return its exit code.

    :raises CommandError: if a file is not valid, or cannot be written
    """
    if action == 'check':
        return _check(files)
    try:
        known = {path: read_profiles(path) for path in files}
        if action == 'list':
            for path, one in known.items():
                print('\n'.join(describe_profiles(path, one)))
            return 0
        merged = merge_profiles(known)
    except InputError as exc:
        raise CommandError(str(exc)) from None
    for conflict in merged.conflicts:
        print(f'conflict, the larger value counts: {conflict}',
              file=sys.stderr)
    found = (_without_generators(merged.profiles) if without_generators
             else merged.profiles)
    with contextlib.nullcontext(sys.stdout) if output is None else (
            replaced_file(output)) as file:
        write_profiles(found, file)
    return 0


def _check(files: Iterable[str]) -> int:
    faults = 0
    for path in files:
        try:
            print('; '.join((f'{path}: valid',
                             *_summary(read_profiles(path)))))
        except InputError as exc:
            print(exc, file=sys.stderr)
            faults += 1
    return 1 if faults else 0


def _summary(one: WorkloadProfiles) -> list[str]:
    """Return the number of classes and of known slow-downs, and the model."""
    matrices = [one.time_sharing]
    if one.space_sharing is not None:
        matrices.append(one.space_sharing)
    return [f'{len(one.uses)} classes', *(
        f'{matrix.name}: {len(_known(matrix.rows))} of '
        f'{len(matrix.classes) ** 2} slow-downs known'
        for matrix in matrices),
        f'CPU model: {cpu_model_of(one) or "unknown"}']


def describe_profiles(path: str, one: WorkloadProfiles) -> list[str]:
    """Return tables of the use and the slow-downs of classes."""
    lines = ['; '.join((path, *_summary(one)))]
    if one.measurement is not None:
        lines += [f'unknown: {fact}' for fact in one.measurement.unknown]
    for matrix in (one.time_sharing, one.space_sharing):
        if matrix is not None:
            lines += ['', f'{matrix.name}:', *_table(_rows(one, matrix))]
    return lines


def _rows(one: WorkloadProfiles, matrix: SlowdownMatrix) -> list[list[str]]:
    cells = [['', 'cpu %', *matrix.classes, 'suffers', 'causes', 'in words']]
    mean = _mean([value for row in matrix.rows for value in row])
    for place, victim in enumerate(matrix.classes):
        suffers = _mean(matrix.rows[place])
        causes = _mean([row[place] for row in matrix.rows])
        cells.append([
            victim, _cell(one.uses[victim].cpu),
            *map(_cell, matrix.rows[place]), _cell(suffers), _cell(causes),
            ', '.join((_word(suffers, mean, 'sensitive', 'insensitive'),
                       _word(causes, mean, 'noisy', 'quiet')))])
    return cells


def _word(value: float | None, mean: float | None, above: str, below: str
          ) -> str:
    if value is None or mean is None:
        return '?'
    return above if value > mean else below


def _known(rows: Iterable[Iterable[float | None]]) -> list[float]:
    return [value for row in rows for value in row if value is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    known = _known([values])
    return math.fsum(known) / len(known) if known else None


def _cell(value: float | None) -> str:
    return '?' if value is None else f'{value:.2f}'


def _table(cells: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with aligned columns, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ['  '.join((row[0].ljust(widths[0]), *(
        cell.rjust(width) for cell, width in zip(
            row[1:], widths[1:], strict=True)))) for row in cells]


def _without_generators(one: WorkloadProfiles) -> WorkloadProfiles:
    """Return profiles without the classes of generators.

    :raises CommandError: if nothing would be left
    """
    kept = [name for name in one.time_sharing.classes
            if not name.startswith(GENERATOR_PREFIX)]
    try:
        time_sharing = one.time_sharing.restrict(kept)
    except InputError as exc:
        raise CommandError('nothing is known without the generators: '
                           f'{exc}') from None
    space_sharing = None
    with contextlib.suppress(InputError):   # nothing of it is known
        space_sharing = (one.space_sharing
                         and one.space_sharing.restrict(kept))
    return WorkloadProfiles({name: one.uses[name] for name in kept},
                            time_sharing, space_sharing, one.measurement)


def write_profiles(one: WorkloadProfiles, file: typing.IO[str]) -> None:
    """Write profiles to an open file, in JSON."""
    file.write(json.dumps(format_profiles(one), indent=1) + '\n')


@contextlib.contextmanager
def replaced_file(path: str) -> Iterator[typing.IO[str]]:
    """Open a new file that replaces another one at the end.

    After an error the other one stays as it was.  What is no regular file, or
    a link to one as ``/dev/stdout``, is written itself.

    :raises CommandError: if the file cannot be written
    """
    scratch = (path if os.path.islink(path) or (
        os.path.exists(path) and not os.path.isfile(path)) else f'{path}.new')
    try:
        file = open(scratch, 'w')
    except OSError as exc:
        raise CommandError(f'{path}: {exc.strerror}') from None
    try:
        yield file
        try:
            file.close()
            if scratch != path:
                os.replace(scratch, path)
        except OSError as exc:
            raise CommandError(f'{path}: {exc.strerror}') from None
    finally:
        with contextlib.suppress(OSError):
            file.close()
        if scratch != path:
            with contextlib.suppress(OSError):
                os.unlink(scratch)
