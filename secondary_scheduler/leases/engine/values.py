"""What the engine sees of a cloud, and what it asks of it.

Times are seconds since 1970.
"""

from collections.abc import Collection, Mapping, Sequence
import dataclasses
import enum
import typing

#: What a server takes and a host has, in this order.
RESOURCES = ('vcpus', 'memory_mb', 'disk_gb', 'slots')
Amounts = tuple[int, int, int, int]

RUNNING = 'ACTIVE'
SAVED = 'SUSPENDED'
#: It holds nothing of a host but its place.
OFF = frozenset({SAVED, 'SHUTOFF', 'SHELVED', 'SHELVED_OFFLOADED', 'ERROR'})


class LeaseOperation(enum.StrEnum):
    """An operation on one server of a lease, or ahead of it."""

    BOOT = 'boot'
    SUSPEND = 'suspend'
    RESUME = 'resume'
    DELETE = 'delete'
    NOTICE = 'notice'
    CACHE_IMAGE = 'cache_image'


class Nature(enum.StrEnum):
    """What a failure says of the next attempt."""

    #: The same request cannot succeed: an image is missing, a quota is full.
    PERMANENT = 'permanent'
    #: This host has no room; another one, or the same one later, may have.
    CAPACITY = 'capacity'
    #: A service did not answer, or its reason is unknown.
    TRANSIENT = 'transient'
    #: The trust, by which servers are made in the owner's name, is gone.
    LOST_RIGHT = 'lost right'


class Postponed(Exception):
    """A pass has come to nothing; a later one does what was due."""


class CloudDown(Postponed):
    """The cloud cannot be asked at the moment."""


@dataclasses.dataclass(frozen=True)
class LeaseServer:
    """A secondary as Nova shows it; ``status`` in the API's words.

    ``lease`` is the UUID of the lease that it says to belong to, and ``node``
    its number there, None if it says none; ``busy`` tells that somebody works
    on it, ``preempted`` that it gave way to a primary; ``notice`` is when it
    was told that it will have to give way.  One without a lease may be
    suspended for leases if it is ``suspendable``.  ``fault`` is the reason
    that Nova gives for ERROR.
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


@dataclasses.dataclass(frozen=True)
class LeaseHost:
    """A host on which leases may run.

    ``total`` is what it has for secondaries, ``lendable`` what its agent lets
    them have now, those that are there included.
    """

    name: str
    total: Amounts
    lendable: Amounts


@dataclasses.dataclass(frozen=True)
class Failure:
    """How often an operation has failed lately, and when it did so last.

    ``host`` is where that was, ``why`` the words of the service that refused
    it, ``nature`` their meaning for the next attempt.
    """

    count: int
    last: float
    host: str | None = None
    why: str = ''
    nature: Nature = Nature.TRANSIENT


@dataclasses.dataclass(frozen=True)
class Took:
    """An operation that has succeeded: how long it took, in seconds."""

    kind: LeaseOperation
    memory_mb: int
    seconds: float


#: A server of a lease: the lease's UUID, and the number of the node.
LeaseNode = tuple[str, int]
#: A copy of an image: its host, and the image as leases name it.
Copy = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class CloudState:
    """The cloud at one time.

    ``flavors`` is what a server of each secondary flavor takes, by name and
    by id.  ``pending`` is where an operation that was ordered has not ended;
    ``failures`` where some have failed since one has succeeded, by place and
    kind.  ``asked`` are copies of images that hosts were asked to fetch
    lately, and when, and ``used`` those from which servers have booted.
    """

    servers: Mapping[str, LeaseServer] = dataclasses.field(
        default_factory=dict)
    hosts: Mapping[str, LeaseHost] = dataclasses.field(default_factory=dict)
    flavors: Mapping[str, Amounts] = dataclasses.field(default_factory=dict)
    pending: frozenset[LeaseNode] = frozenset()
    failures: Mapping[tuple[LeaseNode, LeaseOperation], Failure] = (
        dataclasses.field(default_factory=dict)
    )
    took: Sequence[Took] = ()
    asked: Mapping[Copy, float] = dataclasses.field(default_factory=dict)
    used: frozenset[Copy] = frozenset()


@dataclasses.dataclass(frozen=True)
class Build:
    """Of what a server is to be made, in whose name."""

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
    """An operation to be carried out from a time on.

    ``host`` is where the server is or is to be.  It is of no use any more
    after ``until``.  ``expected`` is how long it is expected to take.  A
    notice says ``text``.
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


class LeaseCloud(typing.Protocol):
    """Where leases run."""

    def look(self, known: Collection[str]) -> CloudState:
        """Return what there is now.

        :param known: UUIDs of servers that are missed if they are not shown.
        :raises CloudDown: if nobody answers.
        """

    def forget_flavors(self) -> None:
        """Ask for all secondary flavors anew with the next look."""

    def order(self, orders: Sequence[OperationRequest]) -> None:
        """Have operations carried out; their outcome is seen later.

        :raises CloudDown: if they cannot be ordered; none of them is then.
        """
