# SPDX-License-Identifier: Apache-2.0

"""Optimisation problem: members to run, and the room that hosts have.

The problem keeps all that is the same in every equivalent configuration out of
the search: members that go down, stay down or may not be touched.
"""

from collections import Counter
from collections.abc import Collection, Sequence
import dataclasses
import functools

from secondary_scheduler.model.configuration import (
    Amounts,
    Configuration,
    Member,
    MemberState,
    natural_key,
)
from secondary_scheduler.model.constraints import (
    Among,
    Ban,
    Fence,
    Gather,
    Lonely,
    Quarantine,
    Root,
    Split,
    Spread,
    check_kinds,
)

#: Host of each runner, by number; None for a runner without a host yet.
Assignment = list[int | None]


@dataclasses.dataclass(frozen=True, slots=True)
class RunnerClass:
    """Properties that make members interchangeable.

    :param state: state of the members now
    :param home: number of the host where the members are now, None if they
        have none or may not run there
    :param arrival: amounts that a resume on the home host needs in addition to
        the claim
    :param transit: the same, if a migration follows
    """

    state: MemberState
    home: int | None
    demand: Amounts
    arrival: Amounts
    transit: Amounts
    claim: Amounts
    memory_mb: int
    movable: bool


@dataclasses.dataclass(frozen=True)
class SwitchProblem:
    """Members that run in the sample, and hosts by number.

    :param hosts: names of the hosts in their fixed order
    :param runners: names of the members to place, in natural order
    :param classes: class of each runner
    :param leases: number of the lease of each runner
    :param start_free: room on each host at the start of the switch, with all
        that is held then; less than 0 on an overloaded host
    :param final_free: room on each host for runners at the end
    :param removed: amounts on each host that the first pool frees without a
        copy: of members to be deleted, and of suspended ones without memory
    :param suspended_mb: memory of each member to be suspended
    :param is_open: whether a member may be brought to the host
    """

    current: Configuration
    sample: Configuration
    hosts: tuple[str, ...]
    runners: tuple[str, ...]
    classes: tuple[RunnerClass, ...]
    leases: tuple[int, ...]
    start_free: tuple[Amounts, ...]
    final_free: tuple[Amounts, ...]
    removed: tuple[Amounts, ...]
    suspended_mb: tuple[int, ...]
    is_open: tuple[bool, ...]

    @functools.cached_property
    def members_of_lease(self) -> dict[int, list[int]]:
        """Numbers of the resumed runners of each lease."""
        found: dict[int, list[int]] = {}
        for number, lease in enumerate(self.leases):
            if self.classes[number].state is MemberState.SUSPENDED:
                found.setdefault(lease, []).append(number)
        return found

    @functools.cached_property
    def class_counts(self) -> Counter[RunnerClass]:
        """Number of runners of each class."""
        return Counter(self.classes)

    @functools.cached_property
    def at_home(self) -> list[dict[RunnerClass, int]]:
        """Number of runners of each class that are on each host now."""
        found: list[dict[RunnerClass, int]] = [{} for _ in self.hosts]
        for one, count in sorted(self.class_counts.items(), key=lambda pair: (
                -pair[0].memory_mb, pair[0].demand, pair[0].state)):
            if one.home is not None:
                found[one.home][one] = count
        return found

    @functools.cached_property
    def fixed_mb(self) -> int:
        """Memory that each equivalent switch copies: suspends and resumes."""
        return sum(self.suspended_mb) + sum(
            one.memory_mb for one in self.classes
            if one.state is MemberState.SUSPENDED)

    @functools.cached_property
    def is_startable(self) -> bool:
        """Whether each runner has a host where it can run, room aside."""
        return all(one.movable or one.home is not None
                   for one in self.classes)

    def has_room(self, reached: Configuration) -> bool:
        """Return whether all hosts have room in a configuration.

        A host that is overloaded without any runner may remain so.
        """
        used = reached.used()
        return all(
            amount <= most - min(0, free)
            for host, room in zip(self.hosts, self.final_free, strict=True)
            for amount, most, free in zip(
                used[host], self.current.capacity[host], room, strict=True))

    def target(self, assignment: Sequence[int | None]) -> Configuration:
        """Return the configuration in which runners are on these hosts."""
        return self.sample.with_members(
            dataclasses.replace(self.sample.members[name],
                                host=self.hosts[host])
            for name, host in zip(self.runners, assignment, strict=True)
            if host is not None
            and self.sample.members[name].host != self.hosts[host])

    def assignment(self, target: Configuration) -> Assignment:
        """Return the number of the host of each runner in a configuration."""
        number_of = {host: number for number, host in enumerate(self.hosts)}
        return [None if (host := target.members[name].host) is None
                else number_of.get(host) for name in self.runners]


