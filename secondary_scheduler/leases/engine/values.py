# SPDX-License-Identifier: Apache-2.0

"""Values exchanged with the cloud: its observed state, and operations.

Times are seconds since 1970.
"""

from collections.abc import Collection, Mapping, Sequence
import dataclasses
import enum
import sys
import typing

from secondary_scheduler.estimation.learning import Point
from secondary_scheduler.model.constraints import Constraint

#: Resources of servers and hosts, in the order of ``Amounts``.
RESOURCES = ('vcpus', 'memory_mb', 'disk_gb', 'slots')
Amounts = tuple[int, int, int, int]

RUNNING = 'ACTIVE'
SAVED = 'SUSPENDED'
#: Nova's word for a server whose cell does not answer.
UNKNOWN = 'UNKNOWN'
#: States in which a server uses none of its host's resources.
OFF = frozenset({SAVED, 'SHUTOFF', 'SHELVED', 'SHELVED_OFFLOADED', 'ERROR'})


class LeaseOperation(enum.StrEnum):
    """An operation on one server of a lease, or a preparation for it."""

    BOOT = 'boot'
    SUSPEND = 'suspend'
    RESUME = 'resume'
    DELETE = 'delete'
    NOTICE = 'notice'
    CACHE_IMAGE = 'cache_image'
    VERIFY = 'verify'


class Nature(enum.StrEnum):
    """Nature of a failure: the prospects of another attempt."""

    #: The same request cannot succeed: an image is missing, a quota is full.
    PERMANENT = 'permanent'
    #: This host has no room; another one, or the same one later, may have.
    CAPACITY = 'capacity'
    #: A service did not answer, or its reason is unknown.
    TRANSIENT = 'transient'
    #: The cell of the server does not answer Nova, or not in time.
    UNSEEN = 'unseen'
    #: The trust by which servers are made for the owner is not valid now.
    LOST_RIGHT = 'lost right'


#: Operations that use the trust of a lease's owner.
BY_TRUST = frozenset({LeaseOperation.BOOT, LeaseOperation.CACHE_IMAGE,
                      LeaseOperation.VERIFY})


class Postponed(Exception):
    """A pass was given up; a later one does the work."""


class CloudDown(Postponed):
    """The cloud does not answer at the moment."""


@dataclasses.dataclass(frozen=True)
class LeaseServer:
    """A secondary as Nova shows it.

    :param status: state in the words of Nova's API.
    :param lease: UUID of the lease on its label, '' if there is no label.
    :param node: number of the node on its label.
    :param busy: an operation on it is in progress.
    :param preempted: it was preempted for a primary.
    :param notice: time of preemption that it was notified of.
    :param suspendable: it may be suspended for leases.
    :param fault: reason that Nova gives for ERROR.
    :param changed: time of its last change, in Nova's words.
    :param created: time at which it was asked for; None if unknown.
    :param reachable: Nova can show and change it.  Otherwise the agent of
        its host has observed that it runs.
    """

    uuid: str
    project: str
    host: str | None
    status: str
    need: Amounts
    lease: str = ''
    node: int | None = None
    busy: bool = False
    preempted: bool = False
    notice: str = ''
    suspendable: bool = True
    name: str = ''
    user: str = ''
    flavor: str = ''
    fault: str = ''
    changed: str = ''
    reachable: bool = True
    created: float | None = None

    @property
    def lease_node(self) -> 'LeaseNode':
        """The node of a lease on its label."""
        assert self.node is not None
        return self.lease, self.node


@dataclasses.dataclass(frozen=True)
class LeaseHost:
    """A host on which leases may run.

    :param total: amounts that the host has for running secondaries; those
        that are suspended need none.
    :param lendable: amounts that its agent lets secondaries use now,
        including those on the host already.
    """

    name: str
    total: Amounts
    lendable: Amounts


@dataclasses.dataclass(frozen=True)
class Failure:
    """Recent failures of one operation on one server.

    :param count: number of failures since the last success.
    :param last: time of the last one.
    :param host: host of the last one.
    :param why: words of the service that refused it.
    :param nature: their meaning for the next attempt.
    :param trust: trust of the owner that the operation used, if any.
    """

    count: int
    last: float
    host: str | None = None
    why: str = ''
    nature: Nature = Nature.TRANSIENT
    trust: str | None = None


