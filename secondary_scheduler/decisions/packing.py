# SPDX-License-Identifier: Apache-2.0

"""First fit decreasing, alone and with the present host first.

Both are published baselines of a cluster-wide context switch.  First fit
decreasing ignores where members are (Hermenier 2009, section 3.2).  *Sticky*
first fit decreasing tries the present host first.

A lease is in the state that it is selected for; a member of another state is
where it is, and holds what it holds there.
"""

from collections.abc import Iterable, Mapping
import dataclasses

from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
    natural_key,
)


class PackingError(ValueError):
    """A lease that is to run does not fit."""


def first_fit(configuration: Configuration, members: Iterable[Member],
              free: FreeRoom, near: bool = False) -> dict[str, str] | None:
    """Place members by first fit decreasing, the largest memory first.

    A member that may not move stays on its host.

    :param free: room without these members; it loses what they take, and is
        unchanged if they do not fit
    :param near: each member tries its own host first
    :returns: the host of each member; None if one of them does not fit
    """
    placed: list[tuple[Member, str]] = []
    for member in sorted(members, key=_by_memory):
        host = _find_host(configuration, member, free, near)
        if host is None:
            for one, place in placed:
                free.give(place, one.demand)
            return None
        free.take(host, member.demand)
        placed.append((member, host))
    return {member.name: host for member, host in placed}


def first_fit_target(current: Configuration,
                     states: Mapping[str, MemberState]) -> Configuration:
    """Return the configuration of first fit decreasing.

    Leases are packed one after another in the order of ``states``.  If that
    fails, all members are packed at once, and at last with their own hosts
    first.

    :param states: state of each lease; others remain as they are
    :raises PackingError: leases that are to run do not fit
    """
    held, leases = _split(current, states)
    together = [[one for lease in leases for one in lease]]
    for several, near in ((leases, False), (together, False), (leases, True)):
        free = FreeRoom.of(current, held)
        hosts: dict[str, str] = {}
        for members in several:
            found = first_fit(current, members, free, near)
            if found is None:
                break
            hosts |= found
        else:
            return _with_hosts(current, held, leases, hosts)
    raise PackingError('leases that are to run do not fit: '
                       + ', '.join(lease[0].lease for lease in leases))


def sticky_target(current: Configuration,
                  states: Mapping[str, MemberState]) -> Configuration:
    """Return the configuration of first fit with the present host first.

    Running members stay where they fit, the largest demand first.  The others
    follow by first fit decreasing; a suspended one tries its own host first.
    If one does not fit, this is the configuration of first fit decreasing.

    :param states: state of each lease; others remain as they are
    :raises PackingError: leases that are to run do not fit
    """
    held, leases = _split(current, states)
    free = FreeRoom.of(current, held)
    members = [one for lease in leases for one in lease]
    hosts: dict[str, str] = {}
    for one in sorted(members, key=_by_demand):
        here = one.host
        if (one.state is MemberState.RUNNING and here is not None
                and free.fits(here, one.demand)):
            free.take(here, one.demand)
            hosts[one.name] = here
    found = first_fit(current, [
        one for one in members if one.name not in hosts], free, near=True)
    if found is None:
        return first_fit_target(current, states)
    return _with_hosts(current, held, leases, hosts | found)


def in_state(member: Member, state: MemberState) -> Member:
    """Return a member of a lease that is selected for another state.

    A running member stays on its host when it is suspended, and one that was
    never started remains so.  A fixed member does not change.
    """
    if member.fixed or state is MemberState.RUNNING:
        return member
    if state is MemberState.ENDED:
        return dataclasses.replace(member, state=state, host=None)
    if member.state is MemberState.RUNNING:
        return dataclasses.replace(member, state=MemberState.SUSPENDED)
    return member


def is_placed(member: Member, state: MemberState) -> bool:
    """Return whether a member of a lease of a state needs a host."""
    return (state is MemberState.RUNNING and not member.fixed
            and member.state is not MemberState.ENDED)


def is_bound(configuration: Configuration, member: Member) -> bool:
    """Return whether a member can run on no other host than its own."""
    return not member.migratable and (
        member.state is MemberState.RUNNING
        or (configuration.resumes_in_place
            and member.state is MemberState.SUSPENDED))


def can_start(configuration: Configuration, member: Member) -> bool:
    """Return whether a member can run at all, room aside.

    A member that resumes in place cannot if its host is closed.
    """
    return not (configuration.resumes_in_place
                and member.state is MemberState.SUSPENDED
                and (member.host in configuration.closed
                     or member.host not in configuration.capacity))


def _find_host(configuration: Configuration, member: Member, free: FreeRoom,
               near: bool) -> str | None:
    """Return a host with room for a member, None without one.

    :param near: try its own host first
    """
    here, need = member.host, member.demand
    if not can_start(configuration, member):
        return None
    bound = is_bound(configuration, member)
    if here is not None and (bound or near) and free.fits(here, need) and (
            member.state is MemberState.RUNNING
            or here not in configuration.closed):
        return here
    return None if bound else free.find_first(need)


def _by_memory(member: Member) -> tuple[object, ...]:
    return (-member.memory_mb, [-amount for amount in member.demand],
            natural_key(member.name))


def _by_demand(member: Member) -> tuple[object, ...]:
    return [-amount for amount in member.demand], natural_key(member.name)


def _split(current: Configuration, states: Mapping[str, MemberState]
           ) -> tuple[list[Member], list[list[Member]]]:
    """Return the members that need no host, and those that do by lease."""
    held = [in_state(one, states.get(one.lease, MemberState.RUNNING))
            for one in current.members.values()
            if one.lease not in states or not is_placed(
                one, states[one.lease])]
    leases = [[one for one in current.leases[lease]
               if is_placed(one, state)]
              for lease, state in states.items() if lease in current.leases]
    return held, [several for several in leases if several]


def _with_hosts(current: Configuration, held: Iterable[Member],
                leases: Iterable[Iterable[Member]],
                hosts: Mapping[str, str]) -> Configuration:
    """Return the configuration in which placed members run."""
    return current.with_members([*held, *(
        dataclasses.replace(one, state=MemberState.RUNNING,
                            host=hosts[one.name])
        for lease in leases for one in lease)])
