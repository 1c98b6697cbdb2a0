"""Which server of a lease goes on which host."""

from collections import Counter
from collections.abc import Sequence

from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.scheduling.types import Ints


def hosts(record: LeaseRecord, vms: Sequence[Ints], names: Sequence[str]
          ) -> list[str]:
    """Return the host of each node of a lease that is so placed.

    Who is on a host stays there, the others fill up what is left, in the
    order of the hosts.
    """
    left = [Counter({names[host]: int(count[host])
                     for host in count.nonzero()[0].tolist()})
            for count in vms]
    found: dict[int, str] = {}
    for index, number in record.sets():
        host = record.nodes[number].host
        if host is not None and left[index][host] > 0:
            left[index][host] -= 1
            found[number] = host
    free = [sorted(one.elements(), key=names.index) for one in left]
    return [found.get(number) or free[index].pop(0)
            for index, number in record.sets()]
