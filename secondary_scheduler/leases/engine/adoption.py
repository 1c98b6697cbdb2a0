"""Servers without a lease, which are best-effort leases of one.

Nobody knows how long they are to run.  Such a lease is over when its server
does not run any more by anybody else's will, and the server is its owner's to
start, resume or delete; when it runs again it is a new lease.
"""

from collections.abc import Mapping

from oslo_utils import uuidutils

from secondary_scheduler.leases.api.db.models import Nodes
from secondary_scheduler.leases.api.db.requests import LeaseRequest
from secondary_scheduler.leases.engine.records import LeaseRecord, Node
from secondary_scheduler.leases.engine.served_time import Served
from secondary_scheduler.leases.engine.values import (
    RUNNING,
    SAVED,
    CloudState,
    LeaseServer,
)
from secondary_scheduler.leases.scheduling.lease import Lease, NodeSet, Terms
from secondary_scheduler.leases.scheduling.types import NEVER

#: How many become leases in one pass, so that none lasts for long.
_MOST = 100


def strays(cloud_state: CloudState,
           records: Mapping[str, LeaseRecord]) -> list[LeaseServer]:
    """Return the servers that are to become leases now.

    They are no lease's, nor can be what they say to be.
    """
    known = {node.server for record in records.values()
             for node in record.nodes}
    found = [one for one in cloud_state.servers.values()
             if one.uuid not in known and one.host in cloud_state.hosts
             and one.suspendable and one.status == RUNNING and not one.busy
             and (one.lease not in records or records[one.lease].node_of(
                 one, cloud_state.servers) is None)]
    return sorted(found, key=lambda one: one.uuid)[:_MOST]


def record(server: LeaseServer, now: int) -> LeaseRecord:
    """Return the lease of a server, which nobody has asked for."""
    asked = LeaseRequest(
        uuidutils.generate_uuid(), server.project, server.user,
        (Nodes(1, server.flavor),), None, server.name)
    lease = Lease(asked.uuid, Terms((NodeSet(1, server.need),), NEVER,
                                    user=server.project), now)
    return LeaseRecord(asked.lease(now), lease, 0,
                       [Node(server.uuid, server.host, ran=True, lived=True)],
                       made=asked, served=Served(since=now, until=now))


def has_left(
    record: LeaseRecord,
    server: LeaseServer,
    cloud_state: CloudState,
    soon: float,
) -> bool:
    """Tell whether the server of an adopted lease is none of its any more.

    It does not run, which the schedule has not wanted and does not want by
    ``soon``, or it has become another one.  Who gave way to a primary comes
    back.
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
