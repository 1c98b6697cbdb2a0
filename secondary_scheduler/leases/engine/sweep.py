# SPDX-License-Identifier: Apache-2.0

"""Sweep: servers with the label of a lease that has no record.

A server of a lease that is over is deleted.  One of a lease that the database
does not know is reported.  It is deleted only if the operator asks for that,
and if the database was complete when the server was created: a database that
is new, or was restored, lacks leases whose servers run.
"""

from collections.abc import Collection, Mapping
import dataclasses

from oslo_log import log as logging
from oslo_utils import uuidutils

from secondary_scheduler.leases.api.db import models, schedules
from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.leases.engine.estimates import Estimates
from secondary_scheduler.leases.engine.reconcile import (
    START_TIMEOUT_S,
    retry_at,
)
from secondary_scheduler.leases.engine.schedule_ledger import ScheduleLedger
from secondary_scheduler.leases.engine.values import (
    CloudState,
    Failure,
    LeaseOperation,
    LeaseServer,
    OperationRequest,
)
from secondary_scheduler.model import lease_states

LOG = logging.getLogger(__name__)

#: Leases looked up in one pass, at most, and seconds until the same one is
#: looked up again.
_LOOKED_UP, _AGAIN_S = 500, 60.0
#: Deletions under way at a time: appliers have few threads, and operations
#: with a planned time use the same ones.
_TOGETHER = 8
#: Unknown servers that one pass names in the log.
_NAMED = 20
#: Most by which the clocks of Nova, the service and the engine differ.
_CLOCKS_S = 60


@dataclasses.dataclass(frozen=True)
class _LookUp:
    """Result of the look-up of a lease.

    :param at: time of the look-up.
    :param row: the lease, if the database knows it.
    :param told: texts of its events about servers left over.
    :param complete_since: time since which the database lacks no lease.
    """

    at: float
    row: models.LeaseRow | None
    told: Collection[str]
    complete_since: float


