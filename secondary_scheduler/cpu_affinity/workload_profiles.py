# SPDX-License-Identifier: Apache-2.0

"""Profiles of workload classes: use alone, and slow-down beside others.

A slow-down is performance alone by performance beside a neighbour (Kaffes
2015, section 5.2): 1.5 means that 60 minutes become 90.  Matrices have the
victim first.  The printed tables of the thesis have the neighbour first
(reference/errata, Kaffes, orientation of the slow-down tables).
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import functools
import math
import typing

from secondary_scheduler.cpu_affinity.measurements import (
    Measurement,
    format_measurement,
    parse_measurement,
)
from secondary_scheduler.reading.values import InputError, shown

#: Slow-downs and uses above this are errors of a measurement.
MOST = 1e6


class ResourceUse(typing.NamedTuple):
    """Use of resources by a guest alone on a host; None is unknown.

    ``cpu`` is in percent of one CPU, the others in percent of what the host
    has (reference/errata, Kaffes, CPU use).
    """

    cpu: float | None
    memory_bandwidth: float | None = None
    network: float | None = None
    disk: float | None = None


@dataclasses.dataclass(frozen=True)
class SlowdownMatrix:
    """Slow-downs by victim and neighbour, each at least 1.

    :param rows: a row for each victim in order of ``classes``, with an entry
        for each neighbour in the same order; None is unknown
    :param trusted: classes that may stand in for unknown ones; None allows
        all
    :raises InputError: with the place of the first invalid entry
    """

    name: str
    classes: tuple[str, ...]
    rows: tuple[tuple[float | None, ...], ...]
    trusted: frozenset[str] | None = None

    def __post_init__(self) -> None:
        size = len(self.classes)
        if not size or len(set(self.classes)) != size:
            raise InputError(f'{self.name}: expected classes with different '
                             f'names, not {shown(list(self.classes))}')
        if len(self.rows) != size:
            raise InputError(f'{self.name}: expected {size} rows, one for '
                             f'each class, not {len(self.rows)}')
        for victim, row in zip(self.classes, self.rows, strict=True):
            if len(row) != size:
                raise InputError(f'{self.name}[{victim}]: expected {size} '
                                 'entries, one for each class, not '
                                 f'{len(row)}')
            for neighbour, value in zip(self.classes, row, strict=True):
                if value is not None and not _is_number(value, 1.0):
                    raise InputError(
                        f'{self.name}[{victim}][{neighbour}]: expected a '
                        f'number from 1 to {MOST:.0f}, not {shown(value)}')
        if all(value is None for row in self.rows for value in row):
            raise InputError(f'{self.name}: all entries are unknown')

    @functools.cached_property
    def _completed(self) -> Mapping[tuple[str | None, str | None], float]:
        """Entries for all pairs; the class None is any unknown one."""
        known = {(victim, neighbour): value for victim, row in zip(
            self.classes, self.rows, strict=True) for neighbour, value in zip(
            self.classes, row, strict=True) if value is not None}
        worst = max(known.values())
        measured = {pair: value for pair, value in known.items()
                    if self.trusted is None or self.trusted >= set(pair)
                    } or known
        by_victim = _means(measured, 0)
        by_neighbour = _means(measured, 1)
        sensitive = max(by_victim, key=lambda one: by_victim[one])
        noisy = max(by_neighbour, key=lambda one: by_neighbour[one])
        found: dict[tuple[str | None, str | None], float] = {}
        for pair, value in known.items():
            found[pair] = value
        for victim in self.classes:
            for neighbour in self.classes:
                if (victim, neighbour) not in known:
                    found[victim, neighbour] = max((known[pair] for pair in (
                        (sensitive, neighbour), (victim, noisy))
                        if pair in known), default=worst)
        for one in self.classes:
            found[None, one] = (found[sensitive, one] if one in by_neighbour
                                else worst)
            found[one, None] = (found[one, noisy] if one in by_victim
                                else worst)
        found[None, None] = worst
        return found

    def slowdown(self, victim: str | None, neighbour: str | None) -> float:
        """Return the slow-down of a victim beside a neighbour, at least 1.

        For an unknown class the worst known row (as a victim) and column (as a
        neighbour) stand in: those of the class with the highest mean.  So an
        unknown class is never predicted to do better than known ones do on
        average.
        """
        return self._completed[
            victim if victim in self._known else None,
            neighbour if neighbour in self._known else None]

    def with_unknown(self, classes: Sequence[str]) -> 'SlowdownMatrix':
        """Return the matrix with more classes, of which nothing is known."""
        unknown = (None,) * len(classes)
        every = (*self.classes, *classes)
        return SlowdownMatrix(
            self.name, every, (*(row + unknown for row in self.rows),
                               *((None,) * len(every) for _ in classes)),
            self.trusted or frozenset(self.classes))

    def restrict(self, classes: Sequence[str]) -> 'SlowdownMatrix':
        """Return the matrix of some of the classes.

        :raises InputError: if nothing is known of them
        """
        return SlowdownMatrix(self.name, tuple(classes), tuple(
            tuple(self.entry(victim, neighbour) for neighbour in classes)
            for victim in classes))

    def entry(self, victim: str, neighbour: str) -> float | None:
        """Return a measured slow-down of known classes, None if unknown."""
        return self.rows[self.classes.index(victim)][
            self.classes.index(neighbour)]

    @functools.cached_property
    def _known(self) -> frozenset[str | None]:
        return frozenset(self.classes)


def _means(known: Mapping[tuple[str, str], float], place: int
           ) -> dict[str, float]:
    """Return the mean of the known entries of each row or column."""
    sums: dict[str, list[float]] = {}
    for pair, value in known.items():
        sums.setdefault(pair[place], []).append(value)
    return {one: math.fsum(values) / len(values)
            for one, values in sums.items()}


def _is_number(value: object, least: float) -> bool:
    return (isinstance(value, int | float) and not isinstance(value, bool)
            and least <= value <= MOST)


@dataclasses.dataclass(frozen=True)
class WorkloadProfiles:
    """Profiles of workload classes.

    :param uses: use of resources alone, by class
    :param time_sharing: slow-downs of two guests on one CPU
    :param space_sharing: slow-downs of two guests on different CPUs of a
        cache; None if they were not measured
    :param measurement: their origin; None if it is not known
    :raises InputError: if the classes differ, or with the place of an invalid
        use
    """

    uses: Mapping[str, ResourceUse]
    time_sharing: SlowdownMatrix
    space_sharing: SlowdownMatrix | None = None
    measurement: Measurement | None = None

    def __post_init__(self) -> None:
        for matrix in (self.time_sharing, self.space_sharing):
            if matrix is not None and set(matrix.classes) != set(self.uses):
                different = sorted(set(matrix.classes) ^ set(self.uses))
                raise InputError(f'{matrix.name} and uses have different '
                                 f'classes: {", ".join(different)}')
        for name, use in self.uses.items():
            for metric, value in use._asdict().items():
                if value is not None and not _is_number(value, 0.0):
                    raise InputError(
                        f'uses[{name}][{metric}]: expected a number from 0 to '
                        f'{MOST:.0f}, not {shown(value)}')

    def use(self, workload_class: str | None) -> ResourceUse:
        """Return the use of a class, for an unknown one the highest of each.
        """
        if workload_class in self.uses:
            return self.uses[typing.cast('str', workload_class)]
        return self._highest

    @functools.cached_property
    def _highest(self) -> ResourceUse:
        return ResourceUse(*(
            max((value for value in column if value is not None),
                default=None)
            for column in zip(*self.uses.values(), strict=True)))

    def with_unknown(self, classes: Iterable[str]) -> 'WorkloadProfiles':
        """Return the profiles with more classes, of which nothing is known.

        Such a class is predicted like an unknown one, but can be learned.
        """
        new = [one for one in dict.fromkeys(classes) if one not in self.uses]
        return WorkloadProfiles(
            {**self.uses, **dict.fromkeys(new, self._highest)},
            self.time_sharing.with_unknown(new), self.space_sharing
            and self.space_sharing.with_unknown(new), self.measurement)

    def unknown_classes(self, classes: Iterable[str | None]
                        ) -> tuple[str | None, ...]:
        """Return the classes without a profile, each once, in order."""
        return tuple(dict.fromkeys(
            one for one in classes if one not in self.uses))


#: Profiles of a host on which nothing was measured: all guests are busy, and
#: share the time of a CPU evenly.
UNPROFILED = WorkloadProfiles(
    {'any': ResourceUse(100.0)},
    SlowdownMatrix('time_sharing', ('any',), ((2.0,),)))


def parse_profiles(document: object) -> WorkloadProfiles:
    """Return the profiles of a document of JSON.

    ::

       {"classes": ["web", "batch"],
        "uses": {"web": {"cpu": 59, "network": 5.5}, "batch": {"cpu": 100}},
        "time_sharing": [[1.25, 1.2], [1.84, 2.0]],
        "space_sharing": null}

    The rows of matrices are victims.  ``null``, and a resource that is left
    out, are unknown.  ``measurement`` is optional.

    :raises InputError: with the place of the first fault
    """
    if not isinstance(document, Mapping):
        raise InputError('expected profiles with classes, uses and '
                         f'time_sharing, not {shown(document)}')
    classes = document.get('classes')
    if not (_is_list(classes) and all(isinstance(one, str) and one
                                      for one in classes)):
        raise InputError('classes: expected a list of names, not '
                         f'{shown(classes)}')
    unknown = sorted(map(str, document.keys() - {
        'classes', 'uses', 'time_sharing', 'space_sharing', 'measurement'}))
    if unknown:
        raise InputError(f'unknown: {", ".join(unknown)}')
    space = document.get('space_sharing')
    measured = document.get('measurement')
    return WorkloadProfiles(
        _parse_uses(document.get('uses')),
        _parse_matrix('time_sharing', classes, document.get('time_sharing')),
        None if space is None
        else _parse_matrix('space_sharing', classes, space),
        None if measured is None else parse_measurement(measured))


def _is_list(value: object) -> typing.TypeGuard[Sequence[typing.Any]]:
    return isinstance(value, list | tuple)


def _parse_uses(document: object) -> dict[str, ResourceUse]:
    if not isinstance(document, Mapping):
        raise InputError('uses: expected the use of each class, not '
                         f'{shown(document)}')
    found = {}
    for name, row in document.items():
        if not isinstance(row, Mapping) or 'cpu' not in row or (
                row.keys() - set(ResourceUse._fields)):
            raise InputError(f'uses[{name}]: expected cpu and any of '
                             f'{", ".join(ResourceUse._fields[1:])}, not '
                             f'{shown(row)}')
        found[str(name)] = ResourceUse(**row)
    return found


def _parse_matrix(name: str, classes: Sequence[str], rows: object
                  ) -> SlowdownMatrix:
    if not _is_list(rows) or not all(_is_list(row) for row in rows):
        raise InputError(f'{name}: expected a list of rows, not '
                         f'{shown(rows)}')
    return SlowdownMatrix(name, tuple(classes),
                          tuple(tuple(row) for row in rows))


def format_profiles(profiles: WorkloadProfiles) -> dict[str, typing.Any]:
    """Return profiles as a document that ``parse_profiles`` reads."""
    space = profiles.space_sharing
    classes = profiles.time_sharing.classes
    found: dict[str, typing.Any] = {
        'classes': list(classes),
        'uses': {name: {metric: value for metric, value in
                        profiles.uses[name]._asdict().items()
                        if value is not None or metric == 'cpu'}
                 for name in classes},
        'time_sharing': [list(row) for row in profiles.time_sharing.rows],
        'space_sharing': space and [
            [space.entry(victim, neighbour) for neighbour in classes]
            for victim in classes]}
    if profiles.measurement is not None:
        found['measurement'] = format_measurement(profiles.measurement)
    return found
