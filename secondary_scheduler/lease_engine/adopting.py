"""Servers without a lease, which are best-effort leases of one.

Nobody knows how long they are to run.  Such a lease is over when its server
does not run any more by anybody else's will, and the server is its owner's to
start, resume or delete; when it runs again it is a new lease.
"""

from collections.abc import Mapping

from oslo_utils import uuidutils

from secondary_scheduler.lease_api.db.models import Nodes
from secondary_scheduler.lease_api.db.requests import Request
from secondary_scheduler.lease_engine.records import Node, Record
from secondary_scheduler.lease_engine.served import Served
from secondary_scheduler.lease_engine.values import (
    RUNNING,
    SAVED,
    Server,
    Sight,
)
from secondary_scheduler.leases.lease import Lease, NodeSet, Terms
from secondary_scheduler.leases.types import NEVER

#: How many become leases in one pass, so that none lasts for long.
_MOST = 100


def strays(sight: Sight, records: Mapping[str, Record]) -> list[Server]:
    """Return the servers that are to become leases now.

    They are no lease's, nor can be what they say to be.
    """
    known = {node.server for record in records.values()
             for node in record.nodes}
    found = [one for one in sight.servers.values()
             if one.uuid not in known and one.host in sight.hosts
             and one.suspendable and one.status == RUNNING and not one.busy
             and (one.lease not in records or records[one.lease].node_of(
                 one, sight.servers) is None)]
    return sorted(found, key=lambda one: one.uuid)[:_MOST]


def record(server: Server, now: int) -> Record:
    """Return the lease of a server, which nobody has asked for."""
    asked = Request(
        uuidutils.generate_uuid(), server.project, server.user,
        (Nodes(1, server.flavor),), None, server.name)
    lease = Lease(asked.uuid, Terms((NodeSet(1, server.need),), NEVER,
                                    user=server.project), now)
    return Record(asked.lease(now), lease, 0,
                  [Node(server.uuid, server.host, ran=True, lived=True)],
                  made=asked, served=Served(since=now, until=now))


def has_left(record: Record, server: Server, sight: Sight, soon: float
             ) -> bool:
    """Tell whether the server of an adopted lease is none of its any more.

    It does not run, which the schedule has not wanted and does not want by
    ``soon``, or it has become another one.  Who gave way to a primary comes
    back.
    """
    if server.busy or server.preempted:
        return False
    node, stay = record.nodes[0], record.lease.stay
    if server.status == SAVED:
        return node.ran and not (
            stay is not None and stay.saves and stay.down <= soon)
    return (server.status != RUNNING or not server.suspendable
            or server.need != record.lease.terms.nodes[0].need
            or server.host not in (node.host, *sight.hosts))
