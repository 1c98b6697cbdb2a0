# SPDX-License-Identifier: Apache-2.0

"""Guests on CPUs, with the predicted performance of each cache.

The score of an assignment is the sum of the logarithms of the performance of
all vCPUs (1 by their predicted slow-down), and of primaries with their weight.
So a gain is a relative one, and no guest starves for the speed of the others.
The part of a CPU depends only on the classes on it and on those elsewhere in
its cache.  As long as the latter stay the same, a change costs no more than
the CPUs that it touches.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import typing

from secondary_scheduler.cpu_affinity.occupants import (
    ClassBits,
    Occupants,
    OccupantTable,
)
from secondary_scheduler.model.topology import Cpus, Partition

#: Class and CPUs before and after; None is nowhere.
Change = tuple[str, int | None, int | None]
#: CPU and the guests on it.
Content = tuple[int, Occupants]
#: Part of their performance that primaries lose on a CPU that they share with
#: guests, in spite of their weight.
SHARED_CPU = 0.02
#: CPUs are alike if the weights of their primaries differ less.  A step is
#: 0.01 in the score.
_WEIGHT_STEP = 0.5
#: Idle CPUs of a cache without any, so that means over them are defined.
_LEAST_IDLE = 1e-9


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
    :param idle: CPUs of it that its guests leave idle, above 0
    :param harm: logarithm of the slow-down of each floating primary there,
        times ``idle``
    """

    own: float
    idle: float
    harm: tuple[float, ...]


class CpuState(typing.NamedTuple):
    """Guests and primaries of a CPU; equal for CPUs of a cache that are alike.

    :param cache: number of its cache
    :param weight: that of the primaries on it, rounded
    """

    cache: int
    occupants: Occupants
    weight: float


class _Classes(typing.NamedTuple):
    """Classes of the guests of a cache: on any CPU, and on one CPU only."""

    present: ClassBits
    single: ClassBits


class _Sums(typing.NamedTuple):
    """Sums over the CPUs of a cache.

    :param loss: logarithms of the slow-downs of guests
    :param idle: CPUs that guests leave idle
    :param shared: weight of primaries on CPUs with guests
    """

    loss: float
    idle: float
    shared: float


class _Cache:
    """Guests on the CPUs of a cache."""

    def __init__(self, table: OccupantTable, cpus: Cpus,
                 fixed: Mapping[int, FixedLoad],
                 floating: Sequence[FixedLoad]) -> None:
        self._table = table
        self._floating = floating
        #: Weight of the primaries of each class on CPUs of the cache.
        self._fixed: dict[str, float] = {}
        for cpu in sorted(cpus & fixed.keys()):
            name = fixed[cpu].workload_class
            self._fixed[name] = self._fixed.get(name, 0.0) + fixed[cpu].weight
        self._fixed_bits: ClassBits = sum(map(table.bit, self._fixed))
        #: Weight of the primaries on each CPU, rounded.
        self.weights = dict.fromkeys(cpus, 0.0)
        for cpu in cpus & fixed.keys():
            self.weights[cpu] = _WEIGHT_STEP * round(
                fixed[cpu].weight / _WEIGHT_STEP)
        self.occupants = dict.fromkeys(cpus, table.empty)
        self._counts = Counter(self.occupants.values())
        #: Number of CPUs with each class.
        self._cpus_with: Counter[ClassBits] = Counter()
        self._classes = _Classes(0, 0)
        self._sums = _Sums(0.0, float(len(cpus)), 0.0)
        self.score = self._score(self._sums, self._classes)
        self._predicted: dict[tuple[object, ...], CacheScore] = {}
        self._replaced: dict[tuple[object, ...], CacheScore] = {}

    def predict(self, after: Sequence[Content]) -> CacheScore:
        """Return the score with other guests on some CPUs.

        :param after: different CPUs, each with its guests
        """
        key = tuple([(self.occupants[cpu], self.weights[cpu], one)
                     for cpu, one in after])
        found = self._predicted.get(key)
        if found is None:
            classes = self._classes_after(after)
            found = self._predicted[key] = self._score(
                self._sums_after(after, classes), classes)
        return found

    def change(self, after: Sequence[Content]) -> None:
        """Put other guests on some CPUs."""
        classes = self._classes_after(after)
        self._sums = self._sums_after(after, classes)
        self._classes = classes
        self.score = self._score(self._sums, classes)
        self._cpus_with.update(self._arrivals(after))
        for cpu, one in after:
            self._counts[self.occupants[cpu]] -= 1
            self._counts[one] += 1
            self.occupants[cpu] = one
        self._counts = +self._counts
        self._predicted = {}
        self._replaced = {}

    def replace_guest(self, cpu: int, leaves: str | None, comes: str | None
                      ) -> CacheScore:
        """Return the score with another guest on a CPU.

        :param leaves: class of the guest that leaves the CPU
        :param comes: class of the guest that comes to it
        """
        one = self.occupants[cpu]
        key = one, self.weights[cpu], leaves, comes
        found = self._replaced.get(key)
        if found is None:
            if leaves is not None:
                one = one.without_guest(leaves)
            if comes is not None:
                one = one.with_guest(comes)
            found = self._replaced[key] = self.predict([(cpu, one)])
        return found

    def _arrivals(self, after: Iterable[Content]) -> dict[ClassBits, int]:
        """Return on how many more CPUs each class is afterwards."""
        found: dict[ClassBits, int] = {}
        for cpu, one in after:
            differ = self.occupants[cpu].bits ^ one.bits
            while differ:
                bit = differ & -differ
                differ ^= bit
                found[bit] = found.get(bit, 0) + (1 if one.bits & bit else -1)
        return found

    def _classes_after(self, after: Iterable[Content]) -> _Classes:
        present, single = self._classes
        for bit, arrivals in self._arrivals(after).items():
            number = self._cpus_with[bit] + arrivals
            present = present | bit if number else present & ~bit
            single = single | bit if number == 1 else single & ~bit
        return _Classes(present, single)

    def _sums_after(self, after: Iterable[Content], classes: _Classes
                    ) -> _Sums:
        """Return sums with other guests on some CPUs.

        While the classes of the cache stay the same, so do the parts of the
        other CPUs.
        """
        loss, idle, shared = self._sums
        counts: dict[Occupants, int] = {}
        for cpu, one in after:
            before = self.occupants[cpu]
            counts[before] = counts.get(before, 0) - 1
            counts[one] = counts.get(one, 0) + 1
            idle += one.idle - before.idle
            shared += self.weights[cpu] * (bool(one.classes)
                                           - bool(before.classes))
        if classes != self._classes:
            loss = 0.0
            for some, number in self._counts.items():
                counts[some] = counts.get(some, 0) + number
        present, single = classes
        for some, number in counts.items():
            others = present & ~(single & some.bits) | self._fixed_bits
            loss += number * some.loss(others)
        return _Sums(loss, idle, shared)

    def _score(self, sums: _Sums, classes: _Classes) -> CacheScore:
        present = classes.present
        # Primaries have the weight to win the CPU from guests on it, so that
        # what remains is the harm through the cache.
        harm = sum([weight * self._table.harm(name, present)
                    for name, weight in self._fixed.items()])
        idle = max(0.0, sums.idle) + _LEAST_IDLE
        return CacheScore(
            -sums.loss - harm - SHARED_CPU * sums.shared, idle, tuple([
                idle * self._table.harm(one.workload_class, present)
                for one in self._floating]))


