# SPDX-License-Identifier: Apache-2.0

"""Configuration of a cluster: the state and the host of each member.

This is the configuration of Entropy (Hermenier 2009, section 3.1, definition
4.1), reduced to whole numbers.  All algorithms of a cluster-wide context
switch use it: selection, packing, optimisation and sequencing.  A *member* is
one instance of a lease (a virtual machine of a vjob).  Amounts are vectors
with one number for each dimension, in a unit of its own, for example
thousandths of a CPU and MiB.

Two ledgers are two groups of dimensions.  Claims in Placement are held by
running and by suspended members, use by running ones only.  So a suspended
member has a *claim* on its own host, which is zero in all dimensions where
the platform frees its resources (as in Hermenier 2009, section 2.1).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
import dataclasses
import enum
import functools
import re
import typing

from secondary_scheduler.model.constraints import Constraint
from secondary_scheduler.model.operation_kinds import OperationKind

#: One number for each dimension of a configuration.
Amounts = tuple[int, ...]


class MemberState(enum.StrEnum):
    """State of a member (Hermenier 2009, section 2.1, figure 2)."""

    RUNNING = 'running'
    SUSPENDED = 'suspended'
    WAITING = 'waiting'     # never started
    ENDED = 'ended'         # deleted, or to be deleted


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """One instance of a lease.

    :param name: its name; members of a lease are suspended and resumed in the
        natural order of their names
    :param host: the host where it runs, or where its memory is saved; None if
        it is waiting or ended
    :param demand: amounts that it needs on a host to run there
    :param claim: amounts that it holds on its own host while it is suspended
    :param memory_mb: memory that an operation on it copies, in MiB
    :param fixed: no operation may touch it
    :param migratable: it may be migrated
    :param floor: amounts that it needs on its own host while it runs there
        only to be migrated at once; None is its demand
    """

    name: str
    lease: str
    state: MemberState
    host: str | None
    demand: Amounts
    claim: Amounts
    memory_mb: int
    fixed: bool = False
    migratable: bool = True
    floor: Amounts | None = None

    @property
    def held(self) -> Amounts | None:
        """Amounts that it holds on its host now, None without a host."""
        if self.state is MemberState.RUNNING:
            return self.demand
        return self.claim if self.state is MemberState.SUSPENDED else None


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Hosts with their capacity, and members by name.

    A configuration is immutable, and caches derived values.

    :param dimensions: names of the dimensions of all amounts
    :param capacity: capacity of each host for members, in the fixed order in
        which hosts are tried
    :param members: all members of all leases
    :param closed: hosts that no member may be brought to; members there may
        stay
    :param resumes_in_place: a suspended member resumes on its own host only,
        and may then be migrated, as in Nova.  Otherwise it resumes on any
        host (Hermenier 2009, section 4.3)
    :param constraints: placement constraints on members, by their names
    """

    dimensions: tuple[str, ...]
    capacity: Mapping[str, Amounts]
    members: Mapping[str, Member]
    closed: frozenset[str] = frozenset()
    resumes_in_place: bool = False
    constraints: tuple[Constraint, ...] = ()

    @functools.cached_property
    def leases(self) -> Mapping[str, tuple[Member, ...]]:
        """Members of each lease, in the natural order of their names."""
        found: dict[str, list[Member]] = defaultdict(list)
        for member in self.members.values():
            found[member.lease].append(member)
        return {lease: tuple(sorted(
            several, key=lambda one: natural_key(one.name)))
                for lease, several in found.items()}

    def with_members(self, changed: Iterable[Member]) -> 'Configuration':
        """Return the configuration with some members replaced."""
        return dataclasses.replace(self, members={
            **self.members, **{one.name: one for one in changed}})

    def used(self) -> dict[str, list[int]]:
        """Return the amounts held on each host."""
        total = {host: [0] * len(self.dimensions) for host in self.capacity}
        for member in self.members.values():
            held = member.held
            if held is not None and member.host in total:
                place = total[member.host]
                for number, amount in enumerate(held):
                    place[number] += amount
        return total

    def is_viable(self) -> bool:
        """Return whether all hosts have room for what is held on them.

        See Hermenier 2009, section 3.1.
        """
        return all(
            amount <= most
            for host, amounts in self.used().items()
            for amount, most in zip(amounts, self.capacity[host], strict=True))


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """One operation of a switch, an edge of the reconfiguration graph.

    :param source: the host that the member leaves, or where its memory is
        saved; None for a boot
    :param target: the host where it runs afterwards, None if it does not run
    :param memory_mb: memory of the member in MiB
    :param bypass: the move is not needed by the target configuration, but
        breaks a cycle (a migration to a pivot, or a suspension and the
        resumption after it)
    """

    kind: OperationKind
    member: str
    lease: str
    source: str | None
    target: str | None
    memory_mb: int
    bypass: bool = False

    @property
    def is_remote(self) -> bool:
        """Whether it resumes a member on another host than its own."""
        return (self.kind is OperationKind.RESUME
                and self.source != self.target)


#: Moves that are feasible at the same time (Hermenier 2009, section 4.1).
Pool = tuple[Move, ...]


class Switch(typing.NamedTuple):
    """Sequence of pools from one configuration to another.

    :param pools: run one after another; their concatenation is a serial order
    :param reached: the configuration after the last pool
    :param kept: members of the target configuration that stay where they are
        instead, since they cannot move
    """

    pools: tuple[Pool, ...]
    reached: Configuration
    kept: tuple[str, ...] = ()

    @property
    def moves(self) -> tuple[Move, ...]:
        """All moves in their serial order."""
        return tuple(move for pool in self.pools for move in pool)


def natural_key(name: str) -> tuple[tuple[str, int], ...]:
    """Return a sort key by which ``vm2`` comes before ``vm10``."""
    return tuple((text, int(digits or -1))
                 for text, digits in _PARTS.findall(name))


_PARTS = re.compile(r'([^0-9]*)([0-9]*)')
