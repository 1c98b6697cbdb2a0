# SPDX-License-Identifier: Apache-2.0

"""Requests for leases, and their conversion to rows."""

import dataclasses
import hashlib
import json
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from secondary_scheduler.leases.api.db import errors
from secondary_scheduler.leases.api.db.models import (
    TERMS,
    LeaseRow,
    Nodes,
    NodeSetRow,
    UserData,
)
from secondary_scheduler.leases.api.db.session import Database, retried
from secondary_scheduler.model.lease_states import LeaseState


@dataclasses.dataclass(frozen=True)
class LeaseRequest:
    """A request for a lease; times as in ``models.RequestedTerms``.

    ``token`` is the client's: a repeated request with the same token returns
    the existing lease. A lease without a duration is an adopted one.
    ``trust_id`` and ``unverified`` are those of ``models.LeaseRow``.
    """

    uuid: str
    project_id: str
    user_id: str
    nodes: tuple[Nodes, ...]
    duration: int | None
    name: str = ''
    start: int | None = None
    deadline: int | None = None
    immediate: bool = False
    preemptible: bool = True
    max_rate: float | None = None
    token: str | None = None
    trust_id: str | None = None
    unverified: tuple[dict[str, str], ...] = ()

    @property
    def number(self) -> int:
        """Number of requested nodes."""
        return sum(one.number for one in self.nodes)

    @property
    def terms(self) -> dict[str, typing.Any]:
        """Requested terms, as columns of a lease."""
        return {name: getattr(self, name) for name in ('name', *TERMS)}

    def make_lease(self, now: int) -> LeaseRow:
        """Return a new lease with these terms."""
        return LeaseRow(
            uuid=self.uuid, project_id=self.project_id,
            user_id=self.user_id, **self.terms, state=LeaseState.NEW,
            hold=False, wanted_end=False, reason='', price=None,
            next_start=None, created_at=now, updated_at=now, revision=1,
            token=None if self.token is None else digest(self.token),
            fingerprint=self.fingerprint,
            trust_id=self.trust_id, unverified=list(self.unverified),
            servers=[], nodes=[_node_set(one) for one in self.nodes])

    @property
    def fingerprint(self) -> str:
        """Digest of the terms, to compare requests."""
        return digest(json.dumps(
            [self.terms, [dataclasses.astuple(one) for one in self.nodes]],
            sort_keys=True))


def _node_set(one: Nodes) -> NodeSetRow:
    columns = dataclasses.asdict(one)
    content = columns.pop('user_data')
    return NodeSetRow(**columns, has_user_data=one.has_user_data,
                      secret=None if content is None
                      else UserData(content=content))


def digest(text: str) -> str:
    """Return a digest of a text, which fits a column."""
    return hashlib.sha256(text.encode()).hexdigest()


@retried
def node_sets(database: Database, uuid: str) -> list[Nodes]:
    """Return the node sets of a lease, without user data.

    :raises UnknownLease: if there is no such lease.
    """
    query = (
        sa.select(NodeSetRow)
        .join(LeaseRow, LeaseRow.id == NodeSetRow.lease_id)
        .where(LeaseRow.uuid == uuid)
        .order_by(NodeSetRow.id)
    )
    with database.reader() as session:
        found = [Nodes(one.number, one.flavor, one.image, one.network,
                       one.key_name, server=one.server or {})
                 for one in session.scalars(query)]
    if not found:
        raise errors.UnknownLease(f'there is no lease {uuid}')
    return found


@retried
def server_request(database: Database, uuid: str, node: int
                   ) -> dict[str, typing.Any]:
    """Return the properties of Nova's request for the server of a node.

    :param node: its number among all nodes of the lease, from 0 on.
    :returns: ``server`` of its node set, with ``user_data`` if there is any.
    :raises UnknownLease: if there is no such node.
    """
    query = (
        sa.select(NodeSetRow)
        .join(LeaseRow, LeaseRow.id == NodeSetRow.lease_id)
        .where(LeaseRow.uuid == uuid)
        .order_by(NodeSetRow.id)
        .options(orm.joinedload(NodeSetRow.secret))
    )
    first = 0
    with database.reader() as session:
        for one in session.scalars(query):
            if first <= node < first + one.number:
                return one.server | (
                    {} if one.secret is None
                    else {'user_data': one.secret.content})
            first += one.number
    raise errors.UnknownLease(f'there is no node {node} of a lease {uuid}')
