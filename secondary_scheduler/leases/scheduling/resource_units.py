"""What VMs take of the instances of a resource (Haizea 2.1, REQ-002).

A host can have several instances of a resource, of processors say.  Each part
of what a VM needs is taken from one of them, and different parts of a VM from
different ones; none is put together from two.

VMs that are alike are dealt with at once, since only how much is taken of an
instance counts, not whose it is: if no instance has more parts than there are
VMs, they can be given to VMs so that none has two on one instance (a
bipartite multigraph has as many edge colours as its highest degree; König).
"""

import numpy as np

from secondary_scheduler.leases.scheduling.steps import compiled
from secondary_scheduler.leases.scheduling.types import Ints


@compiled
def _deal(left: Ints, parts: Ints, vms: int, taken: Ints) -> int:
    """Deal VMs' parts to the instances of a host, the first being filled.

    ``left`` is what these have and ``taken`` becomes what is taken of them,
    shape (instances,).  Return how much found no room.
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
def fitting(left: Ints, parts: Ints, room: Ints) -> Ints:
    """Return how many VMs fit on each host, of at most ``room``.

    ``left``, shape (hosts, instances), is what instances have, ``parts`` what
    a VM takes of different ones, the most first.  If these are alike it is as
    many as can be.
    """
    found = np.zeros_like(room)
    taken = np.empty(left.shape[1], dtype=np.int64)
    for host in range(len(room)):
        while found[host] < room[host] and _deal(
                left[host], parts, found[host] + 1, taken) == 0:
            found[host] += 1
    return found


@compiled
def takes(left: Ints, parts: Ints, vms: Ints) -> Ints:
    """Return what VMs, shape (hosts,), take of instances.

    Shape (hosts, instances), as ``left`` and ``parts`` in ``fitting``.  What
    finds no room is taken of the first, which has less than nothing then.
    """
    found = np.empty(left.shape, dtype=np.int64)
    for host in range(len(vms)):
        short = _deal(left[host], parts, vms[host], found[host])
        found[host, 0] += short
    return found
