# SPDX-License-Identifier: Apache-2.0

"""Placement constraints: rules on members and the hosts that they are on.

Names and definitions are those of BtrPlace, the successor of Entropy (see
reference/decisions, 17).  A member is *on* a host while it runs there, arrives
there, or is suspended there; a migrating member is on two hosts.  So a
suspended member can always resume on its own host, as in Nova.

All constraints are continuous: they hold at every instant of a plan.  Only
an arrival can break one.  A constraint that is already broken forbids only
arrivals that break it further.

Two independent definitions are given.  ``Constraint.broken`` judges a state,
and the checker compares it before and after each arrival.
``Constraint.admits`` judges an arrival, for planners; ``PlacementRules``
applies all constraints at once.
"""

import abc
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
import dataclasses
import typing

#: Hosts that each member is on; a member without hosts may be missing.
HostsByMember = Mapping[str, Collection[str]]

_NOWHERE: frozenset[str] = frozenset()


class Occupancy:
    """Hosts of each member, and members on each host.

    :ivar hosts: hosts that each member is on
    :ivar members: members on each host
    """

    def __init__(self, hosts: HostsByMember) -> None:
        self.hosts: dict[str, set[str]] = defaultdict(set)
        self.members: dict[str, set[str]] = defaultdict(set)
        for member, several in hosts.items():
            for host in several:
                self.enter(member, host)

    def enter(self, member: str, host: str) -> None:
        """Add a host to those that a member is on."""
        self.hosts[member].add(host)
        self.members[host].add(member)

    def leave(self, member: str, host: str) -> None:
        """Remove a host from those that a member is on."""
        self.hosts[member].discard(host)
        self.members[host].discard(member)


class UnknownConstraintError(Exception):
    """A constraint is of a kind that a part of the program does not know."""


@dataclasses.dataclass(frozen=True)
class Constraint(abc.ABC):
    """A placement constraint, a value."""

    kind: typing.ClassVar[str]

    @property
    @abc.abstractmethod
    def named(self) -> frozenset[str]:
        """Members that the constraint names."""

    def broken(self, hosts: HostsByMember) -> frozenset[str]:
        """Return the violations in a state, as messages.

        A further violation has another message.
        """
        return _NOWHERE

    def admits(self, member: str, target: str, placed: Occupancy) -> bool:
        """Return whether a member may arrive on a host.

        :param member: any member; it is not on ``target`` yet, but still on
            the host that it leaves
        :param placed: hosts of all members before the arrival
        """
        return True

    def permits(self, member: str, source: str | None,
                target: str | None) -> bool:
        """Return whether a member may go from host to host.

        :param source: None for a boot
        :param target: None if it leaves all hosts, as by a shelve
        """
        return True

    def confine(self, member: str, source: str | None, placed: Occupancy
                ) -> frozenset[str] | None:
        """Return the hosts to which a member is confined, None for any host.

        All hosts that ``admits`` admits are among them.

        :param source: host that it is on, None if it is on none
        """
        return None

    def __str__(self) -> str:
        names = sorted(self.named)
        text = ', '.join(names[:3]) + (', ...' if len(names) > 3 else '')
        return f'{self.kind} of {text}'


@dataclasses.dataclass(frozen=True)
class _OfMembers(Constraint):
    members: frozenset[str]

    @property
    def named(self) -> frozenset[str]:
        """Members that the constraint names."""
        return self.members

    def _by_host(self, hosts: HostsByMember) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for member in self.members:
            for host in hosts.get(member, ()):
                found[host].append(member)
        return found


class Spread(_OfMembers):
    """No two members are on one host."""

    kind = 'spread'

    def broken(self, hosts: HostsByMember) -> frozenset[str]:
        """Return each member that shares its host with another."""
        return frozenset(
            f'{one} shares host {host}'
            for host, several in self._by_host(hosts).items()
            if len(several) > 1 for one in several)

    def admits(self, member: str, target: str, placed: Occupancy) -> bool:
        """Return whether no other member is on the host."""
        return (member not in self.members
                or self.members.isdisjoint(placed.members[target] - {member}))


class Gather(_OfMembers):
    """All members are on one host.

    So a member cannot migrate while another one is on a host.
    """

    kind = 'gather'

    def broken(self, hosts: HostsByMember) -> frozenset[str]:
        """Return the hosts, if there are several for several members."""
        found = self._by_host(hosts)
        if len(found) < 2 or len(set().union(*found.values())) < 2:
            return _NOWHERE
        return frozenset(f'a member is on host {host}' for host in found)

    def admits(self, member: str, target: str, placed: Occupancy) -> bool:
        """Return whether no other member is on another host.

        If members are apart already, any host that has one is admitted.
        """
        if member not in self.members:
            return True
        used = self._used(member, placed)
        return used <= {target} or (
            target in used and bool(self.broken(placed.hosts)))

    def confine(self, member: str, source: str | None, placed: Occupancy
                ) -> frozenset[str] | None:
        """Return the hosts of the other members."""
        return self._used(member, placed) or None

    def allows_both(self, host: str, other: str) -> bool:
        """Return whether members may be on both hosts at the same time."""
        return host == other

    def _used(self, member: str, placed: Occupancy) -> frozenset[str]:
        return _NOWHERE.union(*(placed.hosts[one] for one in self.members
                                if one != member))


