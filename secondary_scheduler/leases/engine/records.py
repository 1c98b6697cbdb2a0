# SPDX-License-Identifier: Apache-2.0

"""Records of leases in the engine, and the documents that store them."""

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
from secondary_scheduler.leases.engine.served_time import ServedTime
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

#: Makes the disk operation of a booking from its hosts, start and end.
MakeOperation = Callable[[Ints, int, int], typing.Any]


@dataclasses.dataclass
class Node:
    """A node of a lease, which is one server.

    :param server: UUID of the server, once it is known.
    :param host: host of the server.
    :param ran: it has run since the lease was suspended last.
    :param lived: it has run since the lease's work began.
    :param gone: it was deleted after it had run, or is its owner's again.
    """

    server: str | None = None
    host: str | None = None
    ran: bool = False
    lived: bool = False
    gone: bool = False


@dataclasses.dataclass(eq=False)
class LeaseRecord:
    """A lease: its row in the database, the scheduler's lease, its nodes.

    :param boot_s: seconds of its duration reserved for the boot.
    :param reported_state: state that its owner was shown last.
    :param request_acknowledged: last value of the owner's request to pause
        that was passed on to the scheduler.
    :param emitted_events: events reported in the present booking.
    :param next_start: next possible start of a rejected lease.
    :param pending_request: request to be stored with the next pass.
    :param served: observed running time.
    :param failing_since: time since which operations on its servers fail.
    :param cause: last reason for which not all of its servers ran.
    :param trust: trust with which its servers are made, as of this pass.
    :param lost_right: reason for which no server can be made for its owner
        now, or at its start; '' if there is none.
    :param ordered: count and last time of orders, for each due operation.
    :param unreachable_since: time since which the cell of a server does not
        answer Nova.
    :param unseen: the state of a server is unknown for that reason.
    :param last_unreachable: last time at which the cell did not answer.
    :param changed: time of the last change of each server, in Nova's words.
    """

    row: models.LeaseRow
    lease: Lease
    boot_s: int
    nodes: list[Node]
    reported_state: str = LeaseState.PENDING
    request_acknowledged: bool = False
    emitted_events: set[str] = dataclasses.field(default_factory=set)
    next_start: int | None = None
    pending_request: LeaseRequest | None = None
    served: ServedTime = dataclasses.field(default_factory=ServedTime)
    failing_since: float | None = None
    cause: str = ''
    trust: str | None = None
    lost_right: str = ''
    ordered: dict[tuple[int, LeaseOperation], tuple[int, float]] = (
        dataclasses.field(default_factory=dict)
    )
    unreachable_since: float | None = None
    unseen: bool = False
    last_unreachable: float = 0.0
    changed: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def adopted(self) -> bool:
        """Whether its server existed before it: see ``adoption``."""
        return self.row.duration is None

    @property
    def needs_trust(self) -> bool:
        """Whether its servers are made with a trust of its owner."""
        return self.row.trust_id is not None

    @property
    def can_boot(self) -> bool:
        """Whether a server can be made for its owner now.

        Without the trust it would be made in the project of Watcher's user.
        """
        return self.trust is not None or not self.needs_trust

    @property
    def lacks_server(self) -> bool:
        """Whether it waits or begins, and a server has to be made for it."""
        lease = self.lease
        return (not self.adopted and lease.home is None and (
            lease.ahead or lease.state in (LeaseState.QUEUED,
                                           LeaseState.ACTIVE))
                and any(not (node.server or node.gone)
                        for node in self.nodes))

    @property
    def uuid(self) -> str:
        """The lease's UUID."""
        return self.lease.id

    def node_of(self, server: LeaseServer,
                gone: Container[str]) -> Node | None:
        """Return the node that the label of a server names, if it is valid.

        Owners can write labels.  So a label counts only within the lease's
        project, and only for a node whose server is unknown or gone.  After
        the end of a lease, a node that has run gets no other server.

        :param gone: UUIDs of the servers that do not exist any more.
        """
        if (self.adopted or server.node is None
                or server.node >= len(self.nodes)
                or server.project != self.row.project_id):
            return None
        node = self.nodes[server.node]
        over = node.lived and self.lease.state in lease_states.FINAL
        kept = node.server is not None and node.server not in gone
        return None if over or kept else node

    def register_event(self, event: str) -> bool:
        """Return True for the first call with this event in a booking."""
        if event in self.emitted_events:
            return False
        self.emitted_events.add(event)
        return True

    @property
    def boots_until(self) -> int:
        """End of the time reserved for the boot; 0 if it is resumed."""
        booking = self.lease.booking
        if (
            booking is None
            or self.lease.resumes
            or self.lease.home is not None
        ):
            return 0
        return booking.begin + self.boot_s

    def numbered_nodes(self) -> Iterator[tuple[int, int]]:
        """Yield for each node the index of its set, and its number."""
        number = 0
        for index, count in enumerate(self.lease.terms.numbers):
            for _ in range(count):
                yield index, number
                number += 1

    def set_of(self, number: int) -> int:
        """Return the index of a node's set."""
        return {one: index for index, one in self.numbered_nodes()}[number]

    def note_order(self, number: int, kind: LeaseOperation, at: float) -> None:
        """Count the order of an operation on a node for a time."""
        count, _ = self.ordered.get((number, kind), (0, 0.0))
        self.ordered[number, kind] = count + 1, at

    def served_and_charge(self, price: float | None
                          ) -> tuple[int, float | None]:
        """Return the seconds served, and the charge: 0 if the lease failed.
        """
        served, duration = int(self.served.seconds), self.row.duration
        if duration is None or price is None:
            return served, None
        served = min(served, duration)
        if self.lease.state is LeaseState.FAILED:
            return served, 0.0
        return served, price * served / duration

    def build_of(self, set_: int, number: int) -> Build:
        """Return the properties with which a node's server is created."""
        row, of = self.row, self.row.nodes[set_]
        name = row.name or f'lease-{row.uuid[:8]}'
        return Build(f'{name}-{number}', row.project_id, row.user_id,
                     self.trust, of.flavor, of.image, of.network,
                     of.key_name)


