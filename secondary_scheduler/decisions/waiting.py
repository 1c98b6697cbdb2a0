# SPDX-License-Identifier: Apache-2.0

"""Queue of waiting leases, in the order in which they are served.

The order is one of ``model.lease_order``.  A lease without room does not
block the next ones.
"""

import dataclasses

from secondary_scheduler.model.cluster import (
    DOWN,
    Cluster,
    Instance,
    InstanceState,
    LeaseMembers,
)
from secondary_scheduler.model.lease_order import QueueOrder
from secondary_scheduler.model.lease_states import QUEUED

#: Weight of a lease's size in its priority (Boettger 2012, section 4.4.2).
SIZE_WEIGHT = 0.5


@dataclasses.dataclass(frozen=True)
class WaitingLease:
    """A waiting lease; ``due`` are the instances to start."""

    lease: str
    rank: tuple[float, float]
    due: tuple[Instance, ...]


def priority(lease: LeaseMembers, size: int) -> float:
    """Return the priority of a lease of ``size`` instances.

    It is ``owner_priority + 0.5 size`` unless one is given (see
    reference/errata, Boettger, priority).
    """
    if lease.priority is not None:
        return lease.priority
    return lease.owner_priority + SIZE_WEIGHT * size


def queue(cluster: Cluster, order: QueueOrder) -> list[WaitingLease]:
    """Return the waiting leases, in the order in which they are served.

    A lease waits if its state says so, or if some of its instances were
    preempted.  A lease that is missing in ``cluster.leases`` has the lowest
    priority of its instances.
    """
    waiting = []
    for name in {one.lease for one in cluster.instances.values()
                 if one.state in DOWN}:
        instances = cluster.members(name)
        known = cluster.leases.get(name)
        queued = known is not None and known.state in QUEUED
        due = tuple(one for one in instances if one.state in DOWN
                    and (queued or one.preempted))
        # A lease starts as a whole, so it waits for excluded members.
        if not due or any(one.state is InstanceState.BUSY or one.blocked
                          or one.cooling_down or one.return_failed
                          for one in instances):
            continue
        lease = known or LeaseMembers(
            name, min(one.priority for one in instances))
        waiting.append(WaitingLease(name, order.rank(
            priority(lease, len(instances)), -lease.waited_s), due))
    return sorted(waiting, key=lambda one: (one.rank, one.lease))