@dataclasses.dataclass(frozen=True)
class Ban(_OfMembers):
    """No member is on any of some hosts."""

    kind = 'ban'
    hosts: frozenset[str]

    def broken(self, hosts: HostsByMember) -> frozenset[str]:
        """Return each member on a banned host."""
        return frozenset(f'{one} is on host {host}' for one in self.members
                         for host in hosts.get(one, ()) if host in self.hosts)

    def admits(self, member: str, target: str, placed: Occupancy) -> bool:
        """Return whether the host is not banned."""
        return member not in self.members or target not in self.hosts


@dataclasses.dataclass(frozen=True)
class Fence(_OfMembers):
    """Members are on some hosts only."""

    kind = 'fence'
    hosts: frozenset[str]

    def broken(self, hosts: HostsByMember) -> frozenset[str]:
        """Return each member on another host."""
        return frozenset(
            f'{one} is on host {host}' for one in self.members
            for host in hosts.get(one, ()) if host not in self.hosts)

    def admits(self, member: str, target: str, placed: Occupancy) -> bool:
        """Return whether the host is one of those of the fence."""
        return member not in self.members or target in self.hosts

    def confine(self, member: str, source: str | None, placed: Occupancy
                ) -> frozenset[str] | None:
        """Return the hosts of the fence."""
        return self.hosts


@dataclasses.dataclass(frozen=True)
class Among(_OfMembers):
    """All members are on the hosts of one group.

    So members cannot go to another group while any is in the first.

    :param groups: disjoint groups of hosts
    """

    kind = 'among'
    groups: tuple[frozenset[str], ...]

    def group_of(self, host: str) -> int | None:
        """Return the number of a host's group, None outside of all."""
        return next((number for number, group in enumerate(self.groups)
                     if host in group), None)

    def broken(self, hosts: HostsByMember) -> frozenset[str]:
        """Return the groups if they are several, and members outside."""
        found: dict[int | None, set[tuple[str, str]]] = defaultdict(set)
        for host, several in self._by_host(hosts).items():
            found[self.group_of(host)].update((one, host) for one in several)
        outside = [f'{one} is on host {host}, outside of all groups'
                   for one, host in found.pop(None, ())]
        used = [f'a member is in group {number}' for number in found]
        return frozenset((*outside, *(used if len(used) > 1 else ())))

    def admits(self, member: str, target: str, placed: Occupancy) -> bool:
        """Return whether the host's group is in use, or none is."""
        if member not in self.members:
            return True
        used = self._used(placed)
        group = self.group_of(target)
        return group is not None and (not used or group in used)

    def confine(self, member: str, source: str | None, placed: Occupancy
                ) -> frozenset[str] | None:
        """Return the hosts of the group in use, if there is one."""
        used = self._used(placed)
        return self.groups[used.pop()] if len(used) == 1 else None

    def allows_both(self, host: str, other: str) -> bool:
        """Return whether members may be on both hosts at the same time."""
        return self.group_of(host) == self.group_of(other)

    def _used(self, placed: Occupancy) -> set[int]:
        groups = {self.group_of(host) for one in self.members
                  for host in placed.hosts[one]}
        return {one for one in groups if one is not None}


class Lonely(_OfMembers):
    """Hosts of members have no others; members may share a host."""

    kind = 'lonely'

    def broken(self, hosts: HostsByMember) -> frozenset[str]:
        """Return each member, and each other, on a host with both."""
        own = self._by_host(hosts)
        others: dict[str, list[str]] = defaultdict(list)
        for one, several in hosts.items():
            if one not in self.members:
                for host in several:
                    if host in own:
                        others[host].append(one)
        return frozenset(f'{one} is on host {host}'
                         for host, several in others.items()
                         for one in (*several, *own[host]))

    def admits(self, member: str, target: str, placed: Occupancy) -> bool:
        """Return whether the host has no others."""
        there = placed.members[target] - {member}
        return (there <= self.members if member in self.members
                else self.members.isdisjoint(there))


@dataclasses.dataclass(frozen=True)
class Split(Constraint):
    """Members of different groups are on different hosts.

    :param groups: disjoint groups of members
    """

    kind = 'split'
    groups: tuple[frozenset[str], ...]

    @property
    def named(self) -> frozenset[str]:
        """Members of all groups."""
        return _NOWHERE.union(*self.groups)

    def broken(self, hosts: HostsByMember) -> frozenset[str]:
        """Return each member on a host with members of two groups."""
        found: dict[str, dict[int, list[str]]] = defaultdict(
            lambda: defaultdict(list))
        for number, group in enumerate(self.groups):
            for one in group:
                for host in hosts.get(one, ()):
                    found[host][number].append(one)
        return frozenset(
            f'{one} is on host {host}' for host, by_group in found.items()
            if len(by_group) > 1
            for several in by_group.values() for one in several)

    def admits(self, member: str, target: str, placed: Occupancy) -> bool:
        """Return whether the host has no member of another group."""
        there = placed.members[target]
        own = next((one for one in self.groups if member in one), None)
        return own is None or all(
            one is own or one.isdisjoint(there) for one in self.groups)