def is_movable(member: Member, rooted: Collection[str]) -> bool:
    """Return whether an operation may bring the member to another host.

    :param rooted: members that constraints keep on their host
    """
    return (member.migratable and not member.fixed
            and member.name not in rooted)


def list_rooted(current: Configuration) -> set[str]:
    """Return the members that constraints keep on their host."""
    rooted: set[str] = set()
    quarantined: set[str] = set()
    for one in current.constraints:
        if isinstance(one, Root):
            rooted |= one.members
        elif isinstance(one, Quarantine):
            quarantined |= one.hosts
        else:
            check_kinds([one], (Spread, Gather, Ban, Fence, Among, Lonely,
                                Split))
    if quarantined:
        rooted |= {member.name for member in current.members.values()
                   if member.host in quarantined}
    return rooted


def build_problem(current: Configuration,
                  sample: Configuration) -> SwitchProblem:
    """Return the problem of the cheapest configuration with these states.

    :param sample: the same members in the states that are wanted; those that
        cannot move stay where they are
    """
    hosts = tuple(current.capacity)
    number_of = {host: number for number, host in enumerate(hosts)}
    used = current.used()
    final = [list(current.capacity[host]) for host in hosts]
    removed = [[0] * len(current.dimensions) for _ in hosts]
    suspended = []
    runners = []
    rooted = list_rooted(current)
    sample = sample.with_members(
        dataclasses.replace(sample.members[name], host=member.host)
        for name, member in current.members.items()
        if member.state is sample.members[name].state is MemberState.RUNNING
        and not is_movable(member, rooted)
        and sample.members[name].host != member.host)
    for name, member in current.members.items():
        wanted = sample.members[name]
        home = (None if member.host is None else number_of.get(member.host))
        if wanted.state is MemberState.RUNNING:
            if _is_free(member, wanted, number_of, rooted):
                runners.append(name)
                continue
            home = (None if wanted.host is None
                    else number_of.get(wanted.host))
            _add(final, home, member.demand, -1)
        elif wanted.state is MemberState.SUSPENDED:
            if member.state is MemberState.RUNNING:
                suspended.append(member.memory_mb)
                if not member.memory_mb:
                    _add(removed, home, member.demand, 1)
                    _add(removed, home, member.claim, -1)
            _add(final, home, member.claim, -1)
        elif member.held is not None:
            _add(removed, home, member.held, 1)
    runners.sort(key=natural_key)
    lease_numbers = {lease: number
                     for number, lease in enumerate(current.leases)}
    return SwitchProblem(
        current=current, sample=sample, hosts=hosts, runners=tuple(runners),
        classes=tuple(_class_of(current, current.members[name], number_of,
                                rooted) for name in runners),
        leases=tuple(lease_numbers[current.members[name].lease]
                     for name in runners),
        start_free=tuple(
            tuple(most - amount for most, amount in zip(
                current.capacity[host], used[host], strict=True))
            for host in hosts),
        final_free=tuple(map(tuple, final)),
        removed=tuple(map(tuple, removed)),
        suspended_mb=tuple(suspended),
        is_open=tuple(host not in current.closed for host in hosts))


def _is_free(member: Member, wanted: Member,
             number_of: dict[str, int], rooted: Collection[str]) -> bool:
    """Return whether the host of a running member is to be chosen."""
    if wanted.host is not None and wanted.host not in number_of:
        return False
    if member.state is not MemberState.RUNNING:
        return True
    return is_movable(member, rooted) and member.host in number_of


def _class_of(current: Configuration, member: Member,
              number_of: dict[str, int], rooted: Collection[str]
              ) -> RunnerClass:
    home = None if member.host is None else number_of.get(member.host)
    arrival = transit = member.demand
    movable = True
    if member.state is MemberState.SUSPENDED:
        arrival = _missing(member.demand, member.claim)
        transit = _missing(
            member.demand if member.floor is None else member.floor,
            member.claim)
        if member.host in current.closed:
            home = None
        movable = (is_movable(member, rooted) and home is not None
                   if current.resumes_in_place
                   else member.name not in rooted)
    elif member.state is MemberState.WAITING:
        home = None
    return RunnerClass(
        member.state, home, member.demand, arrival, transit,
        member.claim if member.state is MemberState.SUSPENDED
        else (0,) * len(member.demand), member.memory_mb, movable)


def _missing(needed: Amounts, held: Amounts) -> Amounts:
    return tuple(max(0, amount - less)
                 for amount, less in zip(needed, held, strict=True))


def _add(places: list[list[int]], host: int | None, amounts: Amounts,
         sign: int) -> None:
    if host is not None:
        for number, amount in enumerate(amounts):
            places[host][number] += sign * amount
