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
import dataclasses

from secondary_scheduler.decisions import base
from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.decisions.outlook import Outlook
from secondary_scheduler.decisions.violations import Profile
from secondary_scheduler.estimation.durations import DurationModel
from secondary_scheduler.estimation.feasibility import Work
from secondary_scheduler.estimation.room import Limits
from secondary_scheduler.model.cluster import (
    DOWN,
    Cluster,
    Instance,
    Lease,
    State,
)
from secondary_scheduler.plans.operations import Plan

#: What each instance of a lease adds to its priority (Boettger R26).
SIZE_WEIGHT = 0.5


@dataclasses.dataclass(frozen=True)
class Waiting:
    """A lease in the queue, and its instances that are to come up."""

    lease: str
    priority: float
    waited_s: float
    due: tuple[Instance, ...]

    @property
    def rank(self) -> tuple[float, float, str]:
        """Order in the queue, the first being served first."""
        return -self.priority, -self.waited_s, self.lease


def priority(lease: Lease, size: int) -> float:
    """Return the priority of a lease of ``size`` instances.

    ``owner_priority + 0.5 size`` (R26), unless one is given (X26).
    """
    if lease.priority is not None:
        return lease.priority
    return lease.owner_priority + SIZE_WEIGHT * size


def queue(cluster: Cluster, ageing: float = 0.0) -> list[Waiting]:
    """Return the leases that wait, in the order in which they are served.

    A lease waits if it says so, or if some of its instances were preempted;
    one of which only its instances are known has the lowest of their
    priorities.  ``ageing`` is added to a priority for each hour of waiting;
    without it the lowest may wait for ever (Boettger 3.5).
    """
    waiting = []
    for name in {one.lease for one in cluster.instances.values()
                 if one.state in DOWN}:
        instances = cluster.members(name)
        known = cluster.leases.get(name)
        queued = known is not None and known.queued
        due = tuple(one for one in instances if one.state in DOWN
                    and (queued or one.preempted))
        # Half a lease does not run: who is busy or blocked is waited for.
        if not due or any(one.state is State.BUSY or one.blocked
                          for one in instances):
            continue
        lease = known or Lease(name, min(one.priority for one in instances))
        waiting.append(Waiting(
            name, priority(lease, len(instances))
            + ageing * lease.waited_s / 3600, lease.waited_s, due))
    return sorted(waiting, key=lambda one: one.rank)


class ProvisioningDecision(base.Decision):
    """First come, first served by priority, first fit, all or nothing.

    ``ageing`` is in points of priority an hour.  Where it ``spreads`` an
    instance comes up where those who run could leave it the most CPU, as
    Nova's weigher of ours has it; agents squeeze all to their least share, so
    that room alone says little of what a newcomer gets.
    """

    def __init__(self, limits: Limits | None = None,
                 durations: DurationModel | None = None,
                 profile: Profile | None = None,
                 ageing: float = 0.0, spreads: bool = True) -> None:
        super().__init__(limits, durations)
        self.profile = profile or Profile()
        self.ageing = ageing
        self.spreads = spreads

    def decide(self, cluster: Cluster, request: base.Request,
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
        outlook = Outlook(cluster, self.limits, self.durations,
                          self.profile.schedule, self.profile.overheads)
        open_hosts = [
            name for name in sorted(hosts)
            if cluster.is_open(name)
            and outlook.known(cluster.hosts[name])]

        def ordered() -> list[str]:
            return sorted(open_hosts, key=draft.rooms.unclaimed,
                          reverse=True) if self.spreads else open_hosts

        for lease in queue(cluster, self.ageing):
            _provision(draft, outlook, lease, ordered, budget)
        return Plan(outlook.operations(draft.steps),
                    truncated=budget.truncated)


def _provision(draft: Draft, outlook: Outlook, lease: Waiting,
               hosts: Callable[[], list[str]], budget: base.Budget) -> None:
    """Bring a lease up, or leave everything as it is.

    What the pass has accepted before counts: later leases must not spoil it
    (Boettger R28).
    """
    begun = len(draft.steps)
    works: list[Work] | None = None
    for one in lease.due:
        works = _place(draft, outlook, one, hosts(), budget)
        if works is None:
            break
    # The last one's host has been asked with these very operations.
    touched = sorted({str(step.new.host) for step in draft.steps[:-1]}
                     - {str(step.new.host) for step in draft.steps[-1:]})
    if works is None or any(outlook.spoils(host, works) for host in touched):
        draft.rewind(begun)


def _place(draft: Draft, outlook: Outlook, instance: Instance,
           hosts: list[str], budget: base.Budget) -> list[Work] | None:
    """Bring an instance up on the first host that bears it.

    :returns: all operations with their times, None if no host does.
    """
    # Nova resumes, starts and unshelves in place what still has a host.
    for host in hosts if instance.host is None else [instance.host]:
        if not budget.spend():
            return None
        if host not in hosts or (instance.host is None and not (
                draft.rooms.stocks(host, instance)
                and draft.rooms.separate(host, instance))):
            continue
        begun = len(draft.steps)
        draft.bring_up(instance, host)
        if outlook.bears(host, draft.steps):
            works = outlook.works(draft.steps)
            if not outlook.spoils(host, works):
                return works
        draft.rewind(begun)
    return None