class Root(_OfMembers):
    """Members stay on their host, also when they resume."""

    kind = 'root'

    def permits(self, member: str, source: str | None,
                target: str | None) -> bool:
        """Return whether the member is another one, or stays."""
        return (member not in self.members or source is None
                or target is None or source == target)

    def confine(self, member: str, source: str | None, placed: Occupancy
                ) -> frozenset[str] | None:
        """Return the host of the member."""
        return None if source is None else frozenset({source})


@dataclasses.dataclass(frozen=True)
class Quarantine(Constraint):
    """No member enters any of some hosts, or leaves one for another host.

    A preemption is permitted, also a shelve.
    """

    kind = 'quarantine'
    hosts: frozenset[str]

    @property
    def named(self) -> frozenset[str]:
        """No members, since all are concerned."""
        return _NOWHERE

    def permits(self, member: str, source: str | None,
                target: str | None) -> bool:
        """Return whether the member stays, or other hosts are concerned."""
        return target in (None, source) or self.hosts.isdisjoint(
            {source, target})

    def confine(self, member: str, source: str | None, placed: Occupancy
                ) -> frozenset[str] | None:
        """Return the host of a member that is there."""
        return frozenset({source}) if source in self.hosts else None

    def __str__(self) -> str:
        return f'{self.kind} of hosts ' + ', '.join(sorted(self.hosts)[:3])


def check_kinds(constraints: Iterable['Constraint'],
                known: Collection[type['Constraint']]) -> None:
    """Check that all constraints are of kinds that a consumer knows.

    Each consumer names the kinds that it knows.  A new kind that one of them
    does not treat yet is an error there, and is not ignored.

    :raises UnknownConstraintError: if one is of another kind.
    """
    for one in constraints:
        if type(one) not in known:
            raise UnknownConstraintError(
                f'constraints of the kind {one.kind} are not known here')


class PlacementRules:
    """All constraints at once, for planners.

    Only constraints that can concern a question are asked, so that there may
    be thousands of them.

    :raises UnknownConstraintError: for a constraint of an unknown kind
    """

    def __init__(self, constraints: Iterable[Constraint]) -> None:
        self.constraints = tuple(constraints)
        check_kinds(self.constraints, (
            Spread, Gather, Ban, Fence, Among, Lonely, Split, Root,
            Quarantine))
        self._naming: dict[str, list[Constraint]] = defaultdict(list)
        self._at: dict[str, list[Constraint]] = defaultdict(list)
        self._lonely: dict[str, list[Constraint]] = defaultdict(list)
        for one in self.constraints:
            for member in one.named:
                self._naming[member].append(one)
                if isinstance(one, Lonely):
                    self._lonely[member].append(one)
            if isinstance(one, Quarantine):
                for host in one.hosts:
                    self._at[host].append(one)

    def concerning(self, member: str) -> tuple[Constraint, ...]:
        """Return the constraints that name a member."""
        return tuple(self._naming.get(member, ()))

    def admits(self, member: str, source: str | None, target: str,
               placed: Occupancy) -> bool:
        """Return whether a member may go to a host.

        :param source: host that it is on, None if it is on none
        :param placed: hosts of all members before the arrival, as they are
            or will be
        """
        return next(self._blocking(member, source, target, placed),
                    None) is None

    def confine(self, member: str, source: str | None, placed: Occupancy
                ) -> frozenset[str] | None:
        """Return the only hosts that a member may be on, None for any.

        They include all hosts that ``admits`` admits, and so its own.
        """
        found: frozenset[str] | None = None
        for one in (*self._naming.get(member, ()),
                    *self._at.get(source or '', ())):
            hosts = one.confine(member, source, placed)
            if hosts is not None:
                found = hosts if found is None else found & hosts
        return (found if found is None or source is None or source in found
                else found | {source})

    def blocking(self, member: str, source: str | None, target: str,
                 placed: Occupancy) -> tuple[Constraint, ...]:
        """Return the constraints that forbid it, see ``admits``."""
        return tuple(dict.fromkeys(
            self._blocking(member, source, target, placed)))

    def _blocking(self, member: str, source: str | None, target: str,
                  placed: Occupancy) -> typing.Iterator[Constraint]:
        if source == target or not self.constraints:
            return
        for one in (*self._naming.get(member, ()),
                    *self._at.get(target, ()),
                    *self._at.get(source or '', ())):
            if not (one.permits(member, source, target)
                    and one.admits(member, target, placed)):
                yield one
        for other in placed.members[target] if self._lonely else ():
            for one in self._lonely.get(other, ()):
                if not one.admits(member, target, placed):
                    yield one


#: Classes of constraints by kind.
KINDS: Mapping[str, type[Constraint]] = {one.kind: one for one in (
    Spread, Gather, Ban, Fence, Among, Lonely, Split, Root, Quarantine)}
