"""The queue: leases that wait to run, in the order in which they are served.

The order is that of the queue of leases (``leases.ordering``).  A lease that
finds no room does not keep the next from trying.
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

#: What each instance of a lease adds to its priority (Boettger R26).
SIZE_WEIGHT = 0.5


@dataclasses.dataclass(frozen=True)
class WaitingLease:
    """A lease in the queue, and its instances that are to come up."""

    lease: str
    rank: tuple[float, float]
    due: tuple[Instance, ...]


def priority(lease: LeaseMembers, size: int) -> float:
    """Return the priority of a lease of ``size`` instances.

    ``owner_priority + 0.5 size`` (R26), unless one is given (X26).
    """
    if lease.priority is not None:
        return lease.priority
    return lease.owner_priority + SIZE_WEIGHT * size


def queue(cluster: Cluster, order: QueueOrder) -> list[WaitingLease]:
    """Return the leases that wait, in the order in which they are served.

    A lease waits if it says so, or if some of its instances were preempted;
    one of which only its instances are known has the lowest of their
    priorities.
    """
    waiting = []
    for name in {one.lease for one in cluster.instances.values()
                 if one.state in DOWN}:
        instances = cluster.members(name)
        known = cluster.leases.get(name)
        queued = known is not None and known.state in QUEUED
        due = tuple(one for one in instances if one.state in DOWN
                    and (queued or one.preempted))
        # Half a lease does not run: who is busy or rests is waited for.
        if not due or any(one.state is InstanceState.BUSY or one.blocked
                          or one.cooling_down or one.return_failed
                          for one in instances):
            continue
        lease = known or LeaseMembers(
            name, min(one.priority for one in instances))
        waiting.append(WaitingLease(name, order.rank(
            priority(lease, len(instances)), -lease.waited_s), due))
    return sorted(waiting, key=lambda one: (one.rank, one.lease))
