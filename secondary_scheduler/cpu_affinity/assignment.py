# SPDX-License-Identifier: Apache-2.0

"""Guests on CPUs, with the predicted performance of each cache.

The score of an assignment is the sum of the logarithms of the performance of
all vCPUs (1 by their predicted slow-down), and of primaries with their weight.
So a gain is a relative one, and no guest starves for the speed of the others.
The part of a cache depends only on the classes on its CPUs, and is kept.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import typing

from secondary_scheduler.cpu_affinity.prediction import (
    ClassSet,
    SlowdownEstimates,
    SlowdownModel,
)
from secondary_scheduler.model.topology import Partition

#: Class and CPUs before and after; None is nowhere.
Change = tuple[str, int | None, int | None]
#: Classes on each CPU of a cache.
Contents = tuple[ClassSet, ...]


@dataclasses.dataclass(frozen=True)
class FixedLoad:
    """Primaries on a CPU, or on all.

    :param workload_class: their class
    :param weight: their use in CPUs, times the weight of a CPU of primaries
        beside a vCPU of secondaries
    """

    workload_class: str
    weight: float


class CacheScore(typing.NamedTuple):
    """Part of the score of a cache.

    :param own: the score of its guests and of the primaries on its CPUs
    :param idle: CPUs of it that its guests leave idle
    :param harm: logarithm of the slow-down of each floating primary there
    """

    own: float
    idle: float
    harm: tuple[float, ...]


class Assignment:
    """Guests on CPUs.

    :param domains: CPUs of each cache
    :param fixed: primaries by CPU
    :param floating: primaries that may run on all CPUs.  They are predicted on
        the CPUs that guests leave idle
    """

    def __init__(self, estimates: SlowdownModel, domains: Partition,
                 fixed: Mapping[int, FixedLoad],
                 floating: Sequence[FixedLoad] = ()) -> None:
        self._estimates = estimates
        self._place = {cpu: (number, place)
                       for number, part in enumerate(domains)
                       for place, cpu in enumerate(sorted(part))}
        self._fixed = [tuple((place, fixed[cpu]) for place, cpu in enumerate(
            sorted(part)) if cpu in fixed) for part in domains]
        self._floating = tuple(floating)
        self._contents: list[Contents] = [
            ((),) * len(part) for part in domains]
        self._known: dict[tuple[int, Contents], CacheScore] = {}
        self._scores = [self._score(number, contents)
                        for number, contents in enumerate(self._contents)]

    @property
    def score(self) -> float:
        """Sum of the logarithms of performance; 0 without any slow-down."""
        return self._total(self._scores)

    def _total(self, scores: Sequence[CacheScore]) -> float:
        total = sum(one.own for one in scores)
        if self._floating:
            idle = sum(one.idle for one in scores) + 1e-9 * len(scores)
            for place, one in enumerate(self._floating):
                total -= one.weight * sum(
                    (some.idle + 1e-9) * some.harm[place]
                    for some in scores) / idle
        return total

    def classes(self, cpu: int) -> ClassSet:
        """Return the classes on a CPU, sorted."""
        number, place = self._place[cpu]
        return self._contents[number][place]

    def state(self, cpu: int) -> tuple[int, ClassSet, tuple[object, ...]]:
        """Return a key that is equal for CPUs of a cache that are alike."""
        number, place = self._place[cpu]
        return (number, self._contents[number][place], tuple(
            one for at, one in self._fixed[number] if at == place))

    def gain(self, changes: Sequence[Change]) -> float:
        """Return by how much changes would raise the score."""
        after = self._after(changes)
        if not self._floating:
            return sum(self._score(number, contents).own
                       - self._scores[number].own
                       for number, contents in after.items())
        scores = list(self._scores)
        for number, contents in after.items():
            scores[number] = self._score(number, contents)
        return self._total(scores) - self._total(self._scores)

    def apply(self, changes: Sequence[Change]) -> None:
        """Make changes."""
        for number, contents in self._after(changes).items():
            self._contents[number] = contents
            self._scores[number] = self._score(number, contents)

    def _after(self, changes: Sequence[Change]) -> dict[int, Contents]:
        """Return the contents of the caches that changes touch."""
        found: dict[int, list[ClassSet]] = {}
        for name, before, after in changes:
            for cpu, comes in ((before, False), (after, True)):
                if cpu is None:
                    continue
                number, place = self._place[cpu]
                contents = found.setdefault(
                    number, list(self._contents[number]))
                some = list(contents[place])
                if comes:
                    some.append(name)
                    some.sort()
                else:
                    some.remove(name)
                contents[place] = tuple(some)
        return {number: tuple(contents) for number, contents in found.items()}

    def _score(self, number: int, contents: Contents) -> CacheScore:
        key = (number if self._fixed[number] else -1, contents)
        if key not in self._known:
            self._known[key] = self._compute(number, contents)
        return self._known[key]

    def _compute(self, number: int, contents: Contents) -> CacheScore:
        """Return the score of a cache."""
        beside = besides(self._estimates, contents, [
            one.workload_class for _, one in self._fixed[number]])
        total = 0.0
        for place, classes in enumerate(contents):
            if classes:
                slowdowns = self._estimates.on_cpu(classes)
                total -= sum(math.log(slowdowns[one] * beside[place, one])
                             for one in classes)
        everyone = {one for classes in contents for one in classes}
        for place, one in self._fixed[number]:
            # Primaries have the weight to win the CPU from guests on it, so
            # that what remains is the harm through the cache.
            harm = self._estimates.beside(one.workload_class, everyone)
            total -= one.weight * (
                math.log(harm) + SHARED_CPU * (contents[place] != ()))
        return CacheScore(total, sum(max(0.0, 1 - sum(
            self._estimates.use(one) for one in classes))
            for classes in contents), tuple(
                math.log(self._estimates.beside(one.workload_class, everyone))
                for one in self._floating))


#: Part of their performance that primaries lose on a CPU that they share with
#: guests, in spite of their weight.
SHARED_CPU = 0.02


def besides(estimates: SlowdownEstimates, contents: Contents,
            others: Sequence[str] = ()) -> dict[tuple[int, str], float]:
    """Return the slow-down of each class on each CPU through the cache.

    :param others: classes beside all CPUs
    """
    places: dict[str, set[int]] = {}
    for place, classes in enumerate(contents):
        for one in classes:
            places.setdefault(one, set()).add(place)
    found: dict[tuple[int, str], float] = {}
    everywhere: dict[str, float] = {}
    alone = {one: next(iter(some)) for one, some in places.items()
             if len(some) == 1}
    for place, classes in enumerate(contents):
        own = [one for one in set(classes) if alone.get(one) == place]
        for victim in set(classes):
            if own:
                found[place, victim] = estimates.beside(
                    victim, (places.keys() - set(own)) | set(others))
            else:
                if victim not in everywhere:
                    everywhere[victim] = estimates.beside(
                        victim, places.keys() | set(others))
                found[place, victim] = everywhere[victim]
    return found
