# SPDX-License-Identifier: Apache-2.0

"""Leases: terms, bookings, remaining work and state."""

from collections.abc import Mapping
import dataclasses
import functools

import numpy as np

from secondary_scheduler.leases.scheduling import kinds
from secondary_scheduler.leases.scheduling.disks import DiskOperation
from secondary_scheduler.leases.scheduling.host_choice import HostChoice
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.table import CapacityEntry
from secondary_scheduler.leases.scheduling.types import Ints
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState


class TermsError(ValueError):
    """Terms that cannot be met, not even by an empty site."""


@dataclasses.dataclass(frozen=True)
class NodeSet:
    """Identical VMs of a lease.

    ``need`` is the amount of each resource per VM, in the site's order;
    ``attributes`` are required of the host.

    ``units`` maps indices of resources to the amounts that a VM takes of
    different units of the resource (Sotomayor 2010, section 3.1).  Other
    resources are taken of a single unit.
    """

    number: int
    need: tuple[int, ...]
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    units: Mapping[int, tuple[int, ...]] = dataclasses.field(
        default_factory=dict)

    def parts(self, index: int) -> tuple[int, ...]:
        """Return the amounts a VM takes of different units of a resource."""
        return self.units.get(index, (self.need[index],))


@dataclasses.dataclass(frozen=True)
class Terms:
    """Terms of a lease (Sotomayor 2010, section 3.2); times in whole seconds.

    * ``duration``: NEVER lasts until the owner ends the lease.
    * ``start``: earliest start; exact without a deadline, or if the deadline
      leaves no slack.
    * ``deadline``: all of ``duration`` is delivered by then.
    * ``max_rate``: highest rate accepted, per node and second; None: any.
    * ``priority``: the highest is served first, if the queue's order uses it.
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
            raise TermsError('each node takes some of a resource, and no '
                             'negative amount of any')
        if not all(min(parts) > 0 and sum(parts) == one.need[index]
                   for one in self.nodes
                   for index, parts in one.units.items()):
            raise TermsError('a node takes some of each unit, together '
                             'what it needs of the resource')
        if self.duration < 1:
            raise TermsError('a lease lasts at least a second')
        if self.deadline is not None and self.start is not None and (
                self.deadline < self.start + self.duration):
            raise TermsError(
                f'a duration of {self.duration} s does not fit between start '
                f'and deadline ({self.deadline - self.start} s)')

    @functools.cached_property
    def kind(self) -> LeaseKind:
        """The type of the lease, derived from the terms."""
        return kinds.derive(self.duration, self.start, self.deadline,
                            self.immediate)

    @functools.cached_property
    def numbers(self) -> tuple[int, ...]:
        """The number of VMs of each node set."""
        return tuple(one.number for one in self.nodes)


@dataclasses.dataclass(frozen=True, eq=False)
class Booking:
    """Hosts booked by a lease during [begin, end); its VMs run in [up, down).

    Saved memory is loaded before ``up``.  After ``down`` memory is saved if
    ``saves``, else the VMs are shut down.  With ``loses``, the VMs are stopped
    without saving their state, and the work is lost.

    ``vms`` has, for each node set, the number of VMs on each host, shape
    (hosts,).  ``save_s`` is how long saving them takes there; ``operations``
    are the disk operations that load and save memory.
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
        """The number of VMs on each host."""
        every: Ints = np.sum(self.vms, axis=0)
        return every


@dataclasses.dataclass(frozen=True, eq=False)
class RemainingWork:
    """The part of a lease that has not been delivered.

    ``lease`` is the lease's number.  ``remaining`` is the time left to run;
    ``load_s`` and ``save_s`` are the least times to load and save its memory
    (seconds).  ``home`` is the placement of the saved memory, from ``since``
    on; None if there is none.  Without it, the lease begins on hosts of
    ``choice`` (None: any).
    """

    lease: int
    terms: Terms
    remaining: int
    load_s: int
    save_s: int
    home: tuple[Ints, ...] | None = None
    since: int = 0
    choice: HostChoice | None = None


@dataclasses.dataclass(eq=False)
class Lease:
    """A lease with its progress (Sotomayor 2010, section 3.2.2).

    ``served`` is the time its VMs have run, without lost work.  ``booking``
    is its present or next booking, ``later`` the one after it.  Saved memory
    is on disks at ``home``, since ``saved_at``.  A ``paused`` or ``blocked``
    lease does not start from the queue, nor earlier than planned: its owner
    has paused it, or no server can be made for it.  ``choice`` is set by the
    caller (None: it may begin anywhere).
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
    blocked: bool = False
    reason: str = ''
    price: float = 0.0
    choice: HostChoice | None = None

    @property
    def may_start(self) -> bool:
        """True if the lease may start as soon as there is room."""
        return not (self.paused or self.blocked)

    @property
    def ahead(self) -> bool:
        """True if the lease has a booking that has not begun."""
        return self.state in lease_states.AHEAD

    @property
    def work(self) -> RemainingWork:
        """The remaining work, while the lease does not run."""
        return RemainingWork(
            self.number,
            self.terms,
            self.terms.duration - self.served,
            0 if self.home is None else self.load_s,
            self.save_s,
            self.home,
            choice=self.choice,
        )

    def work_after(self, booking: Booking) -> RemainingWork:
        """Return the remaining work after a booking that saves or loses."""
        if booking.loses:
            return RemainingWork(
                self.number,
                self.terms,
                self.terms.duration,
                0,
                self.save_s,
                None,
                booking.end,
                self.choice,
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

    def enter_state(self, state: LeaseState) -> None:
        """Change the state.

        :raises IllegalTransitionError: if the state may not follow.
        """
        lease_states.check_transition(self.id, self.state, state)
        self.state = state
