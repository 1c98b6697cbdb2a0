"""Leases in the database: all that service and scheduler do with them.

Objects that are returned are copies, which belong to no transaction.
Operations may be called from any thread.
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

#: Called with a lease and an event of it, once that is in the database.
Announce = Callable[[LeaseRow, Event], object]


def nothing(lease: LeaseRow, event: Event) -> None:
    """Announce nothing."""


class LeaseStore:
    """The leases.

    :param clock: returns seconds since 1970.
    :param announce: is told each event after its transaction.
    """

    def __init__(self, database: Database, announce: Announce = nothing,
                 clock: Callable[[], float] = time.time) -> None:
        self._database = database
        #: Called with each event, once it is in the database.
        self.announce = announce
        self._clock = clock

    @property
    def now(self) -> int:
        """The present second."""
        return int(self._clock())

    # -- what owners do

    def create(self, request: LeaseRequest,
               limits: quotas.QuotaLimits) -> LeaseRow:
        """Keep a new lease, or return the one that this request has made.

        :raises OverQuota: if the project would have too much.
        :raises OtherRequest: if its token was another request's.
        """
        try:
            lease, event = self._create(request, limits)
        except db_exception.DBDuplicateEntry:
            # An attempt whose answer was lost with the connection.
            return self.get(request.uuid, request.project_id)
        if event is not None:
            self.announce(lease, event)
        return lease

    @retried
    def _create(self, request: LeaseRequest, limits: quotas.QuotaLimits
                ) -> tuple[LeaseRow, Event | None]:
        with self._database.writer() as session:
            if quotas.lock(session, request.project_id):
                return self._create_locked(session, request, limits)
        quotas.ensure(self._database, request.project_id)
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
        quotas.check(session, request.project_id, limits, request.number)
        lease = request.lease(self.now)
        session.add(lease)
        session.flush()
        return lease, self._record(session, lease, 'created')

    @retried
    def repeated(self, request: LeaseRequest) -> LeaseRow | None:
        """Return the lease that the same request has made before, if any.

        :raises OtherRequest: if its token was another request's.
        """
        with self._database.reader() as session:
            return _repeated(session, request)

    def delete(self, uuid: str, project: str | None = None) -> None:
        """Forget a lease that is over, or that nobody has seen yet.

        :raises UnknownLease: if there is none.
        :raises WrongState: if it is neither.
        """
        lease = self.get(uuid, project)
        self._delete(lease)
        self.announce(lease, Event(time=self.now, kind='deleted',
                                   state=lease.state, text=''))

    @retried
    def _delete(self, lease: LeaseRow) -> None:
        gone = lease_states.FINAL | {LeaseState.NEW}
        with self._database.writer() as session:
            # Not by its number, which in SQLite another lease may get.
            done = session.execute(sa.delete(LeaseRow).where(
                LeaseRow.uuid == lease.uuid, LeaseRow.state.in_(gone)))
            if not done.rowcount:
                found = _find(session, lease.uuid, None)
                raise errors.WrongState(
                    f'lease {found.uuid} is {found.state}')

    # -- what everybody does

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
               marker: str | None = None, limit: int | None = None
               ) -> list[LeaseRow]:
        """Return leases, the oldest first.

        :param among: the states that they are in; None is any.
        :param marker: the lease after which to begin.
        :raises UnknownLease: if there is no such marker.
        """
        query = sa.select(LeaseRow).order_by(LeaseRow.id).limit(limit)
        if project is not None:
            query = query.where(LeaseRow.project_id == project)
        if among is not None:
            query = query.where(LeaseRow.state.in_(among))
        if name is not None:
            # By itself MariaDB takes no notice of spaces at the end.
            query = query.where(
                LeaseRow.name == name,
                sa.func.char_length(LeaseRow.name) == len(name))
        with self._database.reader() as session:
            if marker is not None:
                query = query.where(
                    LeaseRow.id > _find(session, marker, project).id)
            return list(session.scalars(query))

    def change(self, uuid: str, kind: str, values: Mapping[str, typing.Any],
               *, text: str = '', project: str | None = None,
               revision: int | None = None,
               among: Collection[str] = frozenset(LeaseState),
               servers: Sequence[str] | None = None) -> LeaseRow:
        """Change a lease, and tell so by an event; return what it is then.

        :param kind: of the event; ``text`` says more.
        :param values: new values, by column.
        :param revision: the one that was read, if nobody else may have
            changed the lease since.
        :param among: states in which the change makes sense.
        :param servers: UUIDs of all servers that it has from now on.
        :raises UnknownLease: if there is none.
        :raises Stale: if it has another revision.
        :raises WrongState: if it is in another state.
        """
        lease, event = self._change(uuid, kind, values, text, project,
                                    revision, among, servers)
        self.announce(lease, event)
        return lease

    @retried
    def _change(self, uuid: str, kind: str, values: Mapping[str, typing.Any],
                text: str, project: str | None, revision: int | None,
                among: Collection[str], servers: Sequence[str] | None
                ) -> tuple[LeaseRow, Event]:
        change = sa.update(LeaseRow).where(
            *_which(uuid, project), LeaseRow.state.in_(among)).values(
                **values, updated_at=self.now, revision=LeaseRow.revision + 1)
        if revision is not None:
            change = change.where(LeaseRow.revision == revision)
        with self._database.writer() as session:
            done = session.execute(change)
            lease = _find(session, uuid, project)
            if not done.rowcount and lease.state in among:
                raise errors.Stale(f'lease {uuid} has the revision '
                                   f'{lease.revision}, not {revision}')
            if not done.rowcount:
                raise errors.WrongState(f'lease {uuid} is {lease.state}')
            if servers is not None:
                lease.servers = [
                    next((old for old in lease.servers if old.uuid == one),
                         None) or ServerRow(lease_id=lease.id, uuid=one)
                    for one in servers]
            return lease, self._record(session, lease, kind, text)

    def add_event(self, uuid: str, kind: str, text: str) -> None:
        """Tell the owner something that changes nothing.

        :raises UnknownLease: if there is no such lease.
        """
        self.announce(*self._add_event(uuid, kind, text))

    @retried
    def _add_event(self, uuid: str, kind: str, text: str
                   ) -> tuple[LeaseRow, Event]:
        lease = self.get(uuid)
        try:
            with self._database.writer() as session:
                return lease, self._record(session, lease, kind, text)
        except db_exception.DBReferenceError as exc:
            raise errors.UnknownLease(
                f'lease {uuid} has just been deleted') from exc

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

    # -- what the scheduler does

    def take_new(self, limit: int = 1000) -> list[LeaseRow]:
        """Make new leases pending, and return them, the oldest first.

        Each is returned to one caller only.  What was taken and not
        scheduled is found by ``leases(among={State.PENDING})``.
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
            f'lease {found.uuid} was asked for with this token, with other '
            'terms')
    return found


def _which(uuid: str, project: str | None) -> list[sa.ColumnElement[bool]]:
    return [LeaseRow.uuid == uuid] + (
        [] if project is None else [LeaseRow.project_id == project])


def _find(session: orm.Session, uuid: str, project: str | None) -> LeaseRow:
    lease = session.scalar(sa.select(LeaseRow).where(*_which(uuid, project)))
    if lease is None:
        raise errors.UnknownLease(f'there is no lease {uuid}')
    return lease
