# SPDX-License-Identifier: Apache-2.0

"""Data of the engine: records of leases, heartbeat and learned state.

All changes of a pass are written in one transaction, and only if no other
engine has written a pass since they were read. So two engines cannot both
continue.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
import dataclasses
import types
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from secondary_scheduler.leases.api.db.changes import (
    Announced,
    Change,
    delete_user_data,
    write_changes,
)
from secondary_scheduler.leases.api.db.models import (
    EngineRow,
    Event,
    Learned,
    LeaseRow,
    NodeSetRow,
    Schedule,
)
from secondary_scheduler.leases.api.db.session import Database, retried
from secondary_scheduler.leases.api.db.store import OPEN
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState

_ENGINE = 1
_TAKEN = OPEN - {LeaseState.NEW}
#: Seconds without a pass after which leases may be missing in the database.
_GAP_S = 120
#: Errors of values in a row that cannot be read.
_BAD_VALUES = (AttributeError, LookupError, TypeError, ValueError)
#: Leases that are written in one transaction, at most.
_BATCH = 50
#: Kind of the event of a server that still exists after its lease.
LEFT_OVER = 'server-left-over'


class Overtaken(Exception):
    """Another engine has written a pass meanwhile."""


@dataclasses.dataclass(frozen=True)
class EngineHeartbeat:
    """Time of the last pass over all leases, in seconds since 1970.

    ``trouble`` is the reason for which there has been none since, or ''.
    """

    looked_at: int | None
    trouble: str


@dataclasses.dataclass(frozen=True)
class FoundLeases:
    """Leases of given UUIDs.

    :param rows: those that the database knows, by UUID.
    :param left_over: texts of their events of the kind ``LEFT_OVER``.
    :param complete_since: time since which the database lacks no lease.
    """

    rows: Mapping[str, LeaseRow]
    left_over: Mapping[str, Collection[str]]
    complete_since: int


@dataclasses.dataclass
class TakenLeases:
    """The taken leases that are not over.

    :ivar passes: number of passes of all engines.
    :ivar rows: the leases, the oldest first, each with its record if it has
        one.
    :ivar broken: reasons for which other leases cannot be read, by UUID.
    """

    passes: int
    rows: list[tuple[LeaseRow, str | None]]
    broken: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class WrittenPass:
    """A pass that was written.

    :ivar passes: number of passes afterwards.
    :ivar events: the resulting events, each with its lease.
    """

    passes: int
    events: list[Announced]


@dataclasses.dataclass(frozen=True)
class OwnerRequests:
    """Requests of the owner of a lease: to pause it, to cancel it."""

    hold: bool
    wanted_end: bool


@retried
def read_pass(database: Database, term: int) -> TakenLeases:
    """Return all taken leases that are not over.

    :param term: term of the leadership of the engine.  From now on nothing is
        written under an older one.
    :raises Overtaken: if another engine has read or written in a later term.
    """
    with database.writer() as session:
        if not session.execute(
                sa.update(EngineRow).where(
                    EngineRow.id == _ENGINE, EngineRow.term <= term)
                .values(term=term)).rowcount:
            raise Overtaken('another engine leads')
        passes = int(session.scalar(sa.select(EngineRow.passes).where(
            EngineRow.id == _ENGINE)) or 0)
    query = (sa.select(LeaseRow, Schedule.document)
             .outerjoin(Schedule, Schedule.lease_id == LeaseRow.id)
             .where(LeaseRow.state.in_(_TAKEN)).order_by(LeaseRow.id))
    try:
        with database.reader() as session:
            return TakenLeases(passes, [
                (lease, text) for lease, text in session.execute(query)])
    except _BAD_VALUES:
        return _read_each(database, passes, query)


def _read_each(database: Database, passes: int, query: typing.Any
               ) -> TakenLeases:
    """Read leases one by one, since a value of one cannot be read."""
    found = TakenLeases(passes, [])
    with database.reader() as session:
        uuids = session.execute(
            sa.select(LeaseRow.id, LeaseRow.uuid)
            .where(LeaseRow.state.in_(_TAKEN)).order_by(LeaseRow.id)
        ).tuples().all()
    for row, uuid in uuids:
        try:
            with database.reader() as session:
                found.rows.extend(
                    (lease, text) for lease, text in session.execute(
                        query.where(LeaseRow.id == row)))
        except _BAD_VALUES as exc:
            found.broken[uuid] = f'Lease {uuid} cannot be read: {exc!r}.'
    return found


@retried
def set_state(database: Database, uuid: str, state: LeaseState, reason: str,
              now: int) -> bool:
    """Set the state of a lease that cannot be read; add an event.

    :returns: False if it has this state already.
    """
    with database.writer() as session:
        changed = session.execute(
            sa.update(LeaseRow)
            .where(LeaseRow.uuid == uuid, LeaseRow.state != state)
            .values(state=state, reason=reason, updated_at=now,
                    revision=LeaseRow.revision + 1)).rowcount
        if changed:
            lease = session.scalar(sa.select(LeaseRow.id).where(
                LeaseRow.uuid == uuid))
            if state in lease_states.FINAL:
                delete_user_data(session, [lease])
            session.add(Event(
                lease_id=lease, time=now, kind=state, state=state,
                text=reason))
        return bool(changed)


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


def read_heartbeat_once(database: Database) -> EngineHeartbeat:
    """Return the last heartbeat of all engines, without another attempt."""
    with database.reader() as session:
        row = session.get(EngineRow, _ENGINE)
        return EngineHeartbeat(None if row is None else row.looked_at,
                               (row and row.trouble) or '')


#: Returns the last heartbeat of all engines.
read_heartbeat = retried(read_heartbeat_once)


@retried
def find_leases(database: Database, uuids: Collection[str], now: int,
                looked_at: int) -> FoundLeases:
    """Return leases in any state, and whether others may be missing.

    :param looked_at: as in ``record_heartbeat``.
    """
    with database.reader() as session:
        # Without the values that may be unreadable.
        rows = session.scalars(
            sa.select(LeaseRow).where(LeaseRow.uuid.in_(uuids)).options(
                orm.defer(LeaseRow.unverified), orm.noload(LeaseRow.servers),
                orm.selectinload(LeaseRow.nodes).load_only(NodeSetRow.number)))
        events = session.execute(
            sa.select(LeaseRow.uuid, Event.text)
            .join(Event, Event.lease_id == LeaseRow.id)
            .where(LeaseRow.uuid.in_(uuids), Event.kind == LEFT_OVER))
        left_over: dict[str, set[str]] = defaultdict(set)
        for uuid, text in events:
            left_over[uuid].add(text)
        return FoundLeases(
            {one.uuid: one for one in rows}, left_over,
            _complete_since(session.get(EngineRow, _ENGINE), now, looked_at))


def _complete_since(row: EngineRow | None, now: int, looked_at: int) -> int:
    """Return the time since which the database lacks no lease.

    Its last pass is too old in a database that is new, was restored, or was
    not in use: servers may have been made with another one meanwhile.
    """
    if (row is None or row.complete_since is None or row.looked_at is None
            or row.looked_at < max(looked_at, now - _GAP_S)):
        return now
    return row.complete_since


@retried
def record_heartbeat(database: Database, now: int | None, trouble: str,
                     looked_at: int = 0) -> None:
    """Record that an engine is at work.

    :param now: time of a pass over all leases; None if there was none.
    :param trouble: the reason for which there was none.
    :param looked_at: time that the same engine has recorded last.
    """
    with database.writer() as session:
        session.execute(sa.update(EngineRow).where(EngineRow.id == _ENGINE)
                        .values(trouble=trouble))
        row = session.get(EngineRow, _ENGINE)
        if row is not None and now is not None:
            row.complete_since = _complete_since(row, now, looked_at)
            row.looked_at = now


def write_pass(database: Database, passes: int, term: int,
               changes: Sequence[Change], now: int,
               learned: Mapping[str, str] = types.MappingProxyType({})
               ) -> WrittenPass:
    """Write the changes of a pass.

    A transaction has few leases, so that no owner waits for all of them.
    Leases that release hosts come first: if the rest is not written, no host
    is booked twice.

    :param passes: result of ``read_pass``, incremented by each transaction.
    :param term: as in ``read_pass``.
    :param learned: new learned state of drivers, by name.
    :raises Overtaken: if another engine has written a pass since; nothing more
        is written then.
    """
    ordered = sorted(changes, key=lambda one: one.books)
    written = WrittenPass(passes, [])
    for first in range(0, len(ordered) or 1, _BATCH):
        written.events.extend(_write_batch(
            database, written.passes, term, ordered[first:first + _BATCH], now,
            {} if first else learned))
        written.passes += 1
    return written


@retried
def _write_batch(database: Database, passes: int, term: int,
                 batch: Sequence[Change], now: int,
                 learned: Mapping[str, str]) -> list[Announced]:
    """Write some changes of a pass in one transaction."""
    with database.writer() as session:
        if not session.execute(
                sa.update(EngineRow).where(
                    EngineRow.id == _ENGINE, EngineRow.passes == passes,
                    EngineRow.term == term)
                .values(passes=passes + 1)).rowcount:
            raise Overtaken('another engine has written a pass since')
        for name, document in learned.items():
            session.merge(Learned(name=name, document=document))
        return write_changes(session, batch, now)
