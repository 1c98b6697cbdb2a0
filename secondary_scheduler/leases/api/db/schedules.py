# SPDX-License-Identifier: Apache-2.0

"""Data of the engine: records of leases, heartbeat and learned state.

All changes of a pass are written in one transaction, and only if no other
engine has written a pass since they were read. So two engines cannot both
continue.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import types
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from secondary_scheduler.leases.api.db import accounting
from secondary_scheduler.leases.api.db.models import (
    EngineRow,
    Event,
    Learned,
    LeaseRow,
    Schedule,
    ServerRow,
)
from secondary_scheduler.leases.api.db.requests import LeaseRequest
from secondary_scheduler.leases.api.db.session import Database, retried
from secondary_scheduler.leases.api.db.store import OPEN
from secondary_scheduler.model.lease_states import LeaseState

_ENGINE = 1
_TAKEN = OPEN - {LeaseState.NEW}


class Overtaken(Exception):
    """Another engine has written a pass meanwhile."""


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
    """

    uuid: str
    document: str | None
    values: Mapping[str, typing.Any] = dataclasses.field(default_factory=dict)
    servers: Sequence[str] | None = None
    events: Sequence[NewEvent] = ()
    made: LeaseRequest | None = None
    served: int = 0
    charge: float | None = None


@dataclasses.dataclass(frozen=True)
class EngineHeartbeat:
    """Time of the last pass over all leases, in seconds since 1970.

    ``trouble`` is the reason for which there has been none since, or ''.
    """

    looked_at: int | None
    trouble: str


@dataclasses.dataclass(frozen=True)
class OwnerRequests:
    """Requests of the owner of a lease: to pause it, to cancel it."""

    hold: bool
    wanted_end: bool


@retried
def read_pass(database: Database
              ) -> tuple[int, list[tuple[LeaseRow, str | None]]]:
    """Return the number of passes, and all taken leases that are not over.

    Each lease comes with its record, if it has one; the oldest is first.
    """
    with database.reader() as session:
        passes = session.scalar(
            sa.select(EngineRow.passes).where(EngineRow.id == _ENGINE))
        found = session.execute(
            sa.select(LeaseRow, Schedule.document)
            .outerjoin(Schedule, Schedule.lease_id == LeaseRow.id)
            .where(LeaseRow.state.in_(_TAKEN)).order_by(LeaseRow.id))
        return int(passes or 0), [
            (lease, document) for lease, document in found]


@retried
def read_learned(database: Database, name: str) -> str | None:
    """Return the learned state of a driver, None if there is none.

    It is no older than the results of an earlier ``read_pass``.
    """
    with database.reader() as session:
        return session.scalar(
            sa.select(Learned.document).where(Learned.name == name))


@retried
def read_owner_requests(database: Database) -> dict[str, OwnerRequests]:
    """Return the owners' requests by UUID, for the leases of ``read_pass``."""
    with database.reader() as session:
        found = session.execute(
            sa.select(LeaseRow.uuid, LeaseRow.hold, LeaseRow.wanted_end)
            .where(LeaseRow.state.in_(_TAKEN)))
        return {uuid: OwnerRequests(hold, end) for uuid, hold, end in found}


@retried
def read_heartbeat(database: Database) -> EngineHeartbeat:
    """Return the last heartbeat of all engines."""
    with database.reader() as session:
        row = session.get(EngineRow, _ENGINE)
        return EngineHeartbeat(None if row is None else row.looked_at,
                               (row and row.trouble) or '')


@retried
def record_heartbeat(database: Database, now: int | None, trouble: str
                     ) -> None:
    """Record that an engine is at work.

    :param now: time of a pass over all leases; None if there was none.
    :param trouble: the reason for which there was none.
    """
    values: dict[str, typing.Any] = {'trouble': trouble}
    if now is not None:
        values['looked_at'] = now
    with database.writer() as session:
        session.execute(sa.update(EngineRow).where(EngineRow.id == _ENGINE)
                        .values(**values))


@retried
def write_pass(database: Database, passes: int, changes: Sequence[Change],
               now: int,
               learned: Mapping[str, str] = types.MappingProxyType({})
               ) -> list[tuple[LeaseRow, Event]]:
    """Write the changes of a pass; return the resulting events.

    :param passes: result of ``read_pass``, incremented by each write.
    :param learned: new learned state of drivers, by name.
    :raises Overtaken: if another engine has written a pass since; nothing is
        written then.
    """
    with database.writer() as session:
        mine = session.execute(
            sa.update(EngineRow).where(EngineRow.id == _ENGINE,
                                       EngineRow.passes == passes)
            .values(passes=passes + 1)).rowcount
        if not mine:
            raise Overtaken('another engine has written a pass since')
        for name, document in learned.items():
            session.merge(Learned(name=name, document=document))
        return [event for change in changes
                for event in _apply(session, change, now)]


def _apply(session: orm.Session, change: Change, now: int
           ) -> list[tuple[LeaseRow, Event]]:
    if change.made is not None:
        session.add(change.made.make_lease(now))
    lease = session.scalar(sa.select(LeaseRow).where(
        LeaseRow.uuid == change.uuid))
    if lease is None:       # over, and deleted by its owner
        return []
    accounting.add_served(
        session, lease, change.served - (lease.served or 0),
        (change.charge or 0.0) - (lease.charge or 0.0), now)
    lease.served, lease.charge = change.served, change.charge
    if change.values or change.servers is not None:
        for name, value in change.values.items():
            setattr(lease, name, value)
        # The owner may change the lease at the same time.
        lease.revision = LeaseRow.revision + 1
        lease.updated_at = now
    if change.servers is not None:
        known = {one.uuid: one for one in lease.servers}
        lease.servers = [
            known.get(uuid) or ServerRow(lease_id=lease.id, uuid=uuid)
            for uuid in change.servers]
    if change.document is not None:
        session.merge(Schedule(lease_id=lease.id, document=change.document))
    events = [Event(lease_id=lease.id, time=now, kind=one.kind,
                    state=lease.state, text=one.text)
              for one in change.events]
    session.add_all(events)
    session.flush()
    session.refresh(lease)
    return [(lease, event) for event in events]
