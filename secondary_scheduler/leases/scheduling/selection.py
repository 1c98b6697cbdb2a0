# SPDX-License-Identifier: Apache-2.0

"""Host selection policies, loaded as stevedore drivers.

Namespace ``secondary_scheduler.lease_policies.host_selection``.
"""

import typing

import numpy as np
from numpy.typing import NDArray

from secondary_scheduler.leases.scheduling.steps import compiled
from secondary_scheduler.leases.scheduling.types import Ints


class HostSelection(typing.Protocol):
    """Policy that orders hosts."""

    def order(self, hosts: Ints, tenants: Ints, free: Ints, unchanged: Ints,
              distance: Ints) -> Ints:
        """Return hosts in the order in which they are filled.

        :param hosts: the hosts to order, ascending indices, shape (n,)
        :param tenants: number of leases on each host of the site
        :param free: free capacity of all hosts, shape (resources, hosts)
        :param unchanged: seconds until the next change on each host, at most
            the duration of the lease
        :param distance: distance of the lease's image from each host: 0
            present, 1 in transfer, 2 absent
        """


class Quietest:
    """Prefer few leases, much free capacity, a near image, a late change.

    Sotomayor 2010, sections 5.1.1 and 6.3.  Equal hosts keep their order.
    """

    def __init__(self, options: typing.Any = None) -> None:
        """Ignore options."""

    def order(self, hosts: Ints, tenants: Ints, free: Ints, unchanged: Ints,
              distance: Ints) -> Ints:
        """Return hosts with the fewest leases first."""
        return hosts[np.lexsort((
            -unchanged[hosts], distance[hosts],
            -_free_shares(hosts, free), tenants[hosts]))]


class Fullest(Quietest):
    """Prefer the fullest hosts, to keep as few as possible in use."""

    def order(self, hosts: Ints, tenants: Ints, free: Ints, unchanged: Ints,
              distance: Ints) -> Ints:
        """Return the fullest hosts first."""
        return hosts[np.lexsort((
            -unchanged[hosts], distance[hosts],
            _free_shares(hosts, free)))]


class InOrder(Quietest):
    """Prefer hosts by index (Haizea: no policy)."""

    def order(self, hosts: Ints, tenants: Ints, free: Ints, unchanged: Ints,
              distance: Ints) -> Ints:
        """Return hosts by index."""
        return hosts


@compiled
def _free_shares(hosts: Ints, free: Ints) -> NDArray[np.float64]:
    """Return the free capacity of hosts, summed over normalized resources."""
    found = np.zeros(len(hosts))
    for resource in range(len(free)):
        most = max(free[resource].max(), 1)
        for k, host in enumerate(hosts):
            found[k] += free[resource, host] / most
    return found
