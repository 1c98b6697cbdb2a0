# SPDX-License-Identifier: Apache-2.0

"""Store of leases: the operations of owners and of the scheduler.

Returned objects are copies that belong to no transaction. All operations are
thread-safe.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
import time
import typing

from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy import orm

from secondary_scheduler.leases.api.db import errors, quotas
from secondary_scheduler.leases.api.db.models import Event, LeaseRow, ServerRow
from secondary_scheduler.leases.api.db.requests import LeaseRequest, digest
from secondary_scheduler.leases.api.db.session import Database, retried
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState

#: States in which a lease is not over.
OPEN = frozenset(LeaseState) - lease_states.FINAL

#: Columns by which lists of leases can be sorted.
SORT_KEYS = ('created_at', 'name', 'state', 'project_id')

#: Called with a lease and an event of it, after the transaction.
Announce = Callable[[LeaseRow, Event], object]


def ignore_event(lease: LeaseRow, event: Event) -> None:
    """Default callback for events; does nothing."""


class LeaseStore:
    """Access to the leases.

    :param announce: called with each event after its transaction.
    :param clock: returns seconds since 1970.
    """

    def __init__(self, database: Database, announce: Announce = ignore_event,
                 clock: Callable[[], float] = time.time) -> None:
        self._database = database
        #: Called with each event after its transaction.
        self.announce = announce
        self._clock = clock

    @property
    def now(self) -> int:
        """Present time in whole seconds since 1970."""
        return int(self._clock())

    # -- for owners

    def create(self, request: LeaseRequest,
               limits: quotas.QuotaLimits) -> LeaseRow:
        """Create a lease, or return the one that the same request made.

        :param limits: limits of a project without own limits.
        :raises OverQuota: if the project would exceed a limit.
        :raises OtherRequest: if the token belongs to another request.
        """
        try:
            lease, event = self._create(request, limits)
        except db_exception.DBDuplicateEntry:
            # An earlier attempt, whose result was lost with the connection.
            return self.get(request.uuid, request.project_id)
        if event is not None:
            self.announce(lease, event)
        return lease

    @retried
    def _create(self, request: LeaseRequest, limits: quotas.QuotaLimits
                ) -> tuple[LeaseRow, Event | None]:
        with self._database.writer() as session:
            if quotas.lock_row(session, request.project_id):
                return self._create_locked(session, request, limits)
        quotas.ensure_row(self._database, request.project_id)
        return self._create(request, limits)

    def _create_locked(
        self,
        session: orm.Session,
        request: LeaseRequest,
        limits: quotas.QuotaLimits,
    ) -> tuple[LeaseRow, Event | None]:
        found = _repeated(session, request)
        if found is not None:
            return found, None
        quotas.check_quota(session, request.project_id, limits,
                           request.number)
        lease = request.make_lease(self.now)
        session.add(lease)
        session.flush()
        return lease, self._record(session, lease, 'created')

    @retried
    def repeated(self, request: LeaseRequest) -> LeaseRow | None:
        """Return the lease that the same request made before, if any.

        :raises OtherRequest: if the token belongs to another request.
        """
        with self._database.reader() as session:
            return _repeated(session, request)

    def delete(self, uuid: str, project: str | None = None) -> None:
        """Delete a lease that is over or new.

        :raises UnknownLease: if there is none.
        :raises WrongState: if it is in another state.
        """
        lease = self.get(uuid, project)
        self._delete(lease)
        self.announce(lease, Event(time=self.now, kind='deleted',
                                   state=lease.state, text=''))

    @retried
    def _delete(self, lease: LeaseRow) -> None:
        deletable = lease_states.FINAL | {LeaseState.NEW}
        with self._database.writer() as session:
            # Not by its row id, which SQLite may reuse for another lease.
            done = session.execute(sa.delete(LeaseRow).where(
                LeaseRow.uuid == lease.uuid, LeaseRow.state.in_(deletable)))
            if not done.rowcount:
                found = _find(session, lease.uuid, None)
                raise errors.WrongState(
                    f'lease {found.uuid} is {found.state}')

    # -- for both

    @retried
    def get(self, uuid: str, project: str | None = None) -> LeaseRow:
        """Return a lease, of a project if one is given.

        :raises UnknownLease: if there is none.
        """
        with self._database.reader() as session:
            return _find(session, uuid, project)

    @retried
    def leases(self, project: str | None = None,
               among: Collection[str] | None = None, name: str | None = None,
               marker: str | None = None, limit: int | None = None,
               sort_key: str = 'created_at', descending: bool = False
               ) -> list[LeaseRow]:
        """Return leases, the oldest first unless another order is given.

        :param among: states of the leases; None is any.
        :param marker: UUID of the lease after which to begin.
        :param sort_key: one of ``SORT_KEYS``; among equals the lease that is
            older comes first, or last if ``descending``.
        :raises UnknownLease: if there is no such marker.
        """
        # Rows are numbered in the order of their creation.
        keys = [LeaseRow.id] if sort_key == 'created_at' else [
            getattr(LeaseRow, sort_key), LeaseRow.id]
        query = sa.select(LeaseRow).order_by(*(
            key.desc() if descending else key for key in keys)).limit(limit)
        if project is not None:
            query = query.where(LeaseRow.project_id == project)
        if among is not None:
            query = query.where(LeaseRow.state.in_(among))
        if name is not None:
            # MariaDB's comparison ignores trailing spaces.
            query = query.where(
                LeaseRow.name == name,
                sa.func.char_length(LeaseRow.name) == len(name))
        with self._database.reader() as session:
            if marker is not None:
                last = _find(session, marker, project)
                query = query.where(_follow(
                    keys, [getattr(last, key.key) for key in keys],
                    descending))
            return list(session.scalars(query))

    def change(self, uuid: str, kind: str, values: Mapping[str, typing.Any],
               *, text: str = '', project: str | None = None,
               revision: int | None = None,
               among: Collection[str] = frozenset(LeaseState),
               servers: Sequence[str] | None = None) -> LeaseRow:
        """Change a lease and add an event; return the changed lease.

        If the lease has all values already, nothing is stored.

        :param kind: kind of the event; ``text`` is its text.
        :param values: new values, by column.
        :param revision: revision that the lease must have; None is any.
        :param among: states that allow the change.
        :param servers: UUIDs of all servers of the lease; None leaves them.
        :raises UnknownLease: if there is none.
        :raises Stale: if it has another revision.
        :raises WrongState: if it is in another state.
        """
        lease, event = self._change(uuid, kind, values, text, project,
                                    revision, among, servers)
        if event is not None:
            self.announce(lease, event)
        return lease

    @retried
    def _change(self, uuid: str, kind: str, values: Mapping[str, typing.Any],
                text: str, project: str | None, revision: int | None,
                among: Collection[str], servers: Sequence[str] | None
                ) -> tuple[LeaseRow, Event | None]:
        change = sa.update(LeaseRow).where(
            *_which(uuid, project), LeaseRow.state.in_(among)).values(
                **values, updated_at=self.now, revision=LeaseRow.revision + 1)
        if revision is not None:
            change = change.where(LeaseRow.revision == revision)
        if servers is None and values:
            change = change.where(sa.or_(*(
                getattr(LeaseRow, name).is_distinct_from(value)
                for name, value in values.items())))
        with self._database.writer() as session:
            done = session.execute(change)
            lease = _find(session, uuid, project)
            if not done.rowcount and lease.state not in among:
                raise errors.WrongState(f'lease {uuid} is {lease.state}')
            if not done.rowcount and revision not in (None, lease.revision):
                raise errors.Stale(f'lease {uuid} has the revision '
                                   f'{lease.revision}, not {revision}')
            if not done.rowcount:
                return lease, None
            if servers is not None:
                lease.servers = [
                    next((old for old in lease.servers if old.uuid == one),
                         None) or ServerRow(lease_id=lease.id, uuid=one)
                    for one in servers]
            return lease, self._record(session, lease, kind, text)

    @retried
    def events(self, uuid: str, project: str | None = None,
               limit: int | None = None) -> list[Event]:
        """Return the latest events of a lease, in the order of time.

        :raises UnknownLease: if there is no such lease.
        """
        with self._database.reader() as session:
            lease = _find(session, uuid, project)
            return list(session.scalars(
                sa.select(Event).where(Event.lease_id == lease.id)
                .order_by(Event.time.desc(), Event.id.desc())
                .limit(limit)))[::-1]

    # -- for the scheduler

    def take_new(self, limit: int = 1000) -> list[LeaseRow]:
        """Set new leases to pending and return them, the oldest first.

        Each is returned to one caller only. ``leases(among={PENDING})``
        finds leases that were taken and not scheduled.
        """
        taken = self._take([lease.id for lease in self.leases(
            among={LeaseState.NEW}, limit=limit)])
        for lease, event in taken:
            self.announce(lease, event)
        return [lease for lease, _ in taken]

    @retried
    def _take(self, keys: Sequence[int]) -> list[tuple[LeaseRow, Event]]:
        with self._database.writer() as session:
            mine = [key for key in keys if session.execute(
                sa.update(LeaseRow)
                .where(LeaseRow.id == key, LeaseRow.state == LeaseState.NEW)
                .values(state=LeaseState.PENDING, updated_at=self.now,
                        revision=LeaseRow.revision + 1)).rowcount]
            found = session.scalars(sa.select(LeaseRow).where(
                LeaseRow.id.in_(mine)).order_by(LeaseRow.id)) if mine else ()
            return [(lease, self._record(session, lease, 'pending'))
                    for lease in list(found)]

    def _record(self, session: orm.Session, lease: LeaseRow, kind: str,
                text: str = '') -> Event:
        event = Event(lease_id=lease.id, time=self.now, kind=kind,
                      state=lease.state, text=text)
        session.add(event)
        return event


def _repeated(session: orm.Session, request: LeaseRequest) -> LeaseRow | None:
    if request.token is None:
        return None
    found = session.scalar(sa.select(LeaseRow).where(
        LeaseRow.project_id == request.project_id,
        LeaseRow.token == digest(request.token)))
    if found is not None and found.fingerprint != request.fingerprint:
        raise errors.OtherRequest(
            f'lease {found.uuid} was requested with this token and other '
            'terms')
    return found


def _which(uuid: str, project: str | None) -> list[sa.ColumnElement[bool]]:
    return [LeaseRow.uuid == uuid] + (
        [] if project is None else [LeaseRow.project_id == project])


def _follow(keys: Sequence[orm.InstrumentedAttribute[typing.Any]],
            values: Sequence[typing.Any], descending: bool
            ) -> sa.ColumnElement[bool]:
    """Return the condition that a row comes after one with these values."""
    key, value = keys[0], values[0]
    after = key < value if descending else key > value
    if len(keys) == 1:
        return after
    return sa.or_(after, sa.and_(
        key == value, _follow(keys[1:], values[1:], descending)))


def _find(session: orm.Session, uuid: str, project: str | None) -> LeaseRow:
    lease = session.scalar(sa.select(LeaseRow).where(*_which(uuid, project)))
    if lease is None:
        raise errors.UnknownLease(f'there is no lease {uuid}')
    return lease
