# SPDX-License-Identifier: Apache-2.0

"""Placement constraints on the first hosts of leases.

The constraints are those of a context switch, and so is the judgement
(``model.constraints``).  A server that does not exist yet has a name of its
own, and is on the host for which it is booked.  So a lease avoids hosts that
a later booking of another lease needs, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import contextlib
import types

import numpy as np

from secondary_scheduler.leases.engine import assignment
from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.engine.values import (
    CloudState,
    LeaseCloud,
    LeaseOperation,
    OperationRequest,
    PlannedServer,
)
from secondary_scheduler.leases.scheduling.host_choice import HostChoice
from secondary_scheduler.leases.scheduling.types import NEVER, Bools
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.constraints import (
    Constraint,
    Occupancy,
    PlacementRules,
)


def name_of(record: LeaseRecord, number: int) -> str:
    """Return the name of a node's server in constraints."""
    return record.nodes[number].server or f'{record.uuid}:{number}'


def planned_servers(records: Iterable[LeaseRecord]) -> list[PlannedServer]:
    """Return the servers of leases that do not exist yet."""
    return [PlannedServer(
        name_of(record, number), record.row.project_id, record.uuid,
        record.row.nodes[index].flavor)
        for record in records
        if not record.adopted
        and record.lease.state not in lease_states.FINAL
        for index, number in record.numbered_nodes()
        if record.nodes[number].server is None
        and not record.nodes[number].gone]


