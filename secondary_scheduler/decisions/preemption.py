"""Making way: take secondaries off hosts until what stays fits.

The highest-priority leases stay, the next ones migrate where there is room,
the rest are preempted, lowest first, each with its whole lease: peers on
other hosts share its fate (Boettger R25, R31).
"""

from collections.abc import Callable

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.draft import Draft
from secondary_scheduler.model.cluster import Host, InstanceState


def is_due(host: Host) -> bool:
    """Tell whether a host's violation is to be ended by operations.

    A host that was operated on a moment ago is left to its agent, since its
    load has not settled; a static policy does not wait (Boettger 3.8).
    """
    return any(policy.violated
               and (not host.blocked or policy.static)
               for policy in host.policies)


def make_way(draft: Draft, hosts: list[str], surplus: Callable[[str], int],
             budget: Budget) -> tuple[str, ...]:
    """Add the steps that clear each host of its surplus.

    ``surplus(host)`` tells how many have still to go, given what the draft
    has taken off by then.  Returns the hosts where not enough could be moved
    or preempted.
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
    immovable: set[str] = set()  # can neither migrate nor be preempted
    homeless: set[str] = set()  # found no host since the last preemption
    while count := surplus(host):
        goers = [i for i in draft.ranked_on(host)
                 if i.state is InstanceState.ACTIVE and draft.is_free(i)
                 and i.uuid not in immovable][-count:]
        if not goers:
            return False
        for goer in goers:
            if goer.uuid in homeless:
                continue
            target = draft.find_target(goer, budget, closed)
            if target is not None:
                draft.migrate(goer, target)
                break
            homeless.add(goer.uuid)
        else:
            lowest = goers[-1]
            if _preempt_lease(draft, lowest.lease):
                homeless.clear()    # peers elsewhere have left room
            else:
                immovable.add(lowest.uuid)
    return True


def _preempt_lease(draft: Draft, lease: str) -> bool:
    """Preempt all of a lease, or nothing if that is not possible now.

    A member that is busy or was operated on a moment ago will soon be free;
    one in a state of its owner's making (paused, rescued, in error) may stay
    like that for ever and does not protect its peers.
    """
    members = draft.members(lease)
    if any(i.state is InstanceState.BUSY or not draft.is_free(i)
           for i in members):
        return False
    # What this plan wanted to migrate stays where it is and goes down there.
    for step in [s for s in draft.steps if s.old.lease == lease]:
        draft.withdraw(step)
    for member in draft.members(lease):
        if member.state is InstanceState.ACTIVE:
            draft.preempt(member)
    return True