#: A server of a lease: the lease's UUID, and the number of the node.
LeaseNode = tuple[str, int]
#: A copy of an image: its host, and the image as leases name it.
Copy = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class CloudState:
    """Observed state of the cloud at one time.

    A server that is neither in ``servers`` nor in ``gone`` is *unseen*: Nova
    cannot show it, and nothing is known of its state.  So is one with the
    status UNKNOWN.

    :param flavors: amounts of each secondary flavor, by name and by id.
    :param pending: nodes with an unfinished operation.
    :param failures: failures since the last success.
    :param took: durations of operations that have succeeded, oldest first.
    :param asked: copies of images that hosts were asked to fetch recently,
        with the time.
    :param used: copies of images from which servers have booted recently.
    :param verified: leases whose resources were verified recently.
    :param booted: servers that were created for nodes by a boot that has
        succeeded, and that Nova has never shown since.
    :param gone: UUIDs of known servers that do not exist any more.
    :param unreachable_hosts: hosts in cells that do not answer Nova.  Those
        in ``hosts`` are as they were known last.
    :param free_operations: number of operations that may be ordered now.
    """

    servers: Mapping[str, LeaseServer] = dataclasses.field(
        default_factory=dict)
    hosts: Mapping[str, LeaseHost] = dataclasses.field(default_factory=dict)
    flavors: Mapping[str, Amounts] = dataclasses.field(default_factory=dict)
    pending: frozenset[LeaseNode] = frozenset()
    failures: Mapping[tuple[LeaseNode, LeaseOperation], Failure] = (
        dataclasses.field(default_factory=dict)
    )
    took: Sequence[Point] = ()
    asked: Mapping[Copy, float] = dataclasses.field(default_factory=dict)
    used: frozenset[Copy] = frozenset()
    verified: frozenset[str] = frozenset()
    booted: Mapping[LeaseNode, str] = dataclasses.field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    unreachable_hosts: frozenset[str] = frozenset()
    free_operations: int = sys.maxsize

    def __post_init__(self) -> None:
        object.__setattr__(self, 'servers', {
            uuid: one for uuid, one in self.servers.items()
            if one.status != UNKNOWN})

    def is_unseen(self, server: str | None) -> bool:
        """Return whether nothing is known of the state of a server.

        :param server: its UUID; None for a server that was never observed.
        """
        return not (server is None or server in self.servers
                    or server in self.gone)


@dataclasses.dataclass(frozen=True)
class Build:
    """Properties of a server to be created."""

    name: str
    project: str
    user: str
    trust: str | None
    flavor: str
    image: str | None
    network: str | None
    key_name: str | None


@dataclasses.dataclass(frozen=True)
class OperationRequest:
    """An operation to be carried out between two times.

    :param host: host on which the server is or is to be.
    :param at: time from which on it may begin.
    :param until: time after which it is skipped.
    :param server: UUID of the server; None before it is created.
    :param expected: expected duration in seconds.
    :param text: text of a notice.
    """

    kind: LeaseOperation
    place: LeaseNode
    project: str
    host: str | None
    at: float
    until: float
    server: str | None = None
    build: Build | None = None
    expected: float = 0.0
    text: str = ''


@dataclasses.dataclass(frozen=True)
class PlannedServer:
    """A server of a lease that does not exist yet.

    :param name: name of it in constraints.
    :param lease: UUID of the lease.
    :param flavor: name or id of the flavor.
    """

    name: str
    project: str
    lease: str
    flavor: str


class LeaseCloud(typing.Protocol):
    """A cloud on which leases run."""

    def observe_state(self, known: Collection[str]) -> CloudState:
        """Return the present state.

        :param known: UUIDs of servers of which the state is needed.
        :raises CloudDown: if the cloud does not answer.
        """

    def find_constraints(self, planned: Sequence[PlannedServer]
                         ) -> tuple[Constraint, ...]:
        """Return the placement constraints as of the last observation.

        :param planned: servers that they may name beside those that exist.
        """

    def forget_flavors(self) -> None:
        """Read all secondary flavors again with the next observation."""

    def order_operations(self, orders: Sequence[OperationRequest]) -> None:
        """Have operations carried out; later observations show the outcome.

        :raises CloudDown: if they cannot be ordered.  None is ordered then.
        """
