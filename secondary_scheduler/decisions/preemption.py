# SPDX-License-Identifier: Apache-2.0

"""Relief of hosts by migration and preemption of secondaries.

The highest-priority leases stay, the next ones migrate where there is room,
and the rest are preempted, the lowest first.  A lease is preempted as a
whole, including its instances on other hosts (Boettger 2012, section
4.4.3.2).
"""

from collections.abc import Callable

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.model.cluster import Host, InstanceState


def is_due(host: Host) -> bool:
    """Return whether operations are to end a host's violation.

    A host that is cooling down is left to its agent, since its load has not
    settled; static policies do not wait (Boettger 2012, section 4.4.6.3).
    """
    return any(policy.violated
               and (not host.blocked or policy.static)
               for policy in host.policies)


def relieve_hosts(draft: Draft, hosts: list[str],
                  surplus: Callable[[str], int], budget: Budget
                  ) -> tuple[str, ...]:
    """Add steps until no host has a surplus.

    :param surplus: returns the number of instances that still have to leave a
        host, given the steps so far
    :returns: the hosts that keep a surplus
    """
    closed = frozenset(hosts)
    left, progress = tuple(hosts), True
    while left and progress:
        # Clearing one host may leave room for those of another.
        before = sum(map(surplus, left))
        left = tuple(host for host in left
                     if not _clear(draft, host, closed, surplus, budget))
        progress = sum(map(surplus, left)) < before
    return left


def _clear(draft: Draft, host: str, closed: frozenset[str],
           surplus: Callable[[str], int], budget: Budget) -> bool:
    immovable: set[str] = set()         # can neither migrate nor be preempted
    without_target: set[str] = set()    # since the last preemption
    while count := surplus(host):
        leavers = [i for i in draft.ranked_on(host)
                   if i.state is InstanceState.ACTIVE and draft.is_free(i)
                   and i.uuid not in immovable][-count:]
        if not leavers:
            return False
        for leaver in leavers:
            if leaver.uuid in without_target:
                continue
            target = draft.find_target(leaver, budget, closed)
            if target is not None:
                draft.migrate(leaver, target)
                break
            without_target.add(leaver.uuid)
        else:
            lowest = leavers[-1]
            if _preempt_lease(draft, lowest.lease):
                without_target.clear()    # peers elsewhere have left room
            else:
                immovable.add(lowest.uuid)
    return True


def _preempt_lease(draft: Draft, lease: str) -> bool:
    """Preempt a whole lease; return False if that is not possible now.

    A member that is busy or cooling down will soon be free, so the lease is
    left alone.  One in another state (paused, rescued, in error) may remain
    so for ever, and does not protect its peers.
    """
    members = draft.members(lease)
    if any(i.state is InstanceState.BUSY or not draft.is_free(i)
           for i in members):
        return False
    # Migrations of its instances are withdrawn.
    for step in [s for s in draft.steps if s.old.lease == lease]:
        draft.withdraw(step)
    for member in draft.members(lease):
        if member.state is InstanceState.ACTIVE:
            draft.preempt(member)
    return True
