# SPDX-License-Identifier: Apache-2.0

"""Bulk writes of the changes of leases in a pass of the engine.

Each kind of row is read and written by a few statements for all leases of a
batch.  With an object of the ORM for each row, a changed lease took ten times
the CPU time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from secondary_scheduler.leases.api.db import accounting
from secondary_scheduler.leases.api.db.models import (
    Event,
    LeaseRow,
    NodeSetRow,
    Schedule,
    ServerRow,
    UserData,
)
from secondary_scheduler.leases.api.db.requests import LeaseRequest
from secondary_scheduler.model import lease_states


@dataclasses.dataclass(frozen=True)
class NewEvent:
    """An event of a lease that is not stored yet."""

    kind: str
    text: str = ''


@dataclasses.dataclass(frozen=True)
class Change:
    """Changes of a lease in a pass.

    ``document`` is the engine's record (None: unchanged), ``values`` are
    columns of the lease, ``servers`` the UUIDs of all its servers (None:
    unchanged). ``made`` is the request of a lease that is to be created.
    ``served`` seconds and their ``charge`` do not change the revision.
    ``books`` tells that it has hosts booked for a time that has not begun.
    """

    uuid: str
    document: str | None
    values: Mapping[str, object] = dataclasses.field(default_factory=dict)
    servers: Sequence[str] | None = None
    events: Sequence[NewEvent] = ()
    made: LeaseRequest | None = None
    served: int = 0
    charge: float | None = None
    books: bool = False


#: A lease and one of its events, for announcements.
Announced = tuple[LeaseRow, Event]


def write_changes(session: orm.Session, changes: Sequence[Change], now: int
                  ) -> list[Announced]:
    """Write changes of leases; return the resulting events.

    A lease that is over and was deleted by its owner is left out.
    """
    for one in changes:
        if one.made is not None:
            session.add(one.made.make_lease(now))
    session.flush()
    leases = _read_leases(session, changes)
    found = [(leases[one.uuid], one) for one in changes if one.uuid in leases]
    _add_served(session, found, now)
    _write_leases(session, found, now)
    _write_servers(session, [(lease, one.servers) for lease, one in found
                             if one.servers is not None])
    delete_user_data(session, [
        lease.id for lease, one in found
        if one.values.get('state') in lease_states.FINAL])
    _write_documents(session, {
        lease.id: one.document for lease, one in found
        if one.document is not None})
    return _write_events(session, found, now)


def _read_leases(session: orm.Session, changes: Sequence[Change]
                 ) -> dict[str, typing.Any]:
    """Return the stored leases by UUID, locked until the transaction ends.

    Only plain columns are read: no value of another lease can be faulty.
    """
    columns = LeaseRow.__table__.c
    return {row.uuid: row for row in session.execute(
        sa.select(*(columns[name] for name in (
            'id', 'uuid', 'project_id', 'user_id', 'name', 'state',
            'revision', 'served', 'charge')))
        .where(columns.uuid.in_([one.uuid for one in changes]))
        .order_by(columns.id).with_for_update())}


_Found = Sequence[tuple[typing.Any, Change]]


def _add_served(session: orm.Session, found: _Found, now: int) -> None:
    """Add what was served since the last pass to the accounts."""
    more = [(lease, one.served - (lease.served or 0),
             (one.charge or 0.0) - (lease.charge or 0.0))
            for lease, one in found]
    more = [one for one in more if one[1] or one[2]]
    if not more:
        return
    nodes = dict(session.execute(
        sa.select(NodeSetRow.lease_id, sa.func.sum(NodeSetRow.number))
        .where(NodeSetRow.lease_id.in_([lease.id for lease, _, _ in more]))
        .group_by(NodeSetRow.lease_id)).tuples().all())
    accounting.add_served(session, [
        accounting.Served(lease.uuid, lease.project_id, served,
                          served * int(nodes.get(lease.id, 0)), charge)
        for lease, served, charge in more], now)


def _write_leases(session: orm.Session, found: _Found, now: int) -> None:
    """Write the columns of leases, by one statement for the same columns."""
    table = LeaseRow.__table__
    groups: dict[tuple[str, ...], list[dict[str, object]]] = defaultdict(list)
    for lease, one in found:
        values = dict(one.values)
        if (one.served, one.charge) != (lease.served, lease.charge):
            values |= {'served': one.served, 'charge': one.charge}
        if _is_revised(one):
            values['updated_at'] = now
        if values:
            groups[tuple(sorted(values))].append(
                {'row': lease.id, **{f'new_{name}': value
                                     for name, value in values.items()}})
    for names, rows in groups.items():
        new: dict[str, typing.Any] = {
            name: sa.bindparam(f'new_{name}', type_=table.c[name].type)
            for name in names}
        if 'updated_at' in names:
            # The owner may change the lease at the same time.
            new['revision'] = table.c.revision + 1
        session.execute(sa.update(table).where(
            table.c.id == sa.bindparam('row')).values(new), rows)


def _is_revised(change: Change) -> bool:
    return bool(change.values) or change.servers is not None


def _write_servers(session: orm.Session,
                   wanted: Iterable[tuple[typing.Any, Sequence[str]]]
                   ) -> None:
    """Replace the servers of leases."""
    new = {(lease.id, uuid) for lease, uuids in wanted for uuid in uuids}
    old = {(row.lease_id, row.uuid): row.id for row in session.execute(
        sa.select(ServerRow.id, ServerRow.lease_id, ServerRow.uuid).where(
            ServerRow.lease_id.in_([lease.id for lease, _ in wanted])))}
    gone = [row for key, row in old.items() if key not in new]
    if gone:
        session.execute(sa.delete(ServerRow.__table__).where(
            ServerRow.id.in_(gone)))
    rows = [{'lease_id': lease.id, 'uuid': uuid} for lease, uuids in wanted
            for uuid in uuids if (lease.id, uuid) not in old]
    if rows:
        session.execute(sa.insert(ServerRow.__table__), rows)


def delete_user_data(session: orm.Session, leases: Sequence[int]) -> None:
    """Delete the user data of leases that are over, which may hold secrets."""
    if leases:
        session.execute(sa.delete(UserData.__table__).where(
            UserData.node_set_id.in_(sa.select(NodeSetRow.id).where(
                NodeSetRow.lease_id.in_(leases)))))


def _write_documents(session: orm.Session, documents: Mapping[int, str]
                     ) -> None:
    """Write the records of leases, by row of the lease."""
    table = Schedule.__table__
    stored = set(session.scalars(sa.select(Schedule.lease_id).where(
        Schedule.lease_id.in_(documents))))
    changed = [{'row': row, 'text': text} for row, text in documents.items()
               if row in stored]
    if changed:
        session.execute(
            sa.update(table).where(table.c.lease_id == sa.bindparam('row'))
            .values(document=sa.bindparam('text')), changed)
    new = [{'lease_id': row, 'document': text}
           for row, text in documents.items() if row not in stored]
    if new:
        session.execute(sa.insert(table), new)


def _write_events(session: orm.Session, found: _Found, now: int
                  ) -> list[Announced]:
    """Write the events; return them with their leases."""
    told = [(lease, one) for lease, one in found if one.events]
    if not told:
        return []
    servers: dict[int, list[ServerRow]] = defaultdict(list)
    for row in session.execute(
            sa.select(ServerRow.lease_id, ServerRow.uuid)
            .where(ServerRow.lease_id.in_([lease.id for lease, _ in told]))
            .order_by(ServerRow.id)):
        servers[row.lease_id].append(ServerRow(uuid=row.uuid))
    announced = []
    for lease, one in told:
        state = one.values.get('state', lease.state)
        shown = LeaseRow(
            uuid=lease.uuid, project_id=lease.project_id,
            user_id=lease.user_id, name=lease.name, state=state,
            revision=lease.revision + _is_revised(one),
            servers=servers[lease.id])
        announced += [
            (shown, Event(lease_id=lease.id, time=now, kind=event.kind,
                          state=state, text=event.text))
            for event in one.events]
    session.execute(sa.insert(Event.__table__), [
        {name: getattr(event, name) for name in (
            'lease_id', 'time', 'kind', 'state', 'text')}
        for _, event in announced])
    return announced
