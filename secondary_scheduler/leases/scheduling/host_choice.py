# SPDX-License-Identifier: Apache-2.0

"""Hosts on which a lease may begin, by placement constraints.

The caller derives them from the constraints and from the hosts of all other
instances.  They count until the lease has memory on its hosts.
"""

from collections.abc import Sequence
import dataclasses

import numpy as np

from secondary_scheduler.leases.scheduling.types import NEVER, Bools, Ints


@dataclasses.dataclass(frozen=True, eq=False)
class HostChoice:
    """Hosts on which the VMs of a lease may be, together.

    :param usable: hosts of each node set, arrays of shape (hosts,)
    :param groups: all VMs are on hosts of one group, arrays of shape
        (hosts,); the first group with room is used
    :param most: most VMs of the lease on one host
    """

    usable: tuple[Bools, ...]
    groups: tuple[Bools, ...]
    most: int = NEVER

    def admits(self, vms: Sequence[Ints]) -> bool:
        """Return whether placed VMs are on hosts of the choice.

        :param vms: for each node set the VMs on each host, shape (hosts,)
        """
        on = np.sum(vms, axis=0)
        return (all(not count[~usable].any()
                    for count, usable in zip(vms, self.usable, strict=True))
                and any(not on[~group].any() for group in self.groups)
                and int(on.max(initial=0)) <= self.most)

    def masks(self, others: Sequence[Bools | None], group: Bools
              ) -> list[Bools | None]:
        """Return the usable hosts of each node set within a group.

        :param others: usable hosts for other reasons (None: all)
        """
        return [usable & group if other is None else usable & group & other
                for usable, other in zip(self.usable, others, strict=True)]
