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
from secondary_scheduler.decisions.sample_rules import SampleRules
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
    natural_key,
)


class PackingError(ValueError):
    """A lease that is to run does not fit."""


def first_fit(configuration: Configuration, members: Iterable[Member],
              free: FreeRoom, rules: SampleRules, near: bool = False
              ) -> dict[str, str] | None:
    """Place members by first fit decreasing, the largest memory first.

    A member that may not move stays on its host.  A host that a constraint
    forbids has no room.  If members do not fit only because of their peers,
    these constraints do not count, since the peers may move.

    :param free: room without these members; it loses what they take, and is
        unchanged if they do not fit
    :param rules: constraints; its members are on the new hosts, and are
        unchanged if they do not fit
    :param near: each member tries its own host first
    :returns: the host of each member; None if one of them does not fit
    """
    packer = _Packer(configuration, sorted(members, key=_by_memory), free,
                     rules, near)
    while (misfit := packer.place()) is not None:
        group = rules.find_group(misfit) if packer.peers else None
        packer.undo()
        if group is not None and group != rules.find_group(misfit):
            # The hosts of this group have no room for all members.
            packer.avoided |= group
        elif packer.peers and rules.depend(packer.members):
            packer.peers = False
        else:
            return None
    return packer.hosts


class _Packer:
    """One attempt to place members.

    :ivar hosts: hosts of the members placed so far
    :ivar avoided: hosts that are not tried
    :ivar peers: whether constraints count that depend on peers
    """

    def __init__(self, configuration: Configuration, members: list[Member],
                 free: FreeRoom, rules: SampleRules, near: bool) -> None:
        self.configuration = configuration
        self.members = members
        self.free = free
        self.rules = rules
        self.near = near
        self.hosts: dict[str, str] = {}
        self.avoided: frozenset[str] = frozenset()
        self.peers = True

    def place(self) -> Member | None:
        """Place all members; return the first one that does not fit."""
        for member in self.members:
            host = self._find_host(member)
            if host is None:
                return member
            self.free.take(host, member.demand)
            self.rules.enter(member, host)
            self.hosts[member.name] = host
        return None

    def undo(self) -> None:
        """Take all members from their hosts again."""
        for member in self.members:
            if member.name in self.hosts:
                self.free.give(self.hosts.pop(member.name), member.demand)
                self.rules.restore(member)

    def _find_host(self, member: Member) -> str | None:
        """Return a host with room for a member, None without one."""
        here, need = member.host, member.demand
        if not can_start(self.configuration, member):
            return None
        bound = is_bound(self.configuration, member)
        if here is not None and (bound or self.near) and (
                self.free.fits(here, need)) and (
                member.state is MemberState.RUNNING
                or here not in self.configuration.closed):
            return here
        if bound:
            return None
        if not self.rules.concern(member):
            return self.free.find_first(need)
        admits = self.rules.admit(member, self.peers)
        within = self.rules.confine(member, self.peers)
        if not self.peers:
            return self.free.find_first(need, admits, within)
        together = self.rules.find_gathering(member, self.members)
        return self.free.find_first(
            tuple(map(sum, zip(*(one.demand for one in together),
                               strict=True))),
            lambda host: host not in self.avoided and admits(host), within)


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
        rules = SampleRules(current.with_members(held))
        hosts: dict[str, str] = {}
        for members in several:
            found = first_fit(current, members, free, rules, near)
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
        one for one in members if one.name not in hosts], free,
        SampleRules(current.with_members(held)), near=True)
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
