"""Coming back: run again what was preempted, take home what was moved.

Only whole leases return, in the order of the queue (``waiting``); where one
has failed to, what runs of it goes down again.  On each host there must be a
useful share for everyone, while nobody has to leave as long as policies hold
with less: so a constant load ends in an empty plan.
"""

from collections.abc import Collection

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.draft import PREEMPT_KIND, Draft
from secondary_scheduler.decisions.waiting import WaitingLease, queue
from secondary_scheduler.model.cluster import Instance, InstanceState
from secondary_scheduler.model.lease_order import QueueOrder
from secondary_scheduler.plans.operations import OperationKind


def bring_back(draft: Draft, scope: Collection[str], budget: Budget,
               order: QueueOrder) -> None:
    """Add the steps that bring back what belongs on the hosts of ``scope``.

    While any host is violated, instances return only where they are: the
    room of other hosts is kept for those that have to leave that host.
    """
    _clean_up(draft, scope)
    roaming = not draft.cluster.violated
    for lease in queue(draft.cluster, order):
        _return_lease(draft, lease, scope, roaming, budget)
    if roaming:
        _take_home(draft, scope)


def _clean_up(draft: Draft, scope: Collection[str]) -> None:
    """Take down what runs of leases of which a member cannot come up.

    They stay in the queue, and return as a whole (Boettger R29).
    """
    for lease in sorted({one.lease for one in draft.cluster.instances.values()
                         if one.return_failed}):
        members = draft.members(lease)
        left = [one for one in members if one.state is InstanceState.ACTIVE]
        if (any(one.host in scope for one in left)
                and all(_may_go_down(draft, one) for one in left)
                and not any(one.state is InstanceState.BUSY or one.blocked
                            or one.cooling_down for one in members)):
            for one in left:
                draft.preempt(one)


def _may_go_down(draft: Draft, instance: Instance) -> bool:
    """Tell whether an instance can go down now, and loses no work by it.

    Nobody has to make room, so this can wait.
    """
    host = draft.hosts.get(instance.host or '')
    return (host is not None and not host.blocked
            and not instance.preempt_failed
            and PREEMPT_KIND[instance.preempt_policy] is OperationKind.SUSPEND)


def _return_lease(draft: Draft, lease: WaitingLease, scope: Collection[str],
                  roaming: bool, budget: Budget) -> None:
    if any(one.host is not None and one.host not in scope
           for one in lease.due):
        return
    begun = len(draft.steps)
    for instance in lease.due:
        if not _return_instance(draft, instance, scope, roaming, budget):
            draft.rewind(begun)
            return


def _return_instance(draft: Draft, instance: Instance,
                     scope: Collection[str], roaming: bool,
                     budget: Budget) -> bool:
    home = instance.host
    closed = set(draft.hosts) - set(scope)
    if home is None:    # shelved: the scheduler chooses among the hosts
        if not roaming or instance.state is not InstanceState.SHELVED:
            return False
        target = draft.find_target(instance, budget, closed, calm=True)
        if target is not None:
            draft.bring_up(instance, target)
        return target is not None
    if home not in draft.hosts or not draft.cluster.is_open(home, calm=True):
        return False
    if not draft.rooms.admits(home, instance):
        return False
    if draft.rooms.has_useful_share(home):
        draft.bring_up(instance, home)
        return True
    # Nova resumes in place only: it may pass through if the host bears it.
    if (not roaming or instance.state is InstanceState.SHELVED
            or not draft.rooms.has_minimum_share(home)):
        return False
    target = draft.find_target(instance, budget, closed, calm=True)
    if target is None:
        return False
    draft.bring_up(instance, home)
    draft.migrate(draft.instances[instance.uuid], target)
    return True


def _take_home(draft: Draft, scope: Collection[str]) -> None:
    """Migrate back to less crowded hosts, at most one for each host."""
    touched = {host for step in draft.steps
               for host in (step.old.host, step.new.host)}
    for lease in draft.leases():
        for instance in draft.members(lease):
            here, origin = instance.host, instance.origin
            if (here is None or origin is None or here == origin
                    or {here, origin} & touched
                    or not {here, origin} <= set(scope)
                    or not draft.is_movable(instance)):
                continue
            if (all(draft.cluster.is_open(name, calm=True)
                    for name in (here, origin))
                    and draft.has_room(origin, instance)
                    and draft.rooms.spare(origin, more=1)
                    > draft.rooms.spare(here)):
                draft.migrate(instance, origin)
                touched |= {here, origin}