class Sweep:
    """Finds and deletes servers without a record; one for each engine.

    :param delete_unknown: delete servers of unknown leases, too.
    """

    def __init__(self, database: Database, delete_unknown: bool) -> None:
        self._database = database
        self._delete_unknown = delete_unknown
        self._known: dict[str, _LookUp] = {}
        self._attempts: dict[str, Failure] = {}
        self._named: set[str] = set()
        self._deletable: list[LeaseServer] = []
        #: Number of servers of unknown leases in the last pass.
        self.unknown = 0

    def drop_state(self) -> None:
        """Look all leases up again."""
        self._known.clear()
        self._attempts.clear()

    def examine_servers(
        self,
        ledger: ScheduleLedger,
        cloud_state: CloudState,
        now: float,
        looked_at: int,
    ) -> frozenset[str]:
        """Find the servers to delete; report those of unknown leases.

        A label counts only for a server that the lease can have: owners can
        write labels.  A server with another one is as one without a label.

        :param looked_at: time of the last heartbeat of this engine.
        :returns: UUIDs of the servers that are not to be adopted.
        """
        known = ledger.known_servers()
        labelled = [one for one in cloud_state.servers.values()
                    if one.node is not None and one.reachable
                    and one.uuid not in known
                    and one.lease not in ledger.records
                    and uuidutils.is_uuid_like(one.lease)]
        self._look_up({one.lease for one in labelled}, now, looked_at)
        claimed: set[str] = set()
        unknown: list[LeaseServer] = []
        self._deletable = []
        for server in labelled:
            found = self._known.get(server.lease)
            row = None if found is None else found.row
            if row is not None and not _is_of(server, row):
                continue
            claimed.add(server.uuid)
            if found is None:
                continue
            if row is None:
                unknown.append(server)
            if self._may_delete(server, found):
                self._deletable.append(server)
        self._report(unknown)
        left = {one.uuid for one in labelled}
        self._attempts = {uuid: one for uuid, one in self._attempts.items()
                          if uuid in left}
        return frozenset(claimed)

    def _may_delete(self, server: LeaseServer, found: _LookUp) -> bool:
        if found.row is not None:
            return found.row.state in lease_states.FINAL
        return (self._delete_unknown and server.created is not None
                and server.created > found.complete_since + _CLOCKS_S)

    def _look_up(self, leases: Collection[str], now: float, looked_at: int
                 ) -> None:
        """Look leases up in the database, the latest looked up last."""
        self._known = {lease: one for lease, one in self._known.items()
                       if lease in leases}
        last = {lease: self._known[lease].at if lease in self._known else 0.0
                for lease in leases}
        due = sorted((at, lease) for lease, at in last.items()
                     if at <= now - _AGAIN_S)[:_LOOKED_UP]
        if not due:
            return
        found = schedules.find_leases(
            self._database, [lease for _, lease in due], int(now), looked_at)
        for _, lease in due:
            self._known[lease] = _LookUp(
                now, found.rows.get(lease), found.left_over.get(lease, ()),
                found.complete_since)

    def _report(self, unknown: Collection[LeaseServer]) -> None:
        """Name each server of an unknown lease in the log, once."""
        self.unknown = len(unknown)
        self._named &= {one.uuid for one in unknown}
        for one in [one for one in unknown
                    if one.uuid not in self._named][:_NAMED]:
            self._named.add(one.uuid)
            LOG.warning(
                'Server %(server)s of project %(project)s has the label of '
                'lease %(lease)s, which this database does not know.', {
                    'server': one.uuid, 'project': one.project,
                    'lease': one.lease})

    def due_deletions(
        self,
        ledger: ScheduleLedger,
        cloud_state: CloudState,
        estimates: Estimates,
        now: float,
        most: int,
    ) -> list[OperationRequest]:
        """Return the deletions to order in this pass.

        They have no planned time, so few are under way at once.

        :param most: number of operations that may be ordered.
        """
        found: list[OperationRequest] = []
        places = {one.lease_node for one in self._deletable}
        taken = places & cloud_state.pending
        for server in sorted(self._deletable, key=lambda one: (
                _count(self._attempts, one.uuid), one.uuid)):
            if len(taken) >= _TOGETHER or len(found) >= most:
                break
            place = server.lease_node
            before = self._attempts.get(server.uuid)
            if place in taken or now < max(
                    retry_at(before),
                    retry_at(cloud_state.failures.get(
                        (place, LeaseOperation.DELETE)))):
                continue
            taken |= {place}
            found.append(OperationRequest(
                LeaseOperation.DELETE, place, server.project, server.host,
                now, now + START_TIMEOUT_S, server.uuid,
                expected=estimates.expected_seconds(
                    LeaseOperation.DELETE, server.need[1])))
            if before is None:
                self._announce(ledger, server)
            self._attempts[server.uuid] = Failure(
                1 + _count(self._attempts, server.uuid), now)
        return found

    def _announce(self, ledger: ScheduleLedger, server: LeaseServer) -> None:
        """Tell the operator and the owner that a server is deleted."""
        LOG.warning('Server %(server)s of lease %(lease)s is deleted: the '
                    'lease is over, or not in this database.', {
                        'server': server.uuid, 'lease': server.lease})
        found = self._known[server.lease]
        text = (f'server {server.uuid} still existed after the end of the '
                'lease; it is deleted')
        if found.row is not None and text not in found.told:
            ledger.add_late_event(found.row, schedules.LEFT_OVER, text)


def _is_of(server: LeaseServer, row: models.LeaseRow) -> bool:
    """Return whether a labelled server can be one of a lease.

    It is as the engine has made it: for its owner, for one of its nodes, and
    not before the lease was asked for.
    """
    number = sum(one.number for one in row.nodes)
    return (row.duration is not None
            and (server.project, server.user) == (row.project_id, row.user_id)
            and server.lease_node[1] < number
            and (server.created is None
                 or server.created >= row.created_at - _CLOCKS_S))


def _count(attempts: Mapping[str, Failure], server: str) -> int:
    return attempts[server].count if server in attempts else 0
