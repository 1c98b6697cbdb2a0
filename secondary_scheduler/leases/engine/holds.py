# SPDX-License-Identifier: Apache-2.0

"""Holds: capacity of hosts reserved for servers of leases that start soon."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from secondary_scheduler.leases.engine import assignment, capacity
from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.engine.values import OFF, RESOURCES, CloudState
from secondary_scheduler.model import lease_states, vocabulary
from secondary_scheduler.model.holds import MOST_HOSTS, MOST_LEASES, Hold


def compute_holds(
    records: Iterable[LeaseRecord],
    cloud_state: CloudState,
    hosts: Sequence[str],
    soon: float,
) -> dict[str, Hold]:
    """Return the holds for servers that are to run by ``soon`` and do not yet.

    A hold names the leases, and the room of the host without them and without
    the secondaries on it.  If there are too many hosts, those of the leases
    with the earliest bookings count.
    """
    taken = capacity.sum_used(cloud_state, frozenset())
    held: dict[str, list[int]] = {}
    coming = defaultdict(set)
    for record in sorted(records, key=_begin):
        for host, need in _missing(record, cloud_state, hosts, soon):
            if host in cloud_state.hosts and (host in held
                                              or len(held) < MOST_HOSTS):
                amounts = held.setdefault(host, [0] * len(RESOURCES))
                for index, amount in enumerate(need):
                    amounts[index] += amount
                coming[host].add(record.uuid)
    return {host: Hold({
        name: max(0, total - there - more) for name, total, there, more in zip(
            vocabulary.RESOURCE_CLASSES, cloud_state.hosts[host].total,
            taken.get(host, [0] * len(RESOURCES)), amounts, strict=True)},
        frozenset(coming[host])) for host, amounts in held.items()
        if len(coming[host]) <= MOST_LEASES}


def _begin(record: LeaseRecord) -> int:
    booking = record.lease.booking
    return 0 if booking is None else booking.begin


def _missing(
    record: LeaseRecord,
    cloud_state: CloudState,
    hosts: Sequence[str],
    soon: float,
) -> Iterable[tuple[str, tuple[int, ...]]]:
    """Yield host and amounts of each server that is to run and does not."""
    lease, booking = record.lease, record.lease.booking
    if booking is None or booking.begin > soon or not (
            lease.ahead or lease.state in lease_states.HOLDING):
        return
    places = assignment.assign_hosts(record, booking.vms, hosts)
    for index, number in record.numbered_nodes():
        node = record.nodes[number]
        server = cloud_state.servers.get(node.server or '')
        if not node.gone and (server is None or (
                server.status in OFF and not server.busy)):
            yield places[number], lease.terms.nodes[index].need
