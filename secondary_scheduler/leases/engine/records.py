"""What the engine knows of a lease, and the document in which it is kept."""

from collections.abc import (
    Callable,
    Container,
    Iterator,
    Mapping,
    Sequence,
)
import contextlib
import dataclasses
import json
import typing

import numpy as np

from secondary_scheduler.leases.api.db import models
from secondary_scheduler.leases.api.db.requests import LeaseRequest
from secondary_scheduler.leases.engine.served_time import Served
from secondary_scheduler.leases.engine.values import (
    Amounts,
    Build,
    LeaseOperation,
    LeaseServer,
)
from secondary_scheduler.leases.scheduling import mapping
from secondary_scheduler.leases.scheduling.lease import (
    Booking,
    Lease,
    NodeSet,
    Terms,
    TermsError,
)
from secondary_scheduler.leases.scheduling.types import Ints
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState

#: Disk operations of a stay, from its hosts, its start and its end.
Operate = Callable[[Ints, int, int], typing.Any]


@dataclasses.dataclass
class Node:
    """One server of a lease.

    ``server`` is its UUID once it is known, ``host`` where it is.  ``ran``
    tells that it has run since it was to run last, ``lived`` that it has run
    at all, and ``gone`` that it has been deleted since, by its owner.
    """

    server: str | None = None
    host: str | None = None
    ran: bool = False
    lived: bool = False
    gone: bool = False


@dataclasses.dataclass(eq=False)
class LeaseRecord:
    """A lease as the database has it, as the scheduler has it, its servers.

    ``boot_s`` of its time is what its servers take to boot.  ``told`` is the
    state that its owner was told last, ``heard`` which of the owner's wishes
    was heard, and ``said`` what has been said of its present stay.  If it
    was refused, it could begin at ``next_start``.  What it is ``made`` of is
    not in the database yet.  ``served`` is its observed running time; since
    ``failing_since`` operations on its servers fail; ``cause`` is the last
    reason for which its servers did not all run.  ``ordered`` tells, of each
    operation that is due, how often it was ordered, and when last.
    """

    row: models.LeaseRow
    lease: Lease
    boot_s: int
    nodes: list[Node]
    told: str = LeaseState.PENDING
    heard: bool = False
    said: set[str] = dataclasses.field(default_factory=set)
    next_start: int | None = None
    made: LeaseRequest | None = None
    served: Served = dataclasses.field(default_factory=Served)
    failing_since: float | None = None
    cause: str = ''
    ordered: dict[tuple[int, LeaseOperation], tuple[int, float]] = (
        dataclasses.field(default_factory=dict)
    )

    @property
    def adopted(self) -> bool:
        """Whether its server was there before it: see ``adopting``."""
        return self.row.duration is None

    @property
    def uuid(self) -> str:
        """The lease's UUID."""
        return self.lease.id

    def node_of(self, server: LeaseServer,
                there: Container[str]) -> Node | None:
        """Return the node that a server says to be, if it can be that.

        A label is the owner's to write: it counts within the lease's project,
        and for a node whose server is not known yet, or is none of those that
        are ``there``.
        """
        if (self.adopted or server.node is None
                or server.node >= len(self.nodes)
                or server.project != self.row.project_id):
            return None
        node = self.nodes[server.node]
        over = node.lived and self.lease.state in lease_states.FINAL
        return None if over or node.server in there else node

    def first(self, what: str) -> bool:
        """Tell whether something is to be said, which is said once a stay."""
        if what in self.said:
            return False
        self.said.add(what)
        return True

    @property
    def boots_until(self) -> int:
        """Until when its servers may boot, in its first stay."""
        booking = self.lease.booking
        if (
            booking is None
            or self.lease.resumes
            or self.lease.home is not None
        ):
            return 0
        return booking.begin + self.boot_s

    def sets(self) -> Iterator[tuple[int, int]]:
        """Yield of each node the number of its set, and its own."""
        number = 0
        for index, count in enumerate(self.lease.terms.numbers):
            for _ in range(count):
                yield index, number
                number += 1

    def note_order(self, number: int, kind: LeaseOperation, at: float) -> None:
        """Note that an operation on a node is ordered for a time."""
        count, _ = self.ordered.get((number, kind), (0, 0.0))
        self.ordered[number, kind] = count + 1, at

    def account(self, price: float | None) -> tuple[int, float | None]:
        """Return the seconds served, and what is charged for them.

        Nothing is charged for a lease that has failed.
        """
        served, duration = int(self.served.seconds), self.row.duration
        if duration is None or price is None:
            return served, None
        served = min(served, duration)
        if self.lease.state is LeaseState.FAILED:
            return served, 0.0
        return served, price * served / duration

    def build(self, set_: int, number: int) -> Build:
        """Return of what a node is to be made."""
        row, of = self.row, self.row.nodes[set_]
        name = row.name or f'lease-{row.uuid[:8]}'
        return Build(f'{name}-{number}', row.project_id, row.user_id,
                     row.trust_id, of.flavor, of.image, of.network,
                     of.key_name)


class UnknownFlavorError(TermsError):
    """A lease is of a flavor that no secondary instance has."""


