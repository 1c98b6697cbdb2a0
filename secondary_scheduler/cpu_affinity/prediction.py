# SPDX-License-Identifier: Apache-2.0

"""Predicted slow-down of guests that share CPUs and caches.

The slow-down of a guest is the product of three factors:

* its share of the CPU: guests on a CPU get max-min fair shares of it, up to
  their use alone;
* for each neighbour on its CPU, the measured slow-down of the pair by that of
  their shares: what the cache and other resources add;
* the largest measured slow-down beside a guest on another CPU of its cache.

The first two have the measured slow-down of any pair.
"""

from collections.abc import Iterable, Mapping, Sequence
import functools
import math
import typing

from secondary_scheduler.cpu_affinity.workload_profiles import (
    WorkloadProfiles,
)

#: Classes of the guests on a CPU, sorted, so that equal sets are equal.
ClassSet = tuple[str, ...]
#: Name of the class of guests without a known class.
UNKNOWN = ''
#: Least use of a guest, in CPUs, so that shares are defined.
_LEAST_USE = 1e-3
#: Sets of classes whose predictions are kept.
_MOST_KEPT = 1 << 15


def max_min_shares(uses: Sequence[float], capacity: float) -> list[float]:
    """Return max-min fair shares of a capacity, each at most the use.

    :param uses: in the unit of the capacity
    """
    shares = [0.0] * len(uses)
    rest = capacity
    order = sorted(range(len(uses)), key=lambda place: uses[place])
    for number, place in enumerate(order):
        shares[place] = min(uses[place], rest / (len(uses) - number))
        rest -= shares[place]
    return shares


def cpu_use(profiles: WorkloadProfiles, name: str) -> float:
    """Return the use of a class alone, in CPUs above 0 up to 1.

    An unknown use counts as 1.
    """
    cpu = profiles.use(name).cpu
    return min(max(_LEAST_USE, (100.0 if cpu is None else cpu) / 100), 1.0)


class SlowdownEstimates(typing.Protocol):
    """Slow-downs of guests by the classes of their neighbours."""

    def on_cpu(self, classes: ClassSet) -> Mapping[str, float]:
        """Return the slow-down of each class on one CPU, at least 1.

        :param classes: the classes of all guests on the CPU, sorted
        """

    def beside(self, victim: str, neighbours: Iterable[str]) -> float:
        """Return the slow-down beside guests on other CPUs of the cache."""


class SlowdownModel:
    """Predictions of slow-downs from the profiles of classes."""

    def __init__(self, profiles: WorkloadProfiles) -> None:
        self._profiles = profiles
        self.on_cpu = functools.lru_cache(_MOST_KEPT)(self._on_cpu)
        self.residual = functools.lru_cache(_MOST_KEPT)(self._residual)

    def class_name(self, workload_class: str | None) -> str:
        """Return the name of a class, ``UNKNOWN`` for any unknown one."""
        if workload_class is not None and workload_class in (
                self._profiles.uses):
            return workload_class
        return UNKNOWN

    def use(self, name: str) -> float:
        """Return the use of a class alone, in CPUs from 0 to 1."""
        return cpu_use(self._profiles, name)

    def _on_cpu(self, classes: ClassSet) -> Mapping[str, float]:
        """Return the slow-down of each class on one CPU, at least 1.

        :param classes: the classes of all guests on the CPU, sorted
        """
        uses = [self.use(one) for one in classes]
        shares = max_min_shares(uses, 1.0)
        found: dict[str, float] = {}
        for place, victim in enumerate(classes):
            if victim not in found:
                rest = (*classes[:place], *classes[place + 1:])
                found[victim] = max(1.0, uses[place] / shares[place]
                                    * math.prod(self.residual(victim, one)
                                                for one in rest))
        return found

    def _residual(self, victim: str, neighbour: str) -> float:
        """Return the slow-down of a pair by that of its shares of a CPU."""
        use = self.use(victim)
        share = max_min_shares([use, self.use(neighbour)], 1.0)[0]
        return (self._profiles.time_sharing.slowdown(victim, neighbour)
                * share / use)

    def beside(self, victim: str, neighbours: Iterable[str]) -> float:
        """Return the slow-down beside guests on other CPUs of the cache."""
        space = self._profiles.space_sharing
        if space is None:
            return 1.0
        return max((space.slowdown(victim, one) for one in neighbours),
                   default=1.0)
