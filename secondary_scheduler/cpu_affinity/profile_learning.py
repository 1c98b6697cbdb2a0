# SPDX-License-Identifier: Apache-2.0

"""Profiles of workload classes, corrected by observed slow-downs.

The logarithm of a predicted slow-down is a sum: a known part for the shares of
the CPU, an entry of ``time_sharing`` for each neighbour on the CPU, and the
largest entry of ``space_sharing`` for those beside it.  An observation
corrects the entries of its sum by their variances, as a Kalman filter with a
diagonal covariance does.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
import dataclasses
import math
import typing

from secondary_scheduler.cpu_affinity.prediction import cpu_use, max_min_shares
from secondary_scheduler.cpu_affinity.workload_profiles import (
    MOST,
    SlowdownMatrix,
    WorkloadProfiles,
)

#: Deviation of the logarithm of a measured entry, and of an observation.
ENTRY_DEVIATION, OBSERVATION_DEVIATION = 0.2, 0.05

#: Matrix, victim and neighbour.
Entry = tuple[str, str, str]


class ObservedSlowdown(typing.NamedTuple):
    """Slow-down of a guest beside others.

    :param victim: its class
    :param on_cpu: classes of the other guests on its CPU
    :param beside: classes on other CPUs of its cache
    """

    victim: str
    on_cpu: tuple[str, ...]
    beside: tuple[str, ...]
    slowdown: float


class LearnedEntry(typing.NamedTuple):
    """Logarithm of an entry: its mean, and the variance of that."""

    mean: float
    variance: float

    @classmethod
    def parse(cls, mean: object, variance: object) -> 'LearnedEntry | None':
        """Return a saved entry, None if it is damaged."""
        for value in (mean, variance):
            if (isinstance(value, bool) or not isinstance(value, int | float)
                    or not 0 <= value <= math.log(MOST)):
                return None
        return cls(*map(float, typing.cast('list[float]', (mean, variance))))


class ProfileLearner:
    """Profiles that observations correct.

    :param profiles: the profiles to begin with
    :param entries: what was learned before
    :param least_variance: of an entry.  Above 0, an observation counts even
        after many others, so that entries follow a load that changes
    """

    def __init__(self, profiles: WorkloadProfiles,
                 entries: Mapping[Entry, LearnedEntry] | None = None,
                 least_variance: float = 0.0) -> None:
        self._profiles = profiles
        self._least_variance = least_variance
        learned = (entries or {}).items()
        self._means = {key: one.mean for key, one in learned}
        self._variances = {key: one.variance for key, one in learned}

    @property
    def entries(self) -> dict[Entry, LearnedEntry]:
        """Entries that observations have corrected."""
        return {key: LearnedEntry(self._means[key], variance)
                for key, variance in self._variances.items()}

    def _mean(self, entry: Entry) -> float:
        """Return the logarithm of an entry."""
        if entry not in self._means:
            kind, victim, neighbour = entry
            matrix = (self._profiles.time_sharing if kind == 'time'
                      else self._profiles.space_sharing)
            self._means[entry] = (math.log(matrix.slowdown(victim, neighbour))
                                  if matrix else 0.0)
        return self._means[entry]

    def _shared(self, victim: str, others: Iterable[str]) -> float:
        """Return the logarithm of the slow-down by the share of a CPU."""
        uses = [cpu_use(self._profiles, one) for one in (victim, *others)]
        return math.log(uses[0] / max_min_shares(uses, 1.0)[0])

    def observe(self, observed: ObservedSlowdown) -> None:
        """Correct the entries that explain an observation.

        Observations of unknown classes, and slow-downs that are not positive,
        are left out.
        """
        names = (observed.victim, *observed.on_cpu, *observed.beside)
        if observed.slowdown <= 0 or any(
                one not in self._profiles.uses for one in names):
            return
        victim = observed.victim
        parts = Counter(('time', victim, one) for one in observed.on_cpu)
        predicted = self._shared(victim, observed.on_cpu) + sum(
            number * (self._mean(entry) - self._shared(victim, entry[2:]))
            for entry, number in parts.items())
        if observed.beside:
            most = max((('space', victim, one)
                        for one in sorted(set(observed.beside))),
                       key=self._mean)
            parts[most] = 1
            predicted = max(0.0, predicted) + self._mean(most)
        error = math.log(observed.slowdown) - predicted
        variances = {one: self._variances.get(one, ENTRY_DEVIATION ** 2)
                     for one in parts}
        total = OBSERVATION_DEVIATION ** 2 + sum(
            number ** 2 * variances[one] for one, number in parts.items())
        for one, number in parts.items():
            gain = number * variances[one] / total
            self._means[one] = max(0.0, self._mean(one) + gain * error)
            self._variances[one] = max(
                self._least_variance, variances[one] * (1 - number * gain))

    def profiles(self) -> WorkloadProfiles:
        """Return the corrected profiles."""
        return self._corrected(self._learned_entry)

    def cautious_profiles(self) -> WorkloadProfiles:
        """Return the corrected profiles, with the measured entries as least.

        Where nothing is known, the stand-in is an entry of its own.
        """
        return self._corrected(self._cautious_entry)

    def _learned_entry(self, matrix: SlowdownMatrix, entry: Entry
                       ) -> float | None:
        return (math.exp(self._means[entry]) if entry in self._means
                else matrix.entry(*entry[1:]))

    def _cautious_entry(self, matrix: SlowdownMatrix, entry: Entry) -> float:
        measured = matrix.entry(*entry[1:])
        if entry not in self._variances:
            return matrix.slowdown(*entry[1:])
        return min(MOST, max(measured or 1.0, math.exp(self._means[entry])))

    def _corrected(self, value: Callable[[SlowdownMatrix, Entry],
                                         float | None]) -> WorkloadProfiles:
        def corrected(kind: str, matrix: SlowdownMatrix) -> SlowdownMatrix:
            return dataclasses.replace(matrix, rows=tuple(
                tuple(value(matrix, (kind, victim, neighbour))
                      for neighbour in matrix.classes)
                for victim in matrix.classes))

        space = self._profiles.space_sharing
        return WorkloadProfiles(
            self._profiles.uses,
            corrected('time', self._profiles.time_sharing),
            space and corrected('space', space))


def fall_slowly(before: WorkloadProfiles, after: WorkloadProfiles,
                part: float) -> WorkloadProfiles:
    """Return later profiles whose entries have fallen by at most a part.

    Entries of classes without earlier ones stay as they are.
    """
    def bounded(old: SlowdownMatrix, new: SlowdownMatrix) -> SlowdownMatrix:
        known = set(old.classes)
        return dataclasses.replace(new, rows=tuple(
            tuple(value if value is None or not {victim, neighbour} <= known
                  else max(value, old.slowdown(victim, neighbour) * (1 - part))
                  for neighbour, value in zip(new.classes, row, strict=True))
            for victim, row in zip(new.classes, new.rows, strict=True)))

    return dataclasses.replace(
        after, time_sharing=bounded(before.time_sharing, after.time_sharing),
        space_sharing=bounded(before.space_sharing, after.space_sharing)
        if before.space_sharing and after.space_sharing
        else after.space_sharing)
