# SPDX-License-Identifier: Apache-2.0

"""Records of Watcher's action plans and their operations.

A decision engine copies them from Watcher's database, so that they can be
listed with one query, and are kept when Watcher's are purged.
"""

from collections.abc import Collection, Mapping, Sequence
import dataclasses
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from secondary_scheduler.leases.api.db import errors
from secondary_scheduler.leases.api.db.record_models import (
    RecordedOperation,
    RecordedPlan,
)
from secondary_scheduler.leases.api.db.session import Database, retried


@dataclasses.dataclass(frozen=True)
class OperationRecord:
    """An operation; times in seconds since 1970, None if unknown.

    ``id`` is the UUID of its action. ``document`` has the other fields of
    ``schemas.OPERATION``.
    """

    id: str
    server_id: str | None
    source: str | None
    target: str | None
    began_at: int | None
    ended_at: int | None
    document: Mapping[str, typing.Any]


@dataclasses.dataclass(frozen=True)
class PlanRecord:
    """An action plan; times in seconds since 1970.

    ``document`` has the fields of ``schemas.PLAN`` that are missing here.
    """

    uuid: str
    request: str
    state: str
    created_at: int
    updated_at: int | None
    document: Mapping[str, typing.Any]
    operations: Sequence[OperationRecord]


@retried
def write_plans(database: Database, plans: Sequence[PlanRecord]) -> None:
    """Store plans, or replace them by their present state.

    A begin that was observed and the name of a server that was known stay.
    """
    if not plans:
        return
    with database.writer() as session:
        # A write comes first: see ``Database.writer``.
        session.execute(sa.update(RecordedPlan).where(
            RecordedPlan.uuid.in_([one.uuid for one in plans])).values(
                updated_at=RecordedPlan.updated_at))
        known = {row.uuid: row for row in session.scalars(
            sa.select(RecordedPlan).where(RecordedPlan.uuid.in_(
                [one.uuid for one in plans])))}
        for one in plans:
            row = known.get(one.uuid)
            if row is None:
                row = RecordedPlan(uuid=one.uuid, created_at=one.created_at,
                                   operations=[])
                session.add(row)
            row.request, row.state = one.request, one.state
            row.updated_at, row.document = one.updated_at, dict(one.document)
            _replace_operations(row, one.operations)


def _replace_operations(row: RecordedPlan,
                        operations: Sequence[OperationRecord]) -> None:
    before = {(old.document['id'], old.server_id): old
              for old in row.operations}
    found = []
    for one in operations:
        old = before.get((one.id, one.server_id)) or RecordedOperation(
            server_id=one.server_id, document={})
        document = {'id': one.id, **one.document}
        if document.get('server_name') is None:
            document['server_name'] = old.document.get('server_name')
        old.source, old.target = one.source, one.target
        # A measured duration is more exact than the observed begin.
        old.began_at = (old.began_at or one.began_at
                        if document.get('seconds') is None else one.began_at)
        old.ended_at, old.document = one.ended_at, document
        found.append(old)
    row.operations = found


@retried
def last_change(database: Database) -> int | None:
    """Return the time of the latest change of a recorded plan."""
    with database.reader() as session:
        return session.scalar(sa.select(sa.func.max(sa.func.coalesce(
            RecordedPlan.updated_at, RecordedPlan.created_at))))


@retried
def delete_plans(database: Database, before: int) -> None:
    """Delete the plans that were created before a time."""
    with database.writer() as session:
        session.execute(sa.delete(RecordedPlan).where(
            RecordedPlan.created_at < before))


@retried
def read_plans(
    database: Database,
    *,
    host: str | None = None,
    server: str | None = None,
    request: str | None = None,
    among: Collection[str] | None = None,
    since: int | None = None,
    until: int | None = None,
    marker: str | None = None,
    limit: int | None = None,
) -> list[RecordedPlan]:
    """Return plans, the newest first, with all of their operations.

    :param host: plans with an operation from or to this host.
    :param server: plans with an operation on this server (UUID).
    :param among: states of the plans; None is any.
    :param since: plans that were created then or later.
    :param until: plans that were created before.
    :param marker: UUID of the plan after which to begin.
    :raises UnknownPlan: if there is no such marker.
    """
    query = sa.select(RecordedPlan).order_by(
        RecordedPlan.created_at.desc(), RecordedPlan.id.desc()).limit(limit)
    parts = []
    if host is not None:
        parts.append(sa.or_(RecordedOperation.source == host,
                            RecordedOperation.target == host))
    if server is not None:
        parts.append(RecordedOperation.server_id == server)
    if parts:
        query = query.where(RecordedPlan.id.in_(
            sa.select(RecordedOperation.plan_id).where(*parts)))
    if request is not None:
        query = query.where(RecordedPlan.request == request)
    if among is not None:
        query = query.where(RecordedPlan.state.in_(among))
    if since is not None:
        query = query.where(RecordedPlan.created_at >= since)
    if until is not None:
        query = query.where(RecordedPlan.created_at < until)
    with database.reader() as session:
        if marker is not None:
            query = query.where(_after(session, marker))
        return list(session.scalars(query))


def _after(session: orm.Session, marker: str) -> sa.ColumnElement[bool]:
    found = session.scalar(sa.select(RecordedPlan).where(
        RecordedPlan.uuid == marker))
    if found is None:
        raise errors.UnknownPlan(f'there is no plan {marker}')
    return sa.or_(
        RecordedPlan.created_at < found.created_at,
        sa.and_(RecordedPlan.created_at == found.created_at,
                RecordedPlan.id < found.id))
