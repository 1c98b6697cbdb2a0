"""Host selection: on which hosts leases are put first.

Each is a driver that an operator chooses by name (stevedore namespace
``secondary_scheduler.lease_policies.host_selection``).
"""

import typing

import numpy as np
from numpy.typing import NDArray

from secondary_scheduler.leases.scheduling.steps import compiled
from secondary_scheduler.leases.scheduling.types import Ints


class HostSelection(typing.Protocol):
    """In which order hosts are filled."""

    def order(self, hosts: Ints, tenants: Ints, free: Ints, unchanged: Ints,
              distance: Ints) -> Ints:
        """Return some hosts' indices in the order in which they are filled.

        ``hosts``, shape (n,), are these, in ascending order.  Of all hosts
        ``tenants``, shape (hosts,), is how many leases are on each, ``free``,
        shape (resources, hosts), what is left there, ``unchanged`` for how
        many seconds nothing changes, as far as it matters, and ``distance``
        how far the lease's image is: 0 there, 1 on its way, 2 elsewhere.
        """


class Quietest:
    """Few leases, much free, the image near, no change for long.

    Haizea 4.2 and 4.9; hosts that are alike keep their order.
    """

    def __init__(self, options: typing.Any = None) -> None:
        """Take no notice of options."""

    def order(self, hosts: Ints, tenants: Ints, free: Ints, unchanged: Ints,
              distance: Ints) -> Ints:
        """Return the emptiest hosts first."""
        return hosts[np.lexsort((
            -unchanged[hosts], distance[hosts], -_room(hosts, free),
            tenants[hosts]))]


class Fullest(Quietest):
    """The fullest hosts that will do, so that as few as can be are in use."""

    def order(self, hosts: Ints, tenants: Ints, free: Ints, unchanged: Ints,
              distance: Ints) -> Ints:
        """Return the fullest hosts first."""
        return hosts[np.lexsort((
            -unchanged[hosts], distance[hosts], _room(hosts, free)))]


class InOrder(Quietest):
    """Hosts as they come: what Haizea calls no policy."""

    def order(self, hosts: Ints, tenants: Ints, free: Ints, unchanged: Ints,
              distance: Ints) -> Ints:
        """Return hosts by their indices."""
        return hosts


@compiled
def _room(hosts: Ints, free: Ints) -> NDArray[np.float64]:
    """Return how much is free on some hosts, all resources counting alike."""
    found = np.zeros(len(hosts))
    for resource in range(len(free)):
        most = max(free[resource].max(), 1)
        for k, host in enumerate(hosts):
            found[k] += free[resource, host] / most
    return found
