# SPDX-License-Identifier: Apache-2.0

"""Room on hosts, under their policies and in their inventory.

All decisions share this arithmetic.  A host has room for n secondaries if::

    primary + share * n <= threshold - margin     (cpu, net, disk policies)
    n <= threshold                                (slots policies)

and if the policies hold with what all instances are known to use, which is
the same amount on any host.

The *minimum* share decides whether local means suffice.  The *useful* share
decides whether another instance may come, and how many may stay where local
means did not suffice.  The gap between the two is a hysteresis.  Use counts in
the same way before and after.  So under constant load no operation is planned
(Boettger 2012, section 4.4.6.3).
"""

import dataclasses
import sys

from secondary_scheduler.model.cluster import Host, HostPolicy, InstanceState
from secondary_scheduler.model.resources import UNTHROTTLED

UNLIMITED = sys.maxsize

#: States in which an instance may use its host, unknown ones included.
RUNNING = frozenset(
    {InstanceState.ACTIVE, InstanceState.BUSY, InstanceState.OTHER})

#: Rounding error of sums of percentages.
EPSILON = 1e-9


@dataclasses.dataclass(frozen=True)
class LoadLimits:
    """The options that bound a host's load, shares in percent of the host.

    ``lanes`` is the number of concurrent operations on one host.
    """

    minimum_share: float = 5.0
    useful_share: float = 10.0
    margin: float = 1.0
    lanes: int = 1

    @property
    def entry_share(self) -> float:
        """Share that must be free for another instance."""
        return max(self.minimum_share, self.useful_share)


def can_throttle(policy: HostPolicy) -> bool:
    """Return whether an agent can limit each instance to a share."""
    return policy.resource not in UNTHROTTLED


def planned_limit(policy: HostPolicy, margin: float) -> float:
    """Return the planned limit of use; the margin applies to CPU only."""
    return policy.threshold - (margin if policy.resource == 'cpu' else 0.0)


def _allowed(policy: HostPolicy, primary: float, share: float,
             margin: float) -> int:
    if policy.resource == 'slots':
        return int(policy.threshold)
    if not can_throttle(policy):
        return UNLIMITED    # see ``Rooms.admits``
    free = planned_limit(policy, margin) - primary
    if free < -EPSILON:
        return 0
    return int(free / share + EPSILON) if share > 0 else UNLIMITED


def capacity(host: Host, share: float, margin: float) -> int:
    """Return the number of secondaries for which a host has room.

    It is 0 for a host without policies, or if the primary's use of CPU or of
    another resource with a policy is unknown.

    :param share: share of each secondary in percent of the host
    """
    if host.primary_use('cpu') is None:
        return 0
    allowed = []
    for policy in host.policies:
        primary = 0.0 if policy.static else host.primary_use(policy.resource)
        allowed.append(0 if primary is None
                       else _allowed(policy, primary, share, margin))
    return min(allowed, default=0)
