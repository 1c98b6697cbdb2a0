# SPDX-License-Identifier: Apache-2.0

"""Holds: capacity of hosts reserved for servers of leases that start soon."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import itertools

from secondary_scheduler.leases.engine import assignment, capacity
from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.engine.values import OFF, RESOURCES, CloudState
from secondary_scheduler.model import lease_states, vocabulary
from secondary_scheduler.model.holds import MOST_HOSTS, MOST_LEASES, Hold


@dataclasses.dataclass(frozen=True)
class ExpectedClaims:
    """Claims on a host once the leases that start soon run there.

    :param claims: of these servers and of the secondaries that run there
        now, by resource class
    :param leases: UUIDs of the leases that start soon
    """

    claims: Mapping[str, int]
    leases: frozenset[str]


def expect_claims(
    records: Iterable[LeaseRecord],
    cloud_state: CloudState,
    hosts: Sequence[str],
    soon: float,
) -> dict[str, ExpectedClaims]:
    """Return the claims on hosts of servers to run by ``soon``, if any is new.

    Hosts of the leases with the earliest bookings come first.
    """
    taken = capacity.sum_used(cloud_state, frozenset())
    amounts: dict[str, list[int]] = {}
    coming = defaultdict(set)
    for record in sorted(records, key=_begin):
        for host, need in _missing(record, cloud_state, hosts, soon):
            if host in cloud_state.hosts:
                there = amounts.setdefault(host, list(
                    taken.get(host, [0] * len(RESOURCES))))
                for index, amount in enumerate(need):
                    there[index] += amount
                coming[host].add(record.uuid)
    return {host: ExpectedClaims(
        dict(zip(vocabulary.RESOURCE_CLASSES, there, strict=True)),
        frozenset(coming[host])) for host, there in amounts.items()}


def compute_holds(expected: Mapping[str, ExpectedClaims],
                  cloud_state: CloudState) -> dict[str, Hold]:
    """Return the holds for leases that start soon.

    A hold names the leases, and the room of the host without them and without
    the secondaries on it.  If there are too many hosts, the first ones count.
    """
    return {host: Hold({
        name: max(0, total - one.claims[name]) for name, total in zip(
            vocabulary.RESOURCE_CLASSES, cloud_state.hosts[host].total,
            strict=True)}, one.leases)
        for host, one in itertools.islice(expected.items(), MOST_HOSTS)
        if len(one.leases) <= MOST_LEASES}


def _begin(record: LeaseRecord) -> int:
    booking = record.lease.booking
    return 0 if booking is None else booking.begin


def _missing(
    record: LeaseRecord,
    cloud_state: CloudState,
    hosts: Sequence[str],
    soon: float,
) -> Iterable[tuple[str, tuple[int, ...]]]:
    """Yield host and amounts of each server that is to run and does not.

    The strategy decides on the return of a preempted server, which keeps its
    claim.  A hold for it would close its own host to it.
    """
    lease, booking = record.lease, record.lease.booking
    if booking is None or booking.begin > soon or not (
            lease.ahead or lease.state in lease_states.HOLDING):
        return
    places = assignment.assign_hosts(record, booking.vms, hosts)
    for index, number in record.numbered_nodes():
        node = record.nodes[number]
        server = cloud_state.servers.get(node.server or '')
        if not node.gone and (server is None or (
                server.status in OFF
                and not (server.busy or server.preempted))):
            yield places[number], lease.terms.nodes[index].need
