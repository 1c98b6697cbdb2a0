# SPDX-License-Identifier: Apache-2.0

"""Merging of profiles that were measured in several runs.

Where files contradict each other, the larger value counts: a class is never
predicted to do better than in the worst of its measurements.
"""

from collections.abc import Iterable, Mapping
import typing

from secondary_scheduler.cpu_affinity.measurements import (
    MeasuredSlowdown,
    Measurement,
    Place,
)
from secondary_scheduler.cpu_affinity.workload_profiles import (
    ResourceUse,
    SlowdownMatrix,
    WorkloadProfiles,
)
from secondary_scheduler.reading.values import InputError

#: Two values conflict if the larger one exceeds the smaller by this part.
TOLERANCE = 0.1

#: Profiles by the name of their file.
Files = Mapping[str, WorkloadProfiles]


class MergedProfiles(typing.NamedTuple):
    """Profiles of several files, and descriptions of their conflicts."""

    profiles: WorkloadProfiles
    conflicts: tuple[str, ...]


def cpu_model_of(profiles: WorkloadProfiles) -> str | None:
    """Return the CPU model of profiles, None if it is not known."""
    measured = profiles.measurement
    return None if measured is None else measured.cpu_model


def merge_profiles(files: Files) -> MergedProfiles:
    """Merge the profiles of files of one CPU model.

    :param files: at least one
    :raises InputError: if the CPU models differ
    """
    models = {name: cpu_model_of(one) or 'unknown'
              for name, one in files.items()}
    if len(set(models.values())) > 1:
        raise InputError('expected profiles of one CPU model, not '
                         + '; '.join(': '.join(one)
                                     for one in models.items()))
    merger = _Merger(files)
    space = {name: one.space_sharing for name, one in files.items()}
    merged = WorkloadProfiles(
        merger.uses(),
        merger.matrix('time_sharing', {name: one.time_sharing
                                       for name, one in files.items()}),
        merger.matrix('space_sharing', space) if any(space.values()) else None,
        _merge_measurements(
            one.measurement for one in files.values() if one.measurement))
    return MergedProfiles(merged, tuple(merger.conflicts))


class _Merger:
    """Takes the largest value of all files, and notes conflicts."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._classes = tuple(dict.fromkeys(
            one for profiles in files.values() for one in profiles.uses))
        self.conflicts: list[str] = []

    def _largest(self, label: str, values: Mapping[str, float | None]
                 ) -> float | None:
        """Return the largest known value.

        :param values: by the name of the file
        """
        known = {name: value for name, value in values.items()
                 if value is not None}
        if known and max(known.values()) > (1 + TOLERANCE) * min(
                known.values()):
            self.conflicts.append(f'{label}: ' + ', '.join(
                f'{value:.4g} in {name}' for name, value in known.items()))
        return max(known.values(), default=None)

    def uses(self) -> dict[str, ResourceUse]:
        """Return the highest use of each class."""
        return {one: ResourceUse(*(
            self._largest(f'uses[{one}][{metric}]', {
                name: getattr(profiles.uses.get(one), metric, None)
                for name, profiles in self._files.items()})
            for metric in ResourceUse._fields)) for one in self._classes}

    def matrix(self, label: str,
               matrices: Mapping[str, SlowdownMatrix | None]
               ) -> SlowdownMatrix:
        """Return the largest slow-downs of each pair."""
        return SlowdownMatrix(label, self._classes, tuple(
            tuple(self._largest(f'{label}[{victim}][{neighbour}]', {
                name: _entry(one, victim, neighbour)
                for name, one in matrices.items()})
                for neighbour in self._classes) for victim in self._classes))


def _entry(matrix: SlowdownMatrix | None, victim: str, neighbour: str
           ) -> float | None:
    if matrix is None or not {victim, neighbour} <= set(matrix.classes):
        return None
    return matrix.entry(victim, neighbour)


def _merge_measurements(measured: Iterable[Measurement]
                        ) -> Measurement | None:
    """Return measurements as one, with the repeats of all."""
    some = tuple(measured)
    if not some:
        return None
    rows: dict[tuple[str, str, Place], MeasuredSlowdown] = {}
    for one in some:
        for row in one.slowdowns:
            known = rows.get(row.key)
            rows[row.key] = row if known is None else MeasuredSlowdown(
                *row.key, known.values + row.values,
                known.cpu_values + row.cpu_values)
    return Measurement(
        some[0].cpu_model, _joined(one.kernel for one in some),
        _joined(one.metric for one in some), min(one.seconds for one in some),
        tuple(rows.values()),
        tuple(dict.fromkeys(fact for one in some for fact in one.unknown)))


def _joined(texts: Iterable[str]) -> str:
    return ', '.join(dict.fromkeys(texts))
