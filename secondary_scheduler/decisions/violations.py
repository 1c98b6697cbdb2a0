"""What has to be ended, by when, and by which rules that is counted."""

import dataclasses
import math

from secondary_scheduler.decisions import what_if
from secondary_scheduler.estimation.feasibility import Overheads
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import HostPolicy


@dataclasses.dataclass(frozen=True)
class Violation:
    """A policy of a place that has to hold by a time, in seconds."""

    place: str
    policy: HostPolicy
    deadline_s: float


@dataclasses.dataclass(frozen=True)
class CostProfile:
    """How the search counts.

    ``deadline_guard`` seconds are kept between the last operation and the
    timelimit, since the host helps itself one second before it (X15);
    ``schedule`` gives operations their times; the LOW order takes the
    ``subset_leases`` lowest leases.  ``moves_first`` tries to end violations
    by migrations alone before anything else; without ``preempts`` that is
    all that is tried.  Where ``agents_hold`` policies in time, by taking
    instances to the floor at no loss, operations have no deadline, and
    nothing is stopped for want of time.
    """

    deadline_guard: float = 2.0
    schedule: what_if.Schedule = what_if.in_order
    subset_leases: int = 10
    moves_first: bool = True
    preempts: bool = True
    overheads: Overheads = dataclasses.field(default_factory=Overheads)
    agents_hold: bool = False

    def deadline(self, policy: HostPolicy) -> float:
        """Return the seconds left to end a violation (Boettger R22, X15)."""
        if self.agents_hold:
            return math.inf
        return (policy.timelimit - max(policy.sensitivity, policy.failed)
                - self.deadline_guard)


def with_agents(limits: LoadLimits) -> CostProfile:
    """Return how to count in a cloud: an agent on each host holds policies.

    It throttles instances for the seconds in which an operation uses CPU, so
    overheads keep nobody from migrating: who stayed for that would have to be
    preempted.
    """
    return CostProfile(
        overheads=Overheads({}, {}, newcomer=limits.entry_share),
        agents_hold=True,
    )


#: As in the thesis: no guard, all operations begin at the same time, and a
#: higher lease may cost a lower one its place where moving others would do.
THESIS = CostProfile(deadline_guard=0.0, schedule=what_if.at_once,
                     moves_first=False)
