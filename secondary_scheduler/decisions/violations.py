# SPDX-License-Identifier: Apache-2.0

"""Policy violations, their deadlines, and the cost profile of the search."""

import dataclasses
import math

from secondary_scheduler.decisions import what_if
from secondary_scheduler.estimation.feasibility import Overheads
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import HostPolicy


@dataclasses.dataclass(frozen=True)
class Violation:
    """A violated policy of a place; ``deadline_s`` is in seconds from now."""

    place: str
    policy: HostPolicy
    deadline_s: float


@dataclasses.dataclass(frozen=True)
class CostProfile:
    """Rules by which the search judges plans.

    :param deadline_guard: seconds between the last operation and the time
        limit, since the host helps itself one second before the limit (see
        reference/errata, Boettger, decision deadline)
    :param schedule: gives operations their times
    :param subset_leases: number of lowest leases of which the search tries
        subsets
    :param moves_first: try to end violations by migrations alone first
    :param preempts: try preemptions as well
    :param overheads: use of hosts by operations
    :param agents_hold: agents keep policies in time, by taking instances to
        the floor at no loss; operations then have no deadline, and no
        instance is stopped for lack of time
    """

    deadline_guard: float = 2.0
    schedule: what_if.Schedule = what_if.in_order
    subset_leases: int = 10
    moves_first: bool = True
    preempts: bool = True
    overheads: Overheads = dataclasses.field(default_factory=Overheads)
    agents_hold: bool = False

    def deadline(self, policy: HostPolicy) -> float:
        """Return the seconds left to end a violation (section 4.4.3.1)."""
        if self.agents_hold:
            return math.inf
        return (policy.timelimit - max(policy.sensitivity, policy.failed)
                - self.deadline_guard)


def with_agents(limits: LoadLimits) -> CostProfile:
    """Return the profile of a cloud with agents.

    Overheads of operations do not count, since agents throttle instances for
    the seconds in which an operation uses CPU.  An instance that did not
    migrate because of overheads would have to be preempted.
    """
    return CostProfile(
        overheads=Overheads({}, {}, newcomer=limits.entry_share),
        agents_hold=True,
    )


#: The rules of Boettger 2012: no guard, all operations begin at the same time,
#: and lower leases may be preempted where migrations would suffice.
THESIS = CostProfile(deadline_guard=0.0, schedule=what_if.at_once,
                     moves_first=False,
                     overheads=Overheads(limits_newcomers=True))
