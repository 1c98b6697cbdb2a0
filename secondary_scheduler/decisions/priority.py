# SPDX-License-Identifier: Apache-2.0

"""Decision ``priority``: the highest-priority leases keep running.

This is a greedy pass without a search over sets of leases, quick on clusters
of any size.  Decision ``guided`` has the full search of Boettger 2012,
section 4.4.3.
"""

from secondary_scheduler.decisions import base, ordering, preemption, returns
from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.model.cluster import Cluster
from secondary_scheduler.plans.operations import Plan


class PriorityDecision(base.Decision):
    """Keep leases by priority, migrate the next, preempt the rest."""

    def decide(self, cluster: Cluster, request: base.DecisionRequest,
               budget: base.Budget) -> Plan:
        """Return the plan for a request (see ``base.Decision``)."""
        draft = Draft(cluster, self.limits)
        hosts = sorted(name for name in cluster.hosts
                       if not request.hosts or name in request.hosts)
        unresolved: tuple[str, ...] = ()
        if request.kind == 'drain':
            unresolved = preemption.relieve_hosts(
                draft, hosts if request.hosts else [], draft.rooms.running,
                budget)
        elif request.kind == 'preempt':
            violated = [name for name in hosts
                        if cluster.hosts[name].violated]
            due = [name for name in violated
                   if preemption.is_due(cluster.hosts[name])]
            left = preemption.relieve_hosts(
                draft, due, draft.rooms.surplus, budget)
            # Policies on items are for the search of ``guided``.
            shared = {place for name in hosts
                      for place in cluster.places(name)[1:]
                      if cluster.at(place).violated}
            unresolved = (*(name for name in violated
                            if name in left or name not in due),
                          *sorted(shared))
        else:
            returns.return_leases(draft, hosts, budget, self.order)
        operations = ordering.arrange_steps(
            cluster, draft.steps, self.limits, self.durations)
        return Plan(operations, unresolved, budget.truncated)