class UnknownFlavorError(TermsError):
    """The flavor of a lease is not a secondary flavor."""


def to_terms(row: models.LeaseRow | models.Quote,
             flavors: Mapping[str, Amounts], boot_s: int) -> Terms:
    """Return the terms of a lease for the scheduler.

    Hosts are booked for the boot as well: the start is ``boot_s`` earlier,
    and the duration so much longer.

    :raises TermsError: if the terms are not valid.
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
    """The document of a lease cannot be read; the text names the lease."""


@contextlib.contextmanager
def naming_lease(lease: str) -> Iterator[None]:
    """Name the lease in errors while its document is read.

    :raises LeaseRecordError: if the document cannot be read.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise LeaseRecordError(
            f'The document of lease {lease} cannot be read: {exc!r}. If '
            'another version has written it, run that one again.') from exc


class RecordDocuments:
    """Conversion of records to JSON documents and back.

    Documents contain names of hosts, since their numbers change with the
    site.  Keys of documents never change: other versions read them.
    """

    def __init__(self, hosts: Sequence[str],
                 make_operation: MakeOperation) -> None:
        self._hosts = hosts
        self._index = {name: index for index, name in enumerate(hosts)}
        self._make_operation = make_operation

    def write_record(self, record: LeaseRecord) -> str:
        """Return the document of a record."""
        lease = record.lease
        plain = {name: getattr(lease, name) for name in _PLAIN}
        return json.dumps({
            **plain, 'state': str(lease.state),
            'terms': _write_terms(lease.terms),
            'stay': lease.booking and self._write_booking(lease.booking),
            'later': lease.later and self._write_booking(lease.later),
            'home': lease.home and self.count_by_host(lease.home),
            'boot_s': record.boot_s, 'told': record.reported_state,
            'heard': record.request_acknowledged,
            'said': sorted(record.emitted_events),
            'nodes': [dataclasses.astuple(one) for one in record.nodes],
            'served_time': record.served.to_json(),
            'failing_since': record.failing_since, 'cause': record.cause,
            'unreachable_since': record.unreachable_since,
            'changed': record.changed,
        }, separators=(',', ':'))

    def read_record(self, row: models.LeaseRow, text: str) -> LeaseRecord:
        """Return the record of a document."""
        known = json.loads(text)
        lease = Lease(row.uuid, _read_terms(known['terms']),
                      state=LeaseState(known['state']),
                      **{name: known[name] for name in _PLAIN})
        if known['stay']:
            lease.booking = self._read_booking(lease.terms, known['stay'])
            lease.hosts = lease.booking.slot.hosts
        if known['later']:
            lease.later = self._read_booking(lease.terms, known['later'])
        if known['home']:
            lease.home = self.to_arrays(known['home'])
        return LeaseRecord(
            row, lease, known['boot_s'],
            [Node(*one) for one in known['nodes']],
            reported_state=known['told'],
            request_acknowledged=known['heard'],
            emitted_events=set(known['said']),
            # Missing in documents of earlier releases.
            served=ServedTime(*known.get('served_time', ())),
            failing_since=known.get('failing_since'),
            cause=known.get('cause', ''),
            unreachable_since=known.get('unreachable_since'),
            changed=known.get('changed', {}))

    def count_by_host(self, vms: Sequence[Ints]) -> list[dict[str, int]]:
        """Return the number of VMs on each host, for each node set."""
        return [{self._hosts[host]: int(count[host])
                 for host in np.flatnonzero(count).tolist()}
                for count in vms]

    def to_arrays(self, counts: Sequence[Mapping[str, int]]
                  ) -> tuple[Ints, ...]:
        """Return the inverse of ``count_by_host``: arrays of shape (hosts,).
        """
        found = []
        for one in counts:
            vms = np.zeros(len(self._hosts), dtype=np.int64)
            for host, count in one.items():
                vms[self._index[host]] = count
            found.append(vms)
        return tuple(found)

    def _write_booking(self, booking: Booking) -> dict[str, typing.Any]:
        return {**{name: getattr(booking, name) for name in _TIMES},
                'vms': self.count_by_host(booking.vms),
                'operations': [(one.start, one.end)
                               for one in booking.operations]}

    def _read_booking(self, wanted: Terms, known: Mapping[str, typing.Any]
                      ) -> Booking:
        vms = self.to_arrays(known['vms'])
        # In a cloud each resource of a host is one unit.
        slot = mapping.total_entry(wanted.nodes, vms, known['begin'],
                                   known['end'])
        return Booking(
            **{name: known[name] for name in _TIMES}, vms=vms, slot=slot,
            operations=tuple(self._make_operation(slot.hosts, *times)
                             for times in known['operations']))


def servers_in(text: str) -> set[str]:
    """Return the UUIDs of the servers in a document."""
    return {node[0] for node in json.loads(text)['nodes'] if node[0]}


def hosts_in(text: str) -> set[str]:
    """Return the names of the hosts in a document."""
    known = json.loads(text)
    bookings = [one['vms'] for one in (known['stay'], known['later']) if one]
    return {host for placed in [*bookings, known['home'] or []]
            for one in placed for host in one}


_PLAIN = ('submitted', 'number', 'started', 'ended', 'served', 'suspends',
          'resumes', 'requeues', 'saved_at', 'suspended_s', 'paused',
          'reason', 'price')
_TIMES = ('begin', 'up', 'down', 'end', 'save_s', 'saves', 'loses')


def _write_terms(wanted: Terms) -> dict[str, typing.Any]:
    known = {field.name: getattr(wanted, field.name)
            for field in dataclasses.fields(wanted)}
    return {**known, 'nodes': [(one.number, one.need)
                              for one in wanted.nodes]}


def _read_terms(known: Mapping[str, typing.Any]) -> Terms:
    return Terms(**{**known, 'nodes': tuple(
        NodeSet(number, tuple(need)) for number, need in known['nodes'])})