def terms(row: models.LeaseRow | models.Quote, flavors: Mapping[str, Amounts],
          boot_s: int) -> Terms:
    """Return what the scheduler is asked for on behalf of an owner.

    Hosts are held while servers boot: so much sooner does a start begin, and
    so much longer does it all last.

    :raises TermsError: if nothing can be made of it.
    """
    for one in row.nodes:
        if one.flavor not in flavors:
            raise UnknownFlavorError(f'{one.flavor} is no flavor of secondary '
                                     'instances')
    assert row.duration is not None
    start = row.start if row.start is None else row.start - boot_s
    images = {one.image for one in row.nodes}
    return Terms(
        tuple(NodeSet(one.number, flavors[one.flavor]) for one in row.nodes),
        row.duration + boot_s, start, row.deadline, row.preemptible,
        row.immediate, user=row.project_id,
        image=images.pop() if len(images) == 1 else None,
        max_rate=row.max_rate)


class LeaseRecordError(Exception):
    """What is written of a lease cannot be read; says of which."""


@contextlib.contextmanager
def reading(lease: str) -> Iterator[None]:
    """Name the lease, if what is written of it cannot be read.

    :raises DocumentError: then.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise LeaseRecordError(
            f'What is written of lease {lease} cannot be read: {exc!r}. '
            'All leases wait. If another version has written it, run that '
            'one again.') from exc


class Documents:
    """Writes records as JSON, and reads them.

    Hosts are named in it, since their numbers change with the site.
    """

    def __init__(self, hosts: Sequence[str], operate: Operate) -> None:
        self._hosts = hosts
        self._index = {name: index for index, name in enumerate(hosts)}
        self._operate = operate

    def write(self, record: LeaseRecord) -> str:
        """Return the document of a record."""
        lease = record.lease
        plain = {name: getattr(lease, name) for name in _PLAIN}
        return json.dumps({
            **plain, 'state': str(lease.state),
            'terms': _write_terms(lease.terms),
            'stay': lease.booking and self._write_booking(lease.booking),
            'later': lease.later and self._write_booking(lease.later),
            'home': lease.home and self.placed(lease.home),
            'boot_s': record.boot_s, 'told': record.told,
            'heard': record.heard, 'said': sorted(record.said),
            'nodes': [dataclasses.astuple(one) for one in record.nodes],
            'served_time': record.served.to_json(),
            'failing_since': record.failing_since, 'cause': record.cause,
        }, separators=(',', ':'))

    def read(self, row: models.LeaseRow, text: str) -> LeaseRecord:
        """Return the record of a document."""
        said = json.loads(text)
        lease = Lease(row.uuid, _read_terms(said['terms']),
                      state=LeaseState(said['state']),
                      **{name: said[name] for name in _PLAIN})
        for name in ('stay', 'later'):
            if said[name]:
                setattr(lease, name, self._read_booking(lease.terms,
                                                        said[name]))
        if said['home']:
            lease.home = self.arrays(said['home'])
        if lease.booking is not None:
            lease.hosts = lease.booking.slot.hosts
        return LeaseRecord(row, lease, said['boot_s'],
                           [Node(*one) for one in said['nodes']], said['told'],
                           said['heard'], set(said['said']),
                           # Not in the documents of releases before.
                           served=Served(*said.get('served_time', ())),
                           failing_since=said.get('failing_since'),
                           cause=said.get('cause', ''))

    def placed(self, vms: Sequence[Ints]) -> list[dict[str, int]]:
        """Return how many VMs of each node set are on which hosts."""
        return [{self._hosts[host]: int(count[host])
                 for host in np.flatnonzero(count).tolist()}
                for count in vms]

    def arrays(self, placed: Sequence[Mapping[str, int]]
               ) -> tuple[Ints, ...]:
        """Return the same as arrays of shape (hosts,)."""
        found = []
        for one in placed:
            vms = np.zeros(len(self._hosts), dtype=np.int64)
            for host, count in one.items():
                vms[self._index[host]] = count
            found.append(vms)
        return tuple(found)

    def _write_booking(self, booking: Booking) -> dict[str, typing.Any]:
        return {**{name: getattr(booking, name) for name in _TIMES},
                'vms': self.placed(booking.vms),
                'operations': [(one.start, one.end)
                               for one in booking.operations]}

    def _read_booking(self, wanted: Terms, said: Mapping[str, typing.Any]
                   ) -> Booking:
        vms = self.arrays(said['vms'])
        # In a cloud all resources of a host have one instance.
        slot = mapping.slot(wanted.nodes, vms, said['begin'], said['end'])
        return Booking(
            **{name: said[name] for name in _TIMES}, vms=vms, slot=slot,
            operations=tuple(self._operate(slot.hosts, *times)
                             for times in said['operations']))


def servers_in(text: str) -> set[str]:
    """Return the servers that a document names."""
    return {node[0] for node in json.loads(text)['nodes'] if node[0]}


def hosts_in(text: str) -> set[str]:
    """Return the hosts that a document names."""
    said = json.loads(text)
    bookings = [one['vms'] for one in (said['stay'], said['later']) if one]
    return {host for placed in [*bookings, said['home'] or []]
            for one in placed for host in one}


_PLAIN = ('submitted', 'number', 'started', 'ended', 'served', 'suspends',
          'resumes', 'requeues', 'saved_at', 'suspended_s', 'paused',
          'reason', 'price')
_TIMES = ('begin', 'up', 'down', 'end', 'save_s', 'saves', 'loses')


def _write_terms(wanted: Terms) -> dict[str, typing.Any]:
    said = {field.name: getattr(wanted, field.name)
            for field in dataclasses.fields(wanted)}
    return {**said, 'nodes': [(one.number, one.need)
                              for one in wanted.nodes]}


def _read_terms(said: Mapping[str, typing.Any]) -> Terms:
    return Terms(**{**said, 'nodes': tuple(
        NodeSet(number, tuple(need)) for number, need in said['nodes'])})
