# SPDX-License-Identifier: Apache-2.0

"""Queue of waiting leases, in the order in which they are served.

The order is one of ``model.lease_order``.
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
    due: tuple[Instance, ...]


def priority(lease: LeaseMembers, size: int) -> float:
    """Return the priority of a lease of ``size`` instances.

    It is ``owner_priority + 0.5 size`` unless one is given (see
    reference/errata, Boettger, priority).
    """
    if lease.priority is not None:
        return lease.priority
    return lease.owner_priority + SIZE_WEIGHT * size


def rank_lease(cluster: Cluster, lease: str, order: QueueOrder
               ) -> tuple[float, float]:
    """Return the rank of a lease; the lowest is served first.

    It follows from the arrival of the lease, if that is known, so that all
    decisions and the lease engine have one order.  A lease that is missing in
    ``cluster.leases`` has the lowest priority of its instances.
    """
    instances = cluster.members(lease)
    known = cluster.leases.get(lease) or LeaseMembers(
        lease, min(one.priority for one in instances))
    age = known.waited_s if known.age_s is None else known.age_s
    return order.rank(priority(known, len(instances)), -age)


def queue(cluster: Cluster, order: QueueOrder) -> list[WaitingLease]:
    """Return the waiting leases, in the order in which they are served.

    A lease waits if its state says so, or if some of its instances were
    preempted.
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
        if due and not any(one.state is InstanceState.BUSY or one.blocked
                           or one.cooling_down or one.return_failed
                           for one in instances):
            waiting.append(WaitingLease(name, due))
    return sorted(waiting, key=lambda one: (
        rank_lease(cluster, one.lease, order), one.lease))
