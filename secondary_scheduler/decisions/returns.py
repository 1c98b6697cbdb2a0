# SPDX-License-Identifier: Apache-2.0

"""Returns of preempted and migrated instances.

Only whole leases return, in the order of the queue (``waiting``).  If a
member fails to return, the running members are preempted again.

A return needs a useful share for all instances of a host, and room for what
they are known to use.  None has to leave as long as policies hold, for which
the same use counts.  So a constant load ends in an empty plan.
"""

from collections.abc import Collection

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.draft import PREEMPT_KIND, Draft
from secondary_scheduler.decisions.queue_pass import serve_queue
from secondary_scheduler.decisions.waiting import WaitingLease, queue
from secondary_scheduler.model.cluster import Instance, InstanceState
from secondary_scheduler.model.lease_order import QueueOrder
from secondary_scheduler.plans.operations import OperationKind


def return_leases(draft: Draft, scope: Collection[str], budget: Budget,
                  order: QueueOrder) -> None:
    """Add the steps that return instances to the hosts of ``scope``.

    While any host is violated, instances return only on their present hosts.
    The room of other hosts is kept for instances that leave the violated one.
    """
    preempt_partial_leases(draft, scope)
    roaming = not draft.cluster.violated
    waiting = queue(draft.cluster, order)
    moved = True
    while moved:
        waiting = _serve(draft, waiting, scope, roaming, budget)
        # A migration home makes room where the instance was.
        moved = roaming and _migrate_back(draft, scope)


def _serve(draft: Draft, waiting: list[WaitingLease], scope: Collection[str],
           roaming: bool, budget: Budget) -> list[WaitingLease]:
    """Return all leases that fit, and give back those that do not."""
    left = list(waiting)

    def serve(lease: WaitingLease) -> bool:
        fits = draft.attempt(lambda: _return_lease(
            draft, lease, scope, roaming, budget))
        if fits:
            left.remove(lease)
        return fits

    serve_queue(waiting, serve)
    return left


def preempt_partial_leases(draft: Draft, scope: Collection[str]) -> None:
    """Preempt running members of leases with a member that cannot return.

    The leases stay in the queue, and return as a whole later (Boettger 2012,
    section 4.4.2).
    """
    for lease in sorted({one.lease for one in draft.cluster.instances.values()
                         if one.return_failed}):
        members = draft.members(lease)
        left = [one for one in members if one.state is InstanceState.ACTIVE]
        if (any(one.host in scope for one in left)
                and all(_may_be_preempted(draft, one) for one in left)
                and not any(one.state is InstanceState.BUSY or one.blocked
                            or one.cooling_down for one in members)):
            for one in left:
                draft.preempt(one)


def _may_be_preempted(draft: Draft, instance: Instance) -> bool:
    """Return whether an instance can be preempted now without loss of work.

    This preemption is not urgent, since no policy needs it.
    """
    host = draft.hosts.get(instance.host or '')
    return (host is not None and not host.blocked
            and not instance.preempt_failed
            and PREEMPT_KIND[instance.preempt_policy] is OperationKind.SUSPEND)


def _return_lease(draft: Draft, lease: WaitingLease, scope: Collection[str],
                  roaming: bool, budget: Budget) -> bool:
    return all(one.host is None or one.host in scope
               for one in lease.due) and all(
        _return_instance(draft, one, scope, roaming, budget)
        for one in lease.due)


def _return_instance(draft: Draft, instance: Instance,
                     scope: Collection[str], roaming: bool,
                     budget: Budget) -> bool:
    home = instance.host
    closed = set(draft.hosts) - set(scope)
    if home is None:    # shelved and offloaded: it may go to any host
        if not roaming or instance.state is not InstanceState.SHELVED:
            return False
        target = draft.find_target(instance, budget, closed, calm=True)
        if target is not None:
            draft.activate(instance, target)
        return target is not None
    if home not in draft.hosts or not draft.cluster.is_open(home, calm=True):
        return False
    if not draft.rooms.admits(home, instance):
        return False
    if draft.rooms.may_enter(home, instance):
        draft.activate(instance, home)
        return True
    # Nova resumes in place only, so it may resume at home and then migrate.
    if (not roaming or instance.state is InstanceState.SHELVED
            or not draft.rooms.has_minimum_share(home)):
        return False
    target = draft.find_target(instance, budget, closed, calm=True)
    if target is None:
        return False
    draft.activate(instance, home)
    draft.migrate(draft.instances[instance.uuid], target)
    return True


def _migrate_back(draft: Draft, scope: Collection[str]) -> bool:
    """Migrate instances to less crowded origins, at most one per host.

    :returns: whether there are any
    """
    begun = len(draft.steps)
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
    return len(draft.steps) > begun
