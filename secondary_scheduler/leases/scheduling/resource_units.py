# SPDX-License-Identifier: Apache-2.0

"""Units of a resource, such as processors (Sotomayor 2010, section 3.1).

A host can have several units of a resource.  Each part of a VM's need is
taken from one unit, and different parts of a VM from different units; no part
is split.

Identical VMs are assigned together: only the amount taken of a unit counts.
If no unit has more parts than there are VMs, the parts can be assigned so
that no VM has two on one unit.  (The edge chromatic number of a bipartite
multigraph is its maximum degree; König.)
"""

import numpy as np

from secondary_scheduler.leases.scheduling.steps import compiled
from secondary_scheduler.leases.scheduling.types import Ints


@compiled
def _assign_parts(left: Ints, parts: Ints, vms: int, taken: Ints) -> int:
    """Assign the parts of VMs to the units of a host, the first first.

    ``left`` is the free amount of each unit; ``taken``, shape (units,), is
    set to the amount taken.  Return the amount that does not fit.
    """
    taken[:] = 0
    dealt = np.zeros(len(left), dtype=np.int64)
    short = 0
    for part in parts:
        rest = vms
        for index in range(len(left)):
            here = min(rest, vms - dealt[index],
                       (left[index] - taken[index]) // part)
            if here > 0:
                dealt[index] += here
                taken[index] += here * part
                rest -= here
        short += rest * part
    return short


@compiled
def count_fitting(left: Ints, parts: Ints, most: Ints) -> Ints:
    """Return how many VMs fit on each host, at most ``most``.

    ``left``, shape (hosts, units), is the free amount of units; ``parts`` are
    the amounts a VM takes of different units, the largest first.  The count
    is the maximum if these are equal; else it may be lower.
    """
    found = np.zeros_like(most)
    taken = np.empty(left.shape[1], dtype=np.int64)
    for host in range(len(most)):
        while found[host] < most[host] and _assign_parts(
                left[host], parts, found[host] + 1, taken) == 0:
            found[host] += 1
    return found


@compiled
def amounts_taken(left: Ints, parts: Ints, vms: Ints) -> Ints:
    """Return the amounts that VMs, shape (hosts,), take of units.

    Shape (hosts, units); ``left`` and ``parts`` as in ``count_fitting``.
    Amounts that do not fit are taken of the first unit, which is overdrawn.
    """
    found = np.empty(left.shape, dtype=np.int64)
    for host in range(len(vms)):
        short = _assign_parts(left[host], parts, vms[host], found[host])
        found[host, 0] += short
    return found
