"""What a lease asks for, and what has become of it."""

from collections.abc import Mapping
import dataclasses
import functools

import numpy as np

from secondary_scheduler.leases.scheduling import kinds
from secondary_scheduler.leases.scheduling.disks import DiskOperation
from secondary_scheduler.leases.scheduling.kinds import LeaseKind as Kind
from secondary_scheduler.leases.scheduling.table import CapacityEntry
from secondary_scheduler.leases.scheduling.types import Ints
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState


class TermsError(ValueError):
    """Terms that no provider could meet."""


@dataclasses.dataclass(frozen=True)
class NodeSet:
    """VMs that are alike.

    ``need`` is what each takes, in the order of the site's resources;
    ``attributes`` is what its host must have.  ``instances`` tells, by their
    indices, of which resources it takes several instances, and how much of
    each (Haizea 2.1); what it needs of others it takes of one instance.
    """

    number: int
    need: tuple[int, ...]
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    instances: Mapping[int, tuple[int, ...]] = dataclasses.field(
        default_factory=dict)

    def parts(self, index: int) -> tuple[int, ...]:
        """Return what a VM takes of different instances of a resource."""
        return self.instances.get(index, (self.need[index],))


@dataclasses.dataclass(frozen=True)
class Terms:
    """What a consumer asks for (Haizea 2.2); times in whole seconds.

    ``start`` is no earlier than which it is to start, and ``deadline`` by
    when all of ``duration`` is to be delivered; a start is exact if the
    deadline leaves no choice, or if there is none.  ``max_rate`` is the most
    that is paid for a node and a second (None: whatever is asked).  The
    higher the ``priority`` the sooner it is served, where that counts.  With
    a duration of NEVER it lasts until its owner ends it.
    """

    nodes: tuple[NodeSet, ...]
    duration: int
    start: int | None = None
    deadline: int | None = None
    preemptible: bool = True
    immediate: bool = False
    user: str = ''
    image: str | None = None
    image_mb: int = 0
    max_rate: float | None = None
    priority: float = 0.0

    def __post_init__(self) -> None:
        if not self.nodes or any(one.number < 1 for one in self.nodes):
            raise TermsError('a lease has at least one node')
        if not all(any(one.need) and min(one.need) >= 0
                   for one in self.nodes):
            raise TermsError('each node takes some of a resource, and of '
                             'none less than nothing')
        if not all(min(parts) > 0 and sum(parts) == one.need[index]
                   for one in self.nodes
                   for index, parts in one.instances.items()):
            raise TermsError('a node takes some of each instance, together '
                             'what it needs of the resource')
        if self.duration < 1:
            raise TermsError('a lease lasts at least a second')
        if self.deadline is not None and self.start is not None and (
                self.deadline < self.start + self.duration):
            raise TermsError(
                f'a duration of {self.duration} s does not fit between start '
                f'and deadline ({self.deadline - self.start} s)')

    @functools.cached_property
    def kind(self) -> Kind:
        """The type of lease, derived from the terms (Haizea 2.3)."""
        return kinds.derive(self.duration, self.start, self.deadline,
                            self.immediate)

    @functools.cached_property
    def numbers(self) -> tuple[int, ...]:
        """How many VMs each node set has."""
        return tuple(one.number for one in self.nodes)


@dataclasses.dataclass(frozen=True, eq=False)
class Booking:
    """A stretch of time in which a lease holds hosts.

    They are held in [begin, end); its VMs run in [up, down).  Before that
    their memory is loaded, if it was saved; after that it is saved if the
    stay ``saves``, else they are shut down.  ``vms``, one array of shape
    (hosts,) for each node set, tells how many are where, and ``save_s`` how
    long saving them takes there; ``operations`` are those in which memory is
    loaded and saved.  A stay that ``loses`` ends without its work being kept.
    """

    begin: int
    up: int
    down: int
    end: int
    vms: tuple[Ints, ...]
    slot: CapacityEntry
    save_s: int
    saves: bool = False
    loses: bool = False
    operations: tuple[DiskOperation, ...] = ()

    @property
    def on(self) -> Ints:
        """How many VMs are on each host."""
        every: Ints = np.sum(self.vms, axis=0)
        return every


@dataclasses.dataclass(frozen=True, eq=False)
class RemainingWork:
    """What is left to do of a lease, and what has to be done for it.

    ``remaining``, ``load_s`` and ``save_s`` in seconds: of running, and the
    least that loading and saving its memory takes.  ``home`` is where the
    memory is, from ``since`` on; None if there is none to load.  ``lease`` is
    the lease's number.
    """

    lease: int
    terms: Terms
    remaining: int
    load_s: int
    save_s: int
    home: tuple[Ints, ...] | None = None
    since: int = 0


@dataclasses.dataclass(eq=False)
class Lease:
    """A lease, and what has become of it (Haizea 2.4).

    ``served`` is for how long its VMs have run, without what was lost.  It is
    in ``stay``, or is to be; ``later`` is what it was promised for the time
    after that.  Its memory is at ``home``, on disks, since ``saved_at``.
    ``price`` is what it was offered at.  It is not to run while it is
    ``paused``.
    """

    id: str
    terms: Terms
    submitted: int
    number: int = 0
    state: LeaseState = LeaseState.NEW
    started: int | None = None
    ended: int | None = None
    served: int = 0
    booking: Booking | None = None
    later: Booking | None = None
    home: tuple[Ints, ...] | None = None
    load_s: int = 0
    save_s: int = 0
    suspends: int = 0
    resumes: int = 0
    requeues: int = 0
    saved_at: int = 0
    suspended_s: int = 0
    hosts: Ints = dataclasses.field(
        default_factory=lambda: np.zeros(0, dtype=np.int64))
    paused: bool = False
    reason: str = ''
    price: float = 0.0

    @property
    def ahead(self) -> bool:
        """Whether its hosts are promised, and it does not hold them yet."""
        return self.state in lease_states.AHEAD

    @property
    def work(self) -> RemainingWork:
        """What is left to do, now that it does not run."""
        return RemainingWork(
            self.number,
            self.terms,
            self.terms.duration - self.served,
            0 if self.home is None else self.load_s,
            self.save_s,
            self.home,
        )

    def work_after(self, booking: Booking) -> RemainingWork:
        """Return what is left to do after a stay that saves or loses."""
        if booking.loses:
            return RemainingWork(
                self.number,
                self.terms,
                self.terms.duration,
                0,
                self.save_s,
                None,
                booking.end,
            )
        return RemainingWork(
            self.number,
            self.terms,
            self.terms.duration - self.served - (booking.down - booking.up),
            self.load_s,
            self.save_s,
            booking.vms,
            booking.end,
        )

    def become(self, state: LeaseState) -> None:
        """Enter a state, if it may follow on the present one."""
        lease_states.check(self.id, self.state, state)
        self.state = state
