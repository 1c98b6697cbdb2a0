# SPDX-License-Identifier: Apache-2.0

"""Adoption of servers without a lease as best-effort leases of one node.

The duration of such a lease is unknown.  It ends when its server stops running
for a reason other than the schedule or a preemption.  Its owner may then
start, resume or delete the server.  When it runs again it gets a new lease.
"""

from collections.abc import Container, Mapping

from oslo_utils import uuidutils

from secondary_scheduler.leases.api.db.models import Nodes
from secondary_scheduler.leases.api.db.requests import LeaseRequest
from secondary_scheduler.leases.engine.records import LeaseRecord, Node
from secondary_scheduler.leases.engine.served_time import ServedTime
from secondary_scheduler.leases.engine.values import (
    RUNNING,
    SAVED,
    CloudState,
    LeaseServer,
)
from secondary_scheduler.leases.scheduling.lease import Lease, NodeSet, Terms
from secondary_scheduler.leases.scheduling.types import NEVER

#: Servers adopted in one pass, at most; keeps passes short.
_MOST = 100


def find_adoptable_servers(
    cloud_state: CloudState,
    records: Mapping[str, LeaseRecord],
    claimed: Container[str] = (),
) -> list[LeaseServer]:
    """Return the servers to adopt in this pass.

    They run, may be suspended, and belong to no lease.  A server whose label
    is valid for a node of a known lease is left to that lease.

    :param claimed: servers that the sweep claims.
    """
    known = {node.server for record in records.values()
             for node in record.nodes}
    found = [one for one in cloud_state.servers.values()
             if one.uuid not in known and one.uuid not in claimed
             and one.host in cloud_state.hosts and one.reachable
             and one.suspendable and one.status == RUNNING and not one.busy
             and (one.lease not in records or records[one.lease].node_of(
                 one, cloud_state.gone) is None)]
    return sorted(found, key=lambda one: one.uuid)[:_MOST]


def make_record(server: LeaseServer, now: int) -> LeaseRecord:
    """Return the record of a new lease for a server that runs already."""
    asked = LeaseRequest(
        uuidutils.generate_uuid(), server.project, server.user,
        (Nodes(1, server.flavor),), None, server.name)
    lease = Lease(asked.uuid, Terms((NodeSet(1, server.need),), NEVER,
                                    user=server.project), now)
    return LeaseRecord(asked.make_lease(now), lease, 0,
                       [Node(server.uuid, server.host, ran=True, lived=True)],
                       pending_request=asked,
                       served=ServedTime(since=now, until=now))


def has_left(
    record: LeaseRecord,
    server: LeaseServer,
    cloud_state: CloudState,
    soon: float,
) -> bool:
    """Return whether an adopted lease has lost its server.

    It has if the server stopped running and the schedule does not suspend it
    by ``soon``.  It also has if the size, host or preempt policy of the
    server no longer matches.  A server preempted for a primary stays, since
    it returns.
    """
    if server.busy or server.preempted:
        return False
    node, booking = record.nodes[0], record.lease.booking
    if server.status == SAVED:
        return node.ran and not (
            booking is not None and booking.saves and booking.down <= soon)
    return (server.status != RUNNING or not server.suspendable
            or server.need != record.lease.terms.nodes[0].need
            or server.host not in (node.host, *cloud_state.hosts))