class Assignment:
    """Guests on CPUs.

    :param domains: CPUs of each cache
    :param fixed: primaries by CPU
    :param floating: primaries that may run on all CPUs.  They are predicted on
        the CPUs that guests leave idle
    """

    def __init__(self, table: OccupantTable, domains: Partition,
                 fixed: Mapping[int, FixedLoad],
                 floating: Sequence[FixedLoad] = ()) -> None:
        self._floating = tuple(floating)
        self._caches = [_Cache(table, part, fixed, self._floating)
                        for part in domains]
        self._number = {cpu: number for number, part in enumerate(domains)
                        for cpu in part}

        self._idle, self._harms = self._sum_floating()

    @property
    def score(self) -> float:
        """Sum of the logarithms of performance; 0 without any slow-down."""
        return (sum(one.score.own for one in self._caches)
                - self._floating_loss(self._idle, self._harms))

    def _sum_floating(self) -> tuple[float, list[float]]:
        """Return idle CPUs, and the harm there to each floating primary."""
        return (sum(one.score.idle for one in self._caches),
                [sum(one.score.harm[place] for one in self._caches)
                 for place in range(len(self._floating))])

    def _floating_loss(self, idle: float, harms: Sequence[float]) -> float:
        return sum([one.weight * harm / idle for one, harm in zip(
            self._floating, harms, strict=True)])

    def occupants(self, cpu: int) -> Occupants:
        """Return the guests on a CPU."""
        return self._caches[self._number[cpu]].occupants[cpu]

    def state(self, cpu: int) -> CpuState:
        """Return a key that is equal for CPUs of a cache that are alike."""
        number = self._number[cpu]
        cache = self._caches[number]
        return CpuState(number, cache.occupants[cpu], cache.weights[cpu])

    def gain(self, changes: Iterable[Change]) -> float:
        """Return by how much changes would raise the score."""
        return self._difference([
            (self._caches[number].score, self._caches[number].predict(some))
            for number, some in self._after(changes).items()])

    def _difference(self, scores: Iterable[tuple[CacheScore, CacheScore]]
                    ) -> float:
        """Return by how much the score rises with other scores of caches.

        :param scores: of each cache before and afterwards
        """
        own, idle, harms = 0.0, self._idle, self._harms
        for before, after in scores:
            own += after.own - before.own
            if harms:
                idle += after.idle - before.idle
                harms = [harm + new - old for harm, new, old in zip(
                    harms, after.harm, before.harm, strict=True)]
        if harms:
            own += self._floating_loss(self._idle, self._harms)
            own -= self._floating_loss(idle, harms)
        return own

    def shift_gain(self, name: str, before: int | None, after: int,
                   back: str | None) -> float:
        """Return by how much a guest on another CPU would raise the score.

        :param name: class of the guest
        :param back: class of a guest that goes the other way, if any
        """
        there = self._caches[self._number[after]]
        scores = []
        if before is not None:
            here = self._caches[self._number[before]]
            if here is there:
                return self.gain([(name, before, after), *(
                    [] if back is None else [(back, after, before)])])
            scores.append((here.score, here.replace_guest(before, name, back)))
        scores.append((there.score, there.replace_guest(after, back, name)))
        return self._difference(scores)

    def apply(self, changes: Iterable[Change]) -> None:
        """Make changes."""
        for number, some in self._after(changes).items():
            self._caches[number].change(some)
        self._idle, self._harms = self._sum_floating()

    def _after(self, changes: Iterable[Change]) -> dict[int, list[Content]]:
        """Return what changes put on CPUs, by number of the cache."""
        found: dict[int, Occupants] = {}
        for name, before, after in changes:
            if before is not None:
                found[before] = (found.get(before) or self.occupants(before)
                                 ).without_guest(name)
            if after is not None:
                found[after] = (found.get(after) or self.occupants(after)
                                ).with_guest(name)
        caches: dict[int, list[Content]] = {}
        for cpu, one in found.items():
            caches.setdefault(self._number[cpu], []).append((cpu, one))
        return caches
