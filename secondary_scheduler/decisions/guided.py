# SPDX-License-Identifier: Apache-2.0

"""Decision ``guided``: search by Boettger 2012, section 4.4.3.

The guided search ends violations.  A host to drain has a policy that allows
no secondary, without a deadline, as in the thesis.  Preempted instances
return in the order of the queue (see ``returns``).
"""

from collections.abc import Callable
import dataclasses
import math
import sys

from secondary_scheduler.decisions import base, ordering, returns
from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.decisions.repair import Repair
from secondary_scheduler.decisions.search import Search
from secondary_scheduler.decisions.violations import (
    CostProfile,
    Violation,
    with_agents,
)
from secondary_scheduler.decisions.what_if import WhatIf
from secondary_scheduler.estimation.durations import DurationModel
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import Cluster, HostPolicy
from secondary_scheduler.model.lease_order import PRIORITY, QueueOrder
from secondary_scheduler.plans.operations import Operation, Plan

#: Policy of a host to drain; it never becomes invalid.
DRAINED = HostPolicy('slots <= 0', 'slots', 0, sys.maxsize, 1, True)


class GuidedDecision(base.Decision):
    """End violations by migration, else by preempting the lowest leases.

    Each means is used only if it is in time.  Drains and returns are decided
    as well.
    """

    def __init__(self, limits: LoadLimits | None = None,
                 durations: DurationModel | None = None,
                 profile: CostProfile | None = None,
                 elapsed: Callable[[], float] = lambda: 0.0, *,
                 order: QueueOrder = PRIORITY) -> None:
        """Take the options.

        :param profile: by default that of a cloud with agents
        :param elapsed: returns the seconds since the decision began; by
            default 0, so that the same cluster always gives the same plan
        """
        super().__init__(limits, durations, order=order)
        self.profile = profile or with_agents(self.limits)
        self.elapsed = elapsed

    def decide(self, cluster: Cluster, request: base.DecisionRequest,
               budget: base.Budget) -> Plan:
        """Return the plan for a request (see ``base.Decision``)."""
        hosts = sorted(name for name in cluster.hosts
                       if not request.hosts or name in request.hosts)
        if request.kind == 'return':
            draft = Draft(cluster, self.limits)
            returns.return_leases(draft, hosts, budget, self.order)
            return Plan(
                ordering.arrange_steps(cluster, draft.steps, self.limits,
                                       self.durations),
                truncated=budget.truncated)
        if request.kind == 'drain':
            drained = hosts if request.hosts else []
            found = [Violation(name, DRAINED, math.inf) for name in drained]
            left: set[str] = set()
        else:
            found, left = self._violations(cluster, hosts)
        search = self.search(cluster, found, budget)
        if self.profile.moves_first and any(
                one.place in cluster.hosts for one in found):
            with budget.half() as part:
                Repair(search.draft, search.preview, found, part,
                       self.profile.preempts).run()
        if self.profile.preempts:
            search.run()
        operations = search.preview.operations(search.draft.steps)
        late = search.late(search.preview.works(search.draft.steps))
        left |= {one.place for one in (*late, *search.failing(),
                                       *search.lost)}
        return Plan(self._with_deadlines(cluster, operations, found),
                    tuple(sorted(left)), budget.truncated)

    def search(self, cluster: Cluster, violations: list[Violation],
               budget: base.Budget) -> Search:
        """Return a search that has not begun yet."""
        return Search(
            Draft(cluster, self.limits),
            WhatIf(cluster, self.limits, self.durations,
                   self.profile.schedule, self.profile.overheads),
            violations, self.profile, budget, self.elapsed)

    def _violations(self, cluster: Cluster, hosts: list[str]
                    ) -> tuple[list[Violation], set[str]]:
        """Return violations, and the violated hosts to leave to their agents.

        Dynamic policies of a host that is cooling down are left to the agent
        (Boettger 2012, section 4.4.6.3).
        """
        found, left = [], set()
        for name in sorted({place for host in hosts
                            for place in cluster.places(host)}):
            due = _due(cluster, name)
            if cluster.at(name).violated and not due:
                left.add(name)
            found += [Violation(name, policy, self.profile.deadline(policy))
                      for policy in due]
        return found, left

    def _with_deadlines(
            self, cluster: Cluster, operations: tuple[Operation, ...],
            violations: list[Violation]) -> tuple[Operation, ...]:
        """Return the operations with the deadlines that they meet.

        An operation has a deadline if its instance leaves a violated place
        and the schedule of the plan meets the deadline of that place.
        """
        found = []
        urgent = {one.place for one in violations if one.deadline_s < math.inf}
        for one in operations:
            left = [] if one.source is None else [
                place for place in cluster.places(one.source)
                if one.target not in cluster.hosts_of(place)]
            deadline = math.inf if urgent.isdisjoint(left) else min(
                self.profile.deadline(policy) for place in left
                for policy in _due(cluster, place))
            found.append(
                dataclasses.replace(one, deadline_s=deadline)
                if one.start_s + one.duration_s <= deadline < math.inf
                else one)
        return tuple(found)


def _due(cluster: Cluster, name: str) -> list[HostPolicy]:
    """Return the violated policies of a place that operations must end."""
    cooling_down = name in cluster.hosts and cluster.hosts[name].blocked
    return [policy for policy in cluster.at(name).policies
            if policy.violated and (policy.static or not cooling_down)]
