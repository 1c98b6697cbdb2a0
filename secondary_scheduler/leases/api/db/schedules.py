"""What the engine reads and writes, pass by pass.

All that a pass has changed is written in one transaction, and only if nobody
else has written one since it was read: so two engines cannot both go on.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import types
import typing

import sqlalchemy as sa
from sqlalchemy import orm

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
class Told:
    """An event of a lease: what happened, and what there is to say of it."""

    kind: str
    text: str = ''


@dataclasses.dataclass(frozen=True)
class Change:
    """What a pass has changed of a lease.

    ``document`` is kept unless it is None, ``values`` are columns of the
    lease; ``servers`` the UUIDs of all that it has (None: as before).  A
    lease that is ``made`` is not there yet.  ``served`` seconds and their
    ``charge`` are no change that its owner is told of.
    """

    uuid: str
    document: str | None
    values: Mapping[str, typing.Any] = dataclasses.field(default_factory=dict)
    servers: Sequence[str] | None = None
    told: Sequence[Told] = ()
    made: LeaseRequest | None = None
    served: int = 0
    charge: float | None = None


@dataclasses.dataclass(frozen=True)
class EngineHeartbeat:
    """When an engine has looked at all leases last, in seconds since 1970.

    ``trouble`` is why that has not been done since, '' if there is none.
    """

    looked_at: int | None
    trouble: str


@dataclasses.dataclass(frozen=True)
class Wish:
    """What the owner of a lease wants of it."""

    hold: bool
    wanted_end: bool


@retried
def read(database: Database) -> tuple[int, list[tuple[LeaseRow, str | None]]]:
    """Return the number of passes, and what is not over.

    That is each lease that somebody has taken, with its document if it has
    one, the oldest first.
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
def learned(database: Database, name: str) -> str | None:
    """Return what a driver has learned, None if nothing yet.

    It is no older than what ``read`` has returned before.
    """
    with database.reader() as session:
        return session.scalar(
            sa.select(Learned.document).where(Learned.name == name))


@retried
def wishes(database: Database) -> dict[str, Wish]:
    """Return what is wanted of leases, by UUID: of those of ``read``."""
    with database.reader() as session:
        return {uuid: Wish(hold, end) for uuid, hold, end in session.execute(
            sa.select(LeaseRow.uuid, LeaseRow.hold, LeaseRow.wanted_end)
            .where(LeaseRow.state.in_(_TAKEN)))}


@retried
def heartbeat(database: Database) -> EngineHeartbeat:
    """Return the last heartbeat of all engines."""
    with database.reader() as session:
        row = session.get(EngineRow, _ENGINE)
        return EngineHeartbeat(None if row is None else row.looked_at,
                               (row and row.trouble) or '')


@retried
def beat(database: Database, now: int | None, trouble: str) -> None:
    """Tell that an engine is at work.

    :param now: when it has looked at all leases; None if it could not.
    :param trouble: why it could not.
    """
    values: dict[str, typing.Any] = {'trouble': trouble}
    if now is not None:
        values['looked_at'] = now
    with database.writer() as session:
        session.execute(sa.update(EngineRow).where(EngineRow.id == _ENGINE)
                        .values(**values))


@retried
def write(database: Database, passes: int, changes: Sequence[Change],
          now: int, learned: Mapping[str, str] = types.MappingProxyType({})
          ) -> list[tuple[LeaseRow, Event]]:
    """Write a pass; return the events that it led to.

    :param passes: as ``read`` returned it, and one more after each write.
    :param learned: what drivers have learned since, by their names.
    :raises Overtaken: if it is another one; nothing is written then.
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
        session.add(change.made.lease(now))
    lease = session.scalar(sa.select(LeaseRow).where(
        LeaseRow.uuid == change.uuid))
    if lease is None:       # it was over, and its owner has deleted it
        return []
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
                    state=lease.state, text=one.text) for one in change.told]
    session.add_all(events)
    session.flush()
    session.refresh(lease)
    return [(lease, event) for event in events]
