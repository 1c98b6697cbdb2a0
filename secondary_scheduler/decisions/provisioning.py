"""Decision ``provisioning``: let waiting leases run (Boettger 3.5).

One pass over the whole queue, the highest priority first and among equals
who came first.  A lease runs as a whole or not at all; one that finds no room
does not keep the next from trying (backfill).  The first host that fits is
taken, even if that keeps others out: nothing is planned ahead, and nobody who
runs has to make room.  Hosts are asked in the order of their names, as the
thesis does, or those first that have the most CPU to spare.

An instance that has a host comes up there and nowhere else, as Nova has it;
one that has none (shelved, never started, or of a platform where suspending
frees the host) may come up on any.
"""

from collections.abc import Callable

from secondary_scheduler.decisions import base
from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.decisions.violations import CostProfile
from secondary_scheduler.decisions.waiting import WaitingLease, queue
from secondary_scheduler.decisions.what_if import Feasibility, WhatIf
from secondary_scheduler.estimation.durations import DurationModel
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import Cluster, Instance
from secondary_scheduler.model.lease_order import PRIORITY, QueueOrder
from secondary_scheduler.plans.operations import Plan


class ProvisioningDecision(base.Decision):
    """First come, first served by priority, first fit, all or nothing.

    Where it ``spreads`` an instance comes up where those who run could leave
    it the most CPU, as Nova's weigher of ours has it; agents squeeze all to
    their least share, so that room alone says little of what a newcomer gets.
    """

    def __init__(
        self,
        limits: LoadLimits | None = None,
        durations: DurationModel | None = None,
        profile: CostProfile | None = None,
        *,
        order: QueueOrder = PRIORITY,
        spreads: bool = True,
    ) -> None:
        super().__init__(limits, durations, order=order)
        self.profile = profile or CostProfile()
        self.spreads = spreads

    def decide(self, cluster: Cluster, request: base.DecisionRequest,
               budget: base.Budget) -> Plan:
        """Return the plan for a ``return`` (see ``base.Decision``).

        Other requests want somebody to give way, which is not for a
        provisioner to decide: it plans nothing.
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
        for lease in queue(cluster, self.order):
            _provision(draft, preview, lease, ordered, budget, timed)
        return Plan(preview.operations(draft.steps),
                    truncated=budget.truncated)


def _provision(draft: Draft, preview: WhatIf, lease: WaitingLease,
               hosts: Callable[[], list[str]], budget: base.Budget,
               timed: set[str]) -> None:
    """Bring a lease up, or leave everything as it is.

    What the pass has accepted before counts: later leases must not spoil it
    (Boettger R28).  They cannot but on ``timed`` hosts, which bear what comes
    because of when it comes; those of this lease are added.
    """
    begun = len(draft.steps)
    last = ''
    for one in lease.due:
        found = _place(draft, preview, one, hosts(), budget)
        if not found:
            draft.rewind(begun)
            return
        last = str(draft.steps[-1].new.host)
        if found is Feasibility.FEASIBLE_AS_SCHEDULED:
            timed.add(last)
    # The last one's host has been asked with these very operations.
    if not all(preview.feasibility(host, draft.steps)
               for host in sorted(timed - {last})):
        draft.rewind(begun)


def _place(draft: Draft, preview: WhatIf, instance: Instance,
           hosts: list[str], budget: base.Budget) -> Feasibility:
    """Bring an instance up on the first host that bears it, if one does."""
    # Nova resumes, starts and unshelves in place what still has a host.
    for host in hosts if instance.host is None else [instance.host]:
        if not budget.spend():
            return Feasibility.INFEASIBLE
        if host not in hosts or (instance.host is None and not (
                draft.rooms.has_inventory(host, instance)
                and draft.rooms.satisfies_anti_affinity(host, instance))):
            continue
        begun = len(draft.steps)
        draft.bring_up(instance, host)
        found = preview.feasibility(host, draft.steps)
        if found:
            return found
        draft.rewind(begun)
    return Feasibility.INFEASIBLE