class HostRules:
    """Constraints of one pass, and the hosts of all servers.

    :param constraints: on servers that exist and on planned ones
    :param hosts: names of the hosts, in the order of the schedule; those that
        are unreachable admit no server
    :param unseen: last known hosts of unseen servers
    """

    def __init__(
        self,
        constraints: Sequence[Constraint],
        cloud_state: CloudState,
        hosts: Sequence[str],
        unseen: Mapping[str, str] = types.MappingProxyType({}),
    ) -> None:
        self._rules = PlacementRules(constraints)
        self._cloud_state = cloud_state
        self._hosts = hosts
        there = {server.uuid: (server.host,)
                 for server in cloud_state.servers.values()
                 if server.host is not None} if constraints else {}
        there |= {uuid: (host,) for uuid, host in unseen.items()}
        self._reachable = np.array([
            host not in cloud_state.unreachable_hosts for host in hosts],
            dtype=bool)
        #: Servers where they are or are booked for, and where they are or
        #: boot already.
        self._placed, self._now = Occupancy(there), Occupancy(there)
        #: Hosts for which servers are booked, by lease and number.
        self._booked: dict[str, dict[int, str]] = {}
        self._alike: dict[object, HostChoice] = {}

    @classmethod
    def of_cloud(cls, cloud: LeaseCloud, records: Sequence[LeaseRecord],
                 cloud_state: CloudState, hosts: Sequence[str]
                 ) -> 'HostRules':
        """Return the rules as of the last observation of a cloud."""
        found = cls(
            cloud.find_constraints(planned_servers(records)), cloud_state,
            hosts, {
                node.server: node.host for record in records
                for node in record.nodes if node.server and node.host
                and cloud_state.is_unseen(node.server)})
        for record in records:
            found.note_booking(record)
        return found

    def _due_to_boot(self, record: LeaseRecord) -> list[tuple[int, int]]:
        """Return the set and the number of each node that has to boot.

        Also of one whose host Nova does not tell yet, or that is to be
        replaced.
        """
        if (not self._rules.constraints and self._reachable.all()
                or record.adopted
                or record.lease.state in lease_states.FINAL):
            return []
        found = []
        for index, number in record.numbered_nodes():
            node = record.nodes[number]
            server = self._cloud_state.servers.get(node.server or '')
            if not node.gone and (node.server is None or (
                    server is not None and not node.lived and (
                        server.host is None or server.status == 'ERROR'))):
                found.append((index, number))
        return found

    def note_booking(self, record: LeaseRecord) -> None:
        """Note the hosts for which a lease is booked now."""
        for number, host in self._booked.pop(record.uuid, {}).items():
            self._placed.leave(name_of(record, number), host)
        due, booking = self._due_to_boot(record), record.lease.booking
        if booking is None or not due:
            return
        places = assignment.assign_hosts(record, booking.vms, self._hosts)
        booked = self._booked[record.uuid] = {
            number: places[number] for _, number in due}
        for number, host in booked.items():
            self._placed.enter(name_of(record, number), host)
            if (record.uuid, number) in self._cloud_state.pending:
                self._now.enter(name_of(record, number), host)

    @contextlib.contextmanager
    def _without(self, record: LeaseRecord, numbers: Iterable[int]
                 ) -> Iterator[None]:
        """Leave out the booked hosts of nodes while the context is active.
        """
        booked = self._booked.get(record.uuid, {})
        mine = {name_of(record, number): booked[number]
                for number in numbers if number in booked}
        for name, host in mine.items():
            self._placed.leave(name, host)
        try:
            yield
        finally:
            for name, host in mine.items():
                self._placed.enter(name, host)

    def choose(self, record: LeaseRecord) -> HostChoice | None:
        """Return the hosts on which a lease may begin, None for any.

        They follow from where all other servers are, or are booked for.
        """
        due = self._due_to_boot(record)
        if not due or len(due) < len(record.nodes):
            return None     # it has begun
        first_of = {index: name_of(record, number)
                    for index, number in reversed(due)}
        sets = [first_of[index] for index in sorted(first_of)]
        # Leases alike have one choice, unless their own booking matters.
        alike = None if record.uuid in self._booked else (
            len(due) > 1, *map(self._rules.concerning, sets))
        found = self._alike.get(alike)
        if found is None:
            with self._without(record, [number for _, number in due]):
                found = self._choose(sets, name_of(record, due[-1][1]))
            if alike is not None:
                self._alike[alike] = found
        return found

    def _choose(self, sets: Sequence[str], last: str) -> HostChoice:
        """Return the choice of servers that are on no host yet.

        A constraint on a lease names all of its servers.  So the hosts left
        to the last one, once the first one is on a host, show which hosts the
        lease may use together.

        :param sets: the first server of each node set
        :param last: the last of all servers
        """
        if not self._rules.constraints:
            return HostChoice((self._reachable,) * len(sets),
                              (self._reachable,), NEVER)
        usable = tuple(self._admitted(name) for name in sets)
        groups: dict[frozenset[str] | None, None] = {}
        most, first = NEVER, sets[0]
        for number in np.flatnonzero(usable[0]).tolist() if (
                first != last) else ():
            host = self._hosts[number]
            self._placed.enter(first, host)
            groups[self._rules.confine(last, None, self._placed)] = None
            if not self._rules.admits(last, None, host, self._placed):
                most = 1
            self._placed.leave(first, host)
        return HostChoice(usable, tuple(
            np.array([one is None or host in one for host in self._hosts])
            for one in groups or {None: None}), most)

    def _admitted(self, name: str) -> Bools:
        return self._reachable & np.array([
            self._rules.admits(name, None, host, self._placed)
            for host in self._hosts], dtype=bool)

    def usable_hosts(self, record: LeaseRecord, number: int) -> Bools:
        """Return the hosts on which a node may boot, shape (hosts,).

        Its peers are on their hosts, or on those for which they are booked.
        """
        with self._without(record, [number]):
            return self._admitted(name_of(record, number))

    def misplaced(self, record: LeaseRecord) -> list[tuple[int, str]]:
        """Return the nodes that may not boot on their booked hosts.

        Nodes that boot already are left out.

        :returns: for each the number, and the host
        """
        booked = self._booked.get(record.uuid, {})
        found = []
        with self._without(record, booked):
            entered = []
            for number, host in booked.items():
                name = name_of(record, number)
                if (record.uuid, number) not in self._cloud_state.pending and (
                        self._blocking(name, host)):
                    found.append((number, host))
                else:
                    self._placed.enter(name, host)
                    entered.append((name, host))
            for name, host in entered:
                self._placed.leave(name, host)
        return found

    def blocking(self, record: LeaseRecord, number: int, host: str
                 ) -> tuple[Constraint, ...]:
        """Return the constraints that keep a node from booting on a host.
        """
        with self._without(record, [number]):
            return self._blocking(name_of(record, number), host)

    def _blocking(self, name: str, host: str) -> tuple[Constraint, ...]:
        return tuple(dict.fromkeys(
            one for placed in (self._now, self._placed)
            for one in self._rules.blocking(name, None, host, placed)))

    def permit(self, record: LeaseRecord, order: OperationRequest) -> bool:
        """Return whether a server may boot on the host of an order.

        If so, it counts there from now on.  Bookings of other servers count
        only once these boot.
        """
        if order.kind is not LeaseOperation.BOOT or order.host is None:
            return True
        name = name_of(record, order.place[1])
        if not self._rules.admits(name, None, order.host, self._now):
            return False
        self._now.enter(name, order.host)
        return True
