# SPDX-License-Identifier: Apache-2.0

"""Placement by measured interference (Kaffes 2015, section 3.2.3).

Slow-downs of pairs were measured; those of larger groups are estimated from
them (algorithm 4).
"""

from collections.abc import Sequence
import math

from secondary_scheduler.cpu_affinity.one_cpu import CpuLists, OneCpuDriver
from secondary_scheduler.cpu_affinity.workload_profiles import SlowdownMatrix


def guest_interference(matrix: SlowdownMatrix, victim: str | None,
                       neighbours: Sequence[str | None],
                       formula: str = 'thesis') -> float:
    """Return the estimated slow-down of a guest beside others on its CPU.

    :param formula: ``thesis``, half of the sum and the product of the
        slow-downs beside each (section 3.2.3): 0.5 for a guest alone, the
        measured slow-down for a pair; or ``normalised``, the same with a sum
        of excesses over 1: 1 for a guest alone
    """
    slowdowns = [matrix.slowdown(victim, one) for one in neighbours]
    total = (1 + sum(one - 1 for one in slowdowns)
             if formula == 'normalised' else sum(slowdowns))
    return (total + math.prod(slowdowns)) / 2


def cpu_interference(matrix: SlowdownMatrix, classes: Sequence[str | None],
                     formula: str = 'thesis') -> float:
    """Return the highest estimated slow-down of the guests on a CPU."""
    return max((guest_interference(
        matrix, victim, [*classes[:place], *classes[place + 1:]], formula)
        for place, victim in enumerate(classes)), default=0.0)


class InterferenceAffinity(OneCpuDriver):
    """Fills CPUs up to an estimated slow-down.

    A vCPU gets the first CPU whose estimate with it is below the threshold.
    If there is none, it gets the CPU with the lowest estimate.
    """

    def select(self, workload_class: str | None, candidates: Sequence[int],
               placed: CpuLists) -> int:
        """Return the CPU for a vCPU of a class."""
        # Many CPUs of a large host have guests of the same classes.
        known: dict[tuple[str | None, ...], float] = {}
        for cpu in candidates:
            classes = placed.classes[cpu]
            if classes not in known:
                known[classes] = cpu_interference(
                    self.profiles.time_sharing, [*classes, workload_class],
                    self.options.interference_formula)
            if known[classes] < self.options.interference_threshold:
                return cpu
        return min(candidates, key=lambda cpu: known[placed.classes[cpu]])
