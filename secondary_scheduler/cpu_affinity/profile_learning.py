# SPDX-License-Identifier: Apache-2.0

"""Profiles of workload classes, corrected by observed slow-downs.

The logarithm of a predicted slow-down is a sum: a known part for the shares of
the CPU, an entry of ``time_sharing`` for each neighbour on the CPU, and the
largest entry of ``space_sharing`` for those beside it.  An observation
corrects the entries of its sum by their variances, as a Kalman filter with a
diagonal covariance does.
"""

from collections import Counter
from collections.abc import Iterable
import math
import typing

from secondary_scheduler.cpu_affinity.prediction import cpu_use, max_min_shares
from secondary_scheduler.cpu_affinity.workload_profiles import (
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


class ProfileLearner:
    """Profiles that observations correct.

    :param profiles: the profiles to begin with
    """

    def __init__(self, profiles: WorkloadProfiles) -> None:
        self._profiles = profiles
        self._means: dict[Entry, float] = {}
        self._variances: dict[Entry, float] = {}

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
            self._variances[one] = variances[one] * (1 - number * gain)

    def profiles(self) -> WorkloadProfiles:
        """Return the corrected profiles."""
        space = self._profiles.space_sharing
        return WorkloadProfiles(
            self._profiles.uses,
            self._corrected('time', self._profiles.time_sharing),
            space and self._corrected('space', space))

    def _corrected(self, kind: str, matrix: SlowdownMatrix
                   ) -> SlowdownMatrix:
        return SlowdownMatrix(matrix.name, matrix.classes, tuple(
            tuple(math.exp(self._means[kind, victim, neighbour])
                  if (kind, victim, neighbour) in self._means else value
                  for neighbour, value in zip(matrix.classes, row,
                                              strict=True))
            for victim, row in zip(matrix.classes, matrix.rows,
                                   strict=True)))
