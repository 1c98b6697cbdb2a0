# SPDX-License-Identifier: Apache-2.0

"""True slow-downs of guests on the CPUs of a host.

There are three models, so that a driver is not judged by its own predictions
alone:

* ``t1``: the estimate of ``interference`` (Kaffes 2015, algorithm 4), at least
  1.  Guests on other CPUs do not count;
* ``t2``: the model of ``cpu_affinity.prediction``;
* ``t3``: the same with all entries of both matrices times lognormal errors
  that are unknown to drivers.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import functools
import random

from secondary_scheduler.cpu_affinity.interference import guest_interference
from secondary_scheduler.cpu_affinity.prediction import (
    ClassSet,
    SlowdownEstimates,
    SlowdownModel,
)
from secondary_scheduler.cpu_affinity.workload_profiles import (
    SlowdownMatrix,
    WorkloadProfiles,
)
from secondary_scheduler.model.topology import Topology

NAMES = ('t1', 't2', 't3')
#: Deviation of the logarithm of entries in ``t3``.
ERROR = 0.2


class ThesisModel:
    """Slow-downs as ``interference`` estimates them, at least 1."""

    def __init__(self, profiles: WorkloadProfiles) -> None:
        self._matrix = profiles.time_sharing
        self.on_cpu = functools.lru_cache(1 << 15)(self._on_cpu)

    def _on_cpu(self, classes: ClassSet) -> Mapping[str, float]:
        return {one: max(1.0, guest_interference(
            self._matrix, one, [*classes[:place], *classes[place + 1:]]))
            for place, one in enumerate(classes)}

    def beside(self, victim: str, neighbours: Iterable[str]) -> float:
        """Return 1: guests on other CPUs do not count."""
        return 1.0


def make_truth(name: str, profiles: WorkloadProfiles, seed: int
               ) -> SlowdownEstimates:
    """Return one of the true models; ``seed`` is that of its errors."""
    if name == 't1':
        return ThesisModel(profiles)
    return SlowdownModel(wrong_profiles(profiles, seed) if name == 't3'
                         else profiles)


def wrong_profiles(profiles: WorkloadProfiles, seed: int) -> WorkloadProfiles:
    """Return profiles with lognormal errors in all entries of matrices.

    Entries stay at 1 or above.
    """
    draw = random.Random(f'errors {seed}')

    def spoil(matrix: SlowdownMatrix) -> SlowdownMatrix:
        return SlowdownMatrix(matrix.name, matrix.classes, tuple(tuple(
            None if one is None
            else max(1.0, one * draw.lognormvariate(0.0, ERROR))
            for one in row) for row in matrix.rows))

    return dataclasses.replace(
        profiles, time_sharing=spoil(profiles.time_sharing),
        space_sharing=profiles.space_sharing and spoil(
            profiles.space_sharing))


def slowdowns(truth: SlowdownEstimates, topology: Topology,
              classes: Sequence[str], cpus: Sequence[int]) -> list[float]:
    """Return the true slow-down of each running guest.

    :param classes: class of each guest
    :param cpus: CPU of each guest
    """
    on_cpu: dict[int, list[str]] = {}
    for one, cpu in zip(classes, cpus, strict=True):
        on_cpu.setdefault(cpu, []).append(one)
    found: dict[tuple[int, str], float] = {}
    for domain in topology.cache_domains:
        some = {cpu: on_cpu[cpu] for cpu in domain if cpu in on_cpu}
        for cpu, here in some.items():
            others = {one for other, there in some.items() if other != cpu
                      for one in there}
            for one, value in truth.on_cpu(tuple(sorted(here))).items():
                found[cpu, one] = value * truth.beside(one, others)
    return [found[cpu, one] for one, cpu in zip(classes, cpus, strict=True)]
