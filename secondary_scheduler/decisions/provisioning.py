# SPDX-License-Identifier: Apache-2.0

"""Decision ``provisioning``: start waiting leases.

It follows Boettger 2012, section 4.4.2:

* One pass goes over the whole queue (``queue_pass``) by priority, and first
  come, first served among equals.
* The first feasible host is taken.  Nothing is planned ahead, and no running
  lease is preempted.

Hosts are tried in the order of their names, as in the thesis, or by
unclaimed CPU.

An instance with a host starts there only, as Nova requires.  One without a
host may start on any: it is shelved, was never started, or its platform frees
the host of a suspended instance.
"""

from collections.abc import Callable

from secondary_scheduler.decisions import base
from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.decisions.queue_pass import serve_queue
from secondary_scheduler.decisions.violations import CostProfile
from secondary_scheduler.decisions.waiting import WaitingLease, queue
from secondary_scheduler.decisions.what_if import Feasibility, WhatIf
from secondary_scheduler.estimation.durations import DurationModel
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import Cluster, Instance
from secondary_scheduler.model.lease_order import PRIORITY, QueueOrder
from secondary_scheduler.plans.operations import Plan


class ProvisioningDecision(base.Decision):
    """Start leases by priority, on the first feasible hosts.

    With ``spreads``, hosts with the most CPU that running instances do not
    claim are tried first, as by the weigher in Nova.  Room alone says little
    about the CPU of a newcomer, since agents throttle all instances down to
    the minimum share.
    """

    def __init__(self, limits: LoadLimits | None = None,
                 durations: DurationModel | None = None,
                 profile: CostProfile | None = None, *,
                 order: QueueOrder = PRIORITY,
                 spreads: bool = True) -> None:
        super().__init__(limits, durations, order=order)
        self.profile = profile or CostProfile()
        self.spreads = spreads

    def decide(self, cluster: Cluster, request: base.DecisionRequest,
               budget: base.Budget) -> Plan:
        """Return the plan for a ``return`` (see ``base.Decision``).

        The plan is empty for other requests, since they need preemption or
        migration.
        """
        hosts = {name for name in cluster.hosts
                 if not request.hosts or name in request.hosts}
        if request.kind != 'return':
            asked = hosts if request.kind == 'preempt' or request.hosts else ()
            return Plan(unresolved=tuple(sorted(
                name for name in asked if request.kind == 'drain'
                or cluster.hosts[name].violated)))
        draft = Draft(cluster, self.limits)
        preview = WhatIf(cluster, self.limits, self.durations,
                         self.profile.schedule, self.profile.overheads)
        open_hosts = [
            name for name in sorted(hosts)
            if cluster.is_open(name)
            and preview.known(cluster.hosts[name])]

        def ordered() -> list[str]:
            return sorted(open_hosts, key=draft.rooms.unclaimed,
                          reverse=True) if self.spreads else open_hosts

        timed: set[str] = set()
        serve_queue(queue(cluster, self.order), lambda lease: draft.attempt(
            lambda: _start(draft, preview, lease, ordered, budget, timed)))
        return Plan(preview.operations(draft.steps),
                    truncated=budget.truncated)


def _start(draft: Draft, preview: WhatIf, lease: WaitingLease,
           hosts: Callable[[], list[str]], budget: base.Budget,
           timed: set[str]) -> bool:
    """Add the steps that start a lease; return False if it is infeasible.

    Leases that were accepted earlier in the pass must stay feasible (Boettger
    2012, section 4.4.2).

    :param timed: hosts on which the accepted steps are feasible only as
        scheduled, so that later leases can spoil them; those of this lease
        are added
    """
    last = ''
    for one in lease.due:
        feasibility = _place(draft, preview, one, hosts(), budget)
        if not feasibility:
            return False
        last = str(draft.steps[-1].new.host)
        if feasibility is Feasibility.FEASIBLE_AS_SCHEDULED:
            timed.add(last)
    # The host of the last instance was checked with these very steps.
    return all(preview.feasibility(host, draft.steps)
               for host in sorted(timed - {last}))


def _place(draft: Draft, preview: WhatIf, instance: Instance,
           hosts: list[str], budget: base.Budget) -> Feasibility:
    """Start an instance on the first feasible host, if there is one."""
    # Nova resumes, starts and unshelves an instance on its own host.
    for host in hosts if instance.host is None else [instance.host]:
        if not budget.spend():
            return Feasibility.INFEASIBLE
        if host not in hosts or (instance.host is None and not (
                draft.rooms.has_inventory(host, instance)
                and draft.rooms.satisfies_constraints(host, instance))):
            continue
        begun = len(draft.steps)
        draft.activate(instance, host)
        feasibility = preview.feasibility(host, draft.steps)
        if feasibility:
            return feasibility
        draft.rewind(begun)
    return Feasibility.INFEASIBLE
