# SPDX-License-Identifier: Apache-2.0

"""CPUs that guests share freely.

A guest that may use one CPU only leaves others idle beside it.  The CPUs of a
cache are joined into *cells*, over which the kernel spreads the guests, as
long as the predicted performance of the guests allows it.
"""

from collections.abc import Iterable, Sequence
import typing

from secondary_scheduler.cpu_affinity.prediction import (
    ClassSet,
    SlowdownEstimates,
)
from secondary_scheduler.model.topology import Cpus


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
    for one in sorted((one for one in cpus if len(one.classes) > 1),
                      key=lambda cell: (cell.classes, min(cell.cpus))):
        for place, cell in enumerate(found):
            joined = _join((cell, one))
            least = (predict_cell(estimates, cell)
                     + predict_cell(estimates, one)) * (1 - most_loss)
            if (len(joined.classes) <= 2 * len(joined.cpus)
                    and predict_cell(estimates, joined) >= least):
                found[place] = joined
                break
        else:
            found.append(one)
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
    total = 0.0
    for place, victim in enumerate(cell.classes):
        total += 1 - paired
        if paired:
            rest = (*cell.classes[:place], *cell.classes[place + 1:])
            total += paired * sum(1 / estimates.on_cpu(
                (victim, one) if victim <= one else (one, victim))[victim]
                for one in rest) / len(rest)
    return total
