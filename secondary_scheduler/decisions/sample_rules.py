# SPDX-License-Identifier: Apache-2.0

"""Placement constraints while leases are selected.

Members are brought to hosts one after another.  Each is on its present host
until then, also a member of a lease that is not selected: it is suspended
there.  So the arrivals of a selection can run in the same order without a
member that breaks a constraint meanwhile.

A ban, a fence, a root and a quarantine forbid hosts in any case.  All other
constraints depend on the hosts of peers, which may still change.
"""

from collections.abc import Callable, Iterable

from secondary_scheduler.model.configuration import Configuration, Member
from secondary_scheduler.model.constraints import (
    Among,
    Ban,
    Constraint,
    Fence,
    Gather,
    Lonely,
    Occupancy,
    PlacementRules,
    Quarantine,
    Root,
)

#: Constraints that do not depend on the hosts of peers.
_STATIC = (Ban, Fence, Quarantine, Root)


class SampleRules:
    """Constraints, and the hosts of all members so far.

    :param configuration: the configuration at the start
    """

    def __init__(self, configuration: Configuration) -> None:
        rules = PlacementRules(configuration.constraints)
        self._rules = rules
        self._static = PlacementRules(
            one for one in rules.constraints if isinstance(one, _STATIC))
        #: Whether hosts of members are closed to members without a name.
        self._keeps_apart = any(isinstance(one, Lonely)
                                for one in rules.constraints)
        self._concerns_all = self._keeps_apart or any(
            isinstance(one, Quarantine) for one in rules.constraints)
        self._placed = Occupancy({
            name: (one.host,)
            for name, one in configuration.members.items()
            if one.host is not None} if rules.constraints else {})
        self._hosts: dict[str, str | None] = {}

    def concern(self, member: Member) -> bool:
        """Return whether a constraint can forbid a host to a member."""
        return self._concerns_all or bool(self._rules.concerning(member.name))

    def depend(self, members: Iterable[Member]) -> bool:
        """Return whether constraints on members depend on their peers."""
        return self._keeps_apart or any(
            not isinstance(one, _STATIC) for member in members
            for one in self._rules.concerning(member.name))

    def admit(self, member: Member, peers: bool = True
              ) -> Callable[[str], bool]:
        """Return a function that tells whether a member may be on a host.

        :param peers: constraints that depend on peers count too
        """
        rules = self._rules if peers else self._static
        source = self._host_of(member)
        return lambda host: rules.admits(
            member.name, source, host, self._placed)

    def confine(self, member: Member, peers: bool = True
                ) -> frozenset[str] | None:
        """Return the only hosts that a member may be on, None for any.

        Some of them may still be forbidden.
        """
        rules = self._rules if peers else self._static
        return rules.confine(
            member.name, self._host_of(member), self._placed)

    def enter(self, member: Member, host: str) -> None:
        """Bring a member to a host."""
        self._go(member, host)

    def restore(self, member: Member) -> None:
        """Bring a member back to its present host."""
        self._go(member, member.host)
        self._hosts.pop(member.name, None)

    def find_gathering(self, member: Member, members: Iterable[Member]
                       ) -> list[Member]:
        """Return the members that one host has to take together.

        :param members: those that are to be placed
        """
        gathered = self._unused(member, Gather)
        return [one for one in members if one is member
                or any(one.name in constraint.named
                       for constraint in gathered)]

    def find_group(self, member: Member) -> frozenset[str] | None:
        """Return the group of hosts that peers of a member are in."""
        for one in self._rules.concerning(member.name):
            if isinstance(one, Among):
                return one.confine(member.name, None, self._placed)
        return None

    def _unused(self, member: Member, kind: type[Constraint]
                ) -> list[Constraint]:
        """Return the constraints of which no member is on a host."""
        return [one for one in self._rules.concerning(member.name)
                if isinstance(one, kind)
                and not any(self._placed.hosts[name] for name in one.named)]

    def _host_of(self, member: Member) -> str | None:
        return self._hosts.get(member.name, member.host)

    def _go(self, member: Member, host: str | None) -> None:
        before = self._host_of(member)
        if not self._rules.constraints or before == host:
            return
        if before is not None:
            self._placed.leave(member.name, before)
        if host is not None:
            self._placed.enter(member.name, host)
        self._hosts[member.name] = host
