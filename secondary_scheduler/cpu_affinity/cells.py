# SPDX-License-Identifier: Apache-2.0

"""CPUs that guests share freely.

A guest that may use one CPU only leaves others idle beside it.  The CPUs of a
cache are joined into *cells*, over which the kernel spreads the guests, as
long as the predicted performance of the guests allows it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
import typing

from secondary_scheduler.cpu_affinity.prediction import (
    ClassSet,
    SlowdownEstimates,
)
from secondary_scheduler.model.topology import Cpus

#: Losses of performance that are rounding errors.
_EPSILON = 1e-9


class Cell(typing.NamedTuple):
    """CPUs with the classes of their guests, sorted."""

    cpus: Cpus
    classes: ClassSet


def join_cpus(estimates: SlowdownEstimates, cpus: Sequence[Cell],
              most_loss: float) -> list[Cell]:
    """Return cells of the CPUs of a cache.

    :param cpus: a cell for each CPU
    :param most_loss: predicted loss of performance that is accepted for a
        larger cell, as a part of that of its guests
    """
    # A guest has a CPU of its own in each cell with enough CPUs.
    free = [one for one in cpus if len(one.classes) <= 1]
    found = [_join(free)] if free else []
    sums = [predict_cell(estimates, one) for one in found]
    place = 0
    before: ClassSet = ()
    for one in sorted((one for one in cpus if len(one.classes) > 1),
                      key=lambda cell: (cell.classes, min(cell.cpus))):
        if one.classes != before:
            # The cells that did not take the CPU before do not take a like
            # one either: they are unchanged.
            place, before = 0, one.classes
            alone = predict_cell(estimates, one)
        while place < len(found):
            joined = _join((found[place], one))
            if len(joined.classes) <= 2 * len(joined.cpus):
                total = predict_cell(estimates, joined)
                if total >= (sums[place] + alone) * (1 - most_loss) - _EPSILON:
                    found[place], sums[place] = joined, total
                    break
            place += 1
        else:
            found.append(one)
            sums.append(alone)
    return found


def _join(cells: Iterable[Cell]) -> Cell:
    some = list(cells)
    return Cell(frozenset[int]().union(*(one.cpus for one in some)),
                tuple(sorted(name for one in some for name in one.classes)))


def predict_cell(estimates: SlowdownEstimates, cell: Cell) -> float:
    """Return the predicted sum of the performance of a cell's guests.

    A cell of several CPUs has at most two guests for each.  Then guests are
    alone or in random pairs.  Guests outside of the cell do not count.
    """
    count, cpus = len(cell.classes), len(cell.cpus)
    if cpus == 1:
        slowdowns = estimates.on_cpu(cell.classes)
        return sum(1 / slowdowns[one] for one in cell.classes)
    paired = max(0.0, 2 * (count - cpus) / count) if count else 0.0
    if not paired:
        return float(count)
    numbers = Counter(cell.classes)
    together = sum(
        number * (others - (one == other)) / estimates.on_cpu(
            (one, other) if one <= other else (other, one))[one]
        for one, number in numbers.items()
        for other, others in numbers.items())
    return count * (1 - paired) + paired * together / (count - 1)
