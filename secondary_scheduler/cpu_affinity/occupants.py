# SPDX-License-Identifier: Apache-2.0

"""Classes of the guests on a CPU, with their predicted slow-downs.

Equal sets of classes are one object, which leads to those with one guest more
or less and keeps its predictions.  So a search counts CPUs that are alike, and
predicts nothing twice.
"""

import math

from secondary_scheduler.cpu_affinity.prediction import (
    ClassSet,
    SlowdownModel,
)

#: Set of classes: the sum of the bits that a table gave to them.
ClassBits = int


class Occupants:
    """Classes of the guests on a CPU.

    :param classes: sorted
    """

    __slots__ = ('_fewer', '_harms', '_loss', '_more', '_table', 'bits',
                 'classes', 'each', 'idle')

    def __init__(self, table: 'OccupantTable', classes: ClassSet) -> None:
        self._table = table
        self.classes = classes
        #: The classes, each once.
        self.each = tuple(dict.fromkeys(classes))
        self.bits: ClassBits = sum(map(table.bit, self.each))
        #: Part of the CPU that the guests leave idle.
        self.idle = max(0.0, 1 - sum(map(table.model.use, classes)))
        slowdowns = table.model.on_cpu(classes)
        self._loss = sum(math.log(slowdowns[one]) for one in classes)
        self._harms: dict[ClassBits, float] = {}
        self._more: dict[str, Occupants] = {}
        self._fewer: dict[str, Occupants] = {}

    def with_guest(self, name: str) -> 'Occupants':
        """Return the occupants with one more guest of a class."""
        if name not in self._more:
            self._more[name] = self._table.find(
                tuple(sorted((*self.classes, name))))
        return self._more[name]

    def without_guest(self, name: str) -> 'Occupants':
        """Return the occupants with one guest of a class less."""
        if name not in self._fewer:
            place = self.classes.index(name)
            self._fewer[name] = self._table.find(
                (*self.classes[:place], *self.classes[place + 1:]))
        return self._fewer[name]

    def loss(self, others: ClassBits) -> float:
        """Return the sum of the logarithms of the slow-downs of the guests.

        The slow-down through the cache has the weight of the table.

        :param others: classes on other CPUs of the cache
        """
        if others not in self._harms:
            self._harms[others] = self._loss + self._table.cache_weight * sum(
                self._table.harm(one, others) for one in self.classes)
        return self._harms[others]


class OccupantTable:
    """All sets of classes that were on a CPU so far.

    :param cache_weight: weight of the slow-down of guests through the cache,
        from 0 to 1
    """

    def __init__(self, model: SlowdownModel, cache_weight: float = 1.0
                 ) -> None:
        self.model = model
        self.cache_weight = cache_weight
        self._bits: dict[str, ClassBits] = {}
        self._harms: dict[tuple[str, ClassBits], float] = {}
        self._known: dict[ClassSet, Occupants] = {}
        self.empty = self.find(())

    def __len__(self) -> int:
        return len(self._known)

    def find(self, classes: ClassSet) -> Occupants:
        """Return the occupants with these classes, sorted."""
        if classes not in self._known:
            self._known[classes] = Occupants(self, classes)
        return self._known[classes]

    def bit(self, name: str) -> ClassBits:
        """Return the bit of a class."""
        return self._bits.setdefault(name, 1 << len(self._bits))

    def harm(self, victim: str, others: ClassBits) -> float:
        """Return the logarithm of the slow-down through the cache.

        :param others: classes on other CPUs of the cache
        """
        key = victim, others
        if key not in self._harms:
            self._harms[key] = math.log(self.model.beside(victim, (
                name for name, bit in self._bits.items() if bit & others)))
        return self._harms[key]
