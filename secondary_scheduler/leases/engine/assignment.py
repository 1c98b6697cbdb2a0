# SPDX-License-Identifier: Apache-2.0

"""Assignment of the nodes of a lease to hosts."""

from collections import Counter
from collections.abc import Sequence

from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.scheduling.types import Ints


def assign_hosts(record: LeaseRecord, vms: Sequence[Ints],
                 names: Sequence[str]) -> list[str]:
    """Return the host of each node.

    Servers that already have a host keep it; the remaining nodes fill the
    hosts in order.

    :param vms: for each node set, the number of VMs on each host.
    :param names: names of the hosts.
    """
    left = [Counter({names[host]: int(count[host])
                     for host in count.nonzero()[0].tolist()})
            for count in vms]
    found: dict[int, str] = {}
    for index, number in record.numbered_nodes():
        host = record.nodes[number].host
        if host is not None and left[index][host] > 0:
            left[index][host] -= 1
            found[number] = host
    free = [sorted(one.elements(), key=names.index) for one in left]
    return [found.get(number) or free[index].pop(0)
            for index, number in record.numbered_nodes()]
