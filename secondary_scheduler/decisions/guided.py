"""Decision ``guided``: the search of Boettger 3.6 behind the interface.

Violations are ended by the guided search; a drained host is one whose policy
allows no secondary, without a deadline (the thesis clears hosts so).  What
was preempted comes back as with the decision ``priority``.
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

#: What a drain asks for: it is never invalid, however long it takes.
DRAINED = HostPolicy('slots <= 0', 'slots', 0, sys.maxsize, 1, True)


class GuidedDecision(base.Decision):
    """Protect the highest leases, by the gentlest means that are in time."""

    def __init__(self, limits: LoadLimits | None = None,
                 durations: DurationModel | None = None,
                 profile: CostProfile | None = None,
                 elapsed: Callable[[], float] = lambda: 0.0, *,
                 order: QueueOrder = PRIORITY) -> None:
        """Take the options.

        ``profile`` is by default that of a cloud whose agents hold policies;
        ``elapsed`` returns the seconds since the decision began; by default
        none pass, so that the same cluster always gives the same plan.
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
            returns.bring_back(draft, hosts, budget, self.order)
            return Plan(ordering.arrange(cluster, draft.steps, self.limits,
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
        return Plan(self._promised(cluster, operations, found),
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
        """Return what is violated, and the hosts to leave to their agents.

        A host that was operated on a moment ago has not settled, as far as
        dynamic policies go (Boettger 3.8).
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

    def _promised(self, cluster: Cluster, operations: tuple[Operation, ...],
                  violations: list[Violation]) -> tuple[Operation, ...]:
        """Return the operations with the deadlines that they keep.

        An operation promises something where it leaves a violated place and
        can be done in time, one thing after the other (X12).
        """
        promised = []
        asked = {one.place for one in violations if one.deadline_s < math.inf}
        for one in operations:
            left = [] if one.source is None else [
                place for place in cluster.places(one.source)
                if one.target not in cluster.hosts_of(place)]
            deadline = math.inf if asked.isdisjoint(left) else min(
                self.profile.deadline(policy) for place in left
                for policy in _due(cluster, place))
            promised.append(
                dataclasses.replace(one, deadline_s=deadline)
                if one.start_s + one.duration_s <= deadline < math.inf
                else one)
        return tuple(promised)


def _due(cluster: Cluster, name: str) -> list[HostPolicy]:
    """Return the policies of a place that are to be brought to hold now."""
    cooling_down = name in cluster.hosts and cluster.hosts[name].blocked
    return [policy for policy in cluster.at(name).policies
            if policy.violated and (policy.static or not cooling_down)]
