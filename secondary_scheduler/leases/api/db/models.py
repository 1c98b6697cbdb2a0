"""The tables.

Types are those that SQLite, MariaDB and PostgreSQL have in common.  Numbers of
rows are never shown to a user: they would tell how much others do.
"""

from collections.abc import Mapping
import dataclasses
import datetime
import json
import typing

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import Mapped, mapped_column

from secondary_scheduler.leases.scheduling import kinds
from secondary_scheduler.model.lease_states import LeaseState

_EPOCH = datetime.datetime(1970, 1, 1)

#: The options of a table: names that differ in case or in accents differ.
OPTIONS = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
           'mysql_collate': 'utf8mb4_bin'}


#: Text that may be longer than the 64 KiB of MariaDB's.
Document = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


class Moment(sa.types.TypeDecorator[int]):
    """Whole seconds since 1970, as the scheduler counts; UTC in the table."""

    impl = sa.DateTime
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: typing.Any
                           ) -> datetime.datetime | None:
        if value is None:
            return None
        return _EPOCH + datetime.timedelta(seconds=value)

    def process_result_value(self, value: datetime.datetime | None,
                             dialect: typing.Any) -> int | None:
        if value is None:
            return None
        return int((value - _EPOCH).total_seconds())


@dataclasses.dataclass(frozen=True)
class Nodes:
    """Nodes that are alike, and what a server of them is made of.

    An ``image`` of None is a flavor's or volume's matter, a ``network`` of
    None is Nova's to choose.  ``server`` has further properties of Nova's
    request for a server, by Nova's names (``lease_api.node_sets``).
    ``user_data`` may hold secrets, and is not among them.
    """

    number: int
    flavor: str
    image: str | None = None
    network: str | None = None
    key_name: str | None = None
    server: Mapping[str, typing.Any] = dataclasses.field(default_factory=dict)
    user_data: str | None = dataclasses.field(default=None, repr=False)

    @property
    def has_user_data(self) -> bool:
        """Whether there is user data."""
        return self.user_data is not None


class JsonColumn(sa.types.TypeDecorator[tuple[Nodes, ...]]):
    """Nodes that are kept for a while only, in one column."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: tuple[Nodes, ...] | None,
                           dialect: typing.Any) -> str:
        return json.dumps([dataclasses.asdict(one) for one in value or ()])

    def process_result_value(self, value: str | None, dialect: typing.Any
                             ) -> tuple[Nodes, ...]:
        return tuple(Nodes(**one) for one in json.loads(value or '[]'))


class Json(sa.types.TypeDecorator[typing.Any]):
    """A list or an object of JSON; an empty one is NULL in the table.

    :param empty: the type of Python that NULL becomes.
    """

    impl = sa.Text
    cache_ok = True

    def __init__(self, empty: type) -> None:
        super().__init__()
        self.empty = empty

    def load_dialect_impl(self, dialect: typing.Any) -> typing.Any:
        return Document.dialect_impl(dialect)

    def process_bind_param(self, value: typing.Any, dialect: typing.Any
                           ) -> str | None:
        return json.dumps(value) if value else None

    def process_result_value(self, value: str | None, dialect: typing.Any
                             ) -> typing.Any:
        return self.empty() if value is None else json.loads(value)


class Base(orm.DeclarativeBase):
    """What all tables have in common."""

    metadata = sa.MetaData(naming_convention={
        'ix': 'ix_%(table_name)s_%(column_0_N_name)s',
        'uq': 'uq_%(table_name)s_%(column_0_N_name)s',
        'fk': 'fk_%(table_name)s_%(column_0_N_name)s',
        'pk': 'pk_%(table_name)s'})
    __table_args__: typing.Any = OPTIONS


Number = sa.BigInteger().with_variant(sa.Integer(), 'sqlite')


def _key() -> Mapped[int]:
    return mapped_column(Number, primary_key=True, autoincrement=True)


def _of(table: str, **options: typing.Any) -> Mapped[int]:
    return mapped_column(
        Number, sa.ForeignKey(f'{table}.id', ondelete='CASCADE'), **options)


#: What is asked for of a lease, besides its nodes: columns of ``Asked``.
TERMS = ('start', 'deadline', 'duration', 'immediate', 'preemptible',
         'max_rate')


class RequestedTerms:
    """What somebody has asked for: times in seconds since 1970.

    ``duration`` is in seconds, ``max_rate`` the most that is paid for a node
    and a second.
    """

    id: Mapped[int] = _key()
    uuid: Mapped[str] = mapped_column(sa.String(36), unique=True)
    project_id: Mapped[str] = mapped_column(sa.String(64))
    user_id: Mapped[str] = mapped_column(sa.String(64))
    start: Mapped[int | None] = mapped_column(Moment)
    deadline: Mapped[int | None] = mapped_column(Moment)
    duration: Mapped[int] = mapped_column(sa.BigInteger)
    immediate: Mapped[bool] = mapped_column(sa.Boolean)
    preemptible: Mapped[bool] = mapped_column(sa.Boolean)
    max_rate: Mapped[float | None] = mapped_column(sa.Double)
    created_at: Mapped[int] = mapped_column(Moment)

    @property
    def kind(self) -> kinds.LeaseKind:
        """What the terms make of it."""
        return kinds.derive(self.duration, self.start, self.deadline,
                            self.immediate)


class LeaseRow(RequestedTerms, Base):
    """What somebody has asked for, and what has become of it.

    The owner writes the terms while the state is "new", and ``hold`` (paused)
    and ``wanted_end`` (cancelled) until it is over; ``state``, ``reason``,
    ``price`` (in all, even if it was too much) and ``next_start`` (when a
    lease could begin that was refused for want of room) are the scheduler's;
    so are ``served``, the seconds in which all servers were observed to run,
    and ``charge``, the part of the price that is due for these.
    Nobody has asked for a lease whose ``duration`` is None: its server was
    there, and it lasts as long as its owner likes.  Each change makes
    ``revision`` one more.  ``token`` and ``fingerprint`` tell a request that
    is sent again.  ``trust_id`` is Keystone's trust by which servers are made
    in the owner's name.  ``unverified`` is a list of objects with a ``field``
    of the request that no service could verify, and the ``reason``.
    """

    __tablename__ = 'leases'
    __table_args__ = (
        sa.UniqueConstraint('project_id', 'token'),
        sa.Index(None, 'project_id', 'state'),
        sa.Index(None, 'state'),
        OPTIONS)

    duration: Mapped[int | None] = mapped_column(   # type: ignore[assignment]
        sa.BigInteger)
    name: Mapped[str] = mapped_column(sa.String(255))
    state: Mapped[str] = mapped_column(sa.String(32))
    hold: Mapped[bool] = mapped_column(sa.Boolean)
    wanted_end: Mapped[bool] = mapped_column(sa.Boolean)
    reason: Mapped[str] = mapped_column(sa.Text)
    price: Mapped[float | None] = mapped_column(sa.Double)
    next_start: Mapped[int | None] = mapped_column(Moment)
    served: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    charge: Mapped[float | None] = mapped_column(sa.Double)
    updated_at: Mapped[int] = mapped_column(Moment)
    revision: Mapped[int] = mapped_column(sa.Integer)
    token: Mapped[str | None] = mapped_column(sa.String(64))
    fingerprint: Mapped[str] = mapped_column(sa.String(64))
    trust_id: Mapped[str | None] = mapped_column(sa.String(64))
    unverified: Mapped[list[dict[str, str]]] = mapped_column(
        Json(list), nullable=True)

    nodes: Mapped[list['NodeSetRow']] = orm.relationship(
        order_by='NodeSetRow.id', lazy='selectin', passive_deletes=True)
    servers: Mapped[list['ServerRow']] = orm.relationship(
        order_by='ServerRow.id', lazy='selectin', passive_deletes=True,
        cascade='all, delete-orphan')

    @property
    def is_new(self) -> bool:
        """Whether the scheduler has not seen it yet."""
        return self.state == LeaseState.NEW


class Quote(RequestedTerms, Base):
    """What somebody wants to know of a lease that they may ask for.

    The scheduler answers: whether it would be ``accepted`` (None: not
    answered yet), at which ``rate`` for a node and a second and ``price`` in
    all, when it would ``begin`` or could instead (None: never), and the
    ``reason`` if it would not be.  It is gone at ``expires_at``.
    """

    __tablename__ = 'quotes'
    __table_args__ = (sa.Index(None, 'project_id'),
                      sa.Index(None, 'expires_at'), OPTIONS)

    nodes: Mapped[tuple[Nodes, ...]] = mapped_column(JsonColumn)
    expires_at: Mapped[int] = mapped_column(Moment)
    accepted: Mapped[bool | None] = mapped_column(sa.Boolean)
    rate: Mapped[float | None] = mapped_column(sa.Double)
    price: Mapped[float | None] = mapped_column(sa.Double)
    begin: Mapped[int | None] = mapped_column(Moment)
    reason: Mapped[str] = mapped_column(sa.Text)


class NodeSetRow(Base):
    """``Nodes`` of a lease; their user data is in ``UserData``."""

    __tablename__ = 'node_sets'

    id: Mapped[int] = _key()
    lease_id: Mapped[int] = _of('leases', index=True)
    number: Mapped[int] = mapped_column(sa.Integer)
    flavor: Mapped[str] = mapped_column(sa.String(255))
    image: Mapped[str | None] = mapped_column(sa.String(255))
    network: Mapped[str | None] = mapped_column(sa.String(255))
    key_name: Mapped[str | None] = mapped_column(sa.String(255))
    server: Mapped[dict[str, typing.Any]] = mapped_column(
        Json(dict), nullable=True)
    has_user_data: Mapped[bool] = mapped_column(
        sa.Boolean, server_default=sa.false())

    secret: Mapped['UserData | None'] = orm.relationship(
        lazy='raise', passive_deletes=True, cascade='all, delete-orphan')


class UserData(Base):
    """User data of a node set, which may hold secrets.

    A query has to ask for it (``db.requests.server_request``).  It is not a
    column of its node set: errors of PostgreSQL show the row that does not
    fit.
    """

    __tablename__ = 'user_data'

    node_set_id: Mapped[int] = _of('node_sets', primary_key=True)
    content: Mapped[str] = mapped_column(Document)


class ServerRow(Base):
    """A server that was made for a lease."""

    __tablename__ = 'servers'

    id: Mapped[int] = _key()
    lease_id: Mapped[int] = _of('leases', index=True)
    uuid: Mapped[str] = mapped_column(sa.String(36), unique=True)


class Schedule(Base):
    """What the engine has to know of a lease to go on with it, as JSON.

    It is the engine's alone (``lease_engine.documents``).
    """

    __tablename__ = 'schedules'

    lease_id: Mapped[int] = _of('leases', primary_key=True)
    document: Mapped[str] = mapped_column(Document)


class EngineRow(Base):
    """One row, by which engines see each other: how often one has written.

    ``looked_at`` is when one has looked at all leases last; ``trouble`` tells
    why that has not been done since.
    """

    __tablename__ = 'engines'

    id: Mapped[int] = _key()
    passes: Mapped[int] = mapped_column(sa.BigInteger)
    looked_at: Mapped[int | None] = mapped_column(Moment)
    trouble: Mapped[str | None] = mapped_column(sa.Text)


class Learned(Base):
    """What a driver of the engine has learned, as JSON; it is the driver's.
    """

    __tablename__ = 'learned'

    name: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    document: Mapped[str] = mapped_column(Document)


class Event(Base):
    """What happened to a lease, and the state that it was in then."""

    __tablename__ = 'events'

    id: Mapped[int] = _key()
    lease_id: Mapped[int] = _of('leases', index=True)
    time: Mapped[int] = mapped_column(Moment)
    kind: Mapped[str] = mapped_column(sa.String(32))
    state: Mapped[str] = mapped_column(sa.String(32))
    text: Mapped[str] = mapped_column(sa.Text)


class HostRow(Base):
    """A host that a plan has named."""

    __tablename__ = 'hosts'

    id: Mapped[int] = _key()
    name: Mapped[str] = mapped_column(sa.String(255), unique=True)


class SlotRow(Base):
    """A stretch of time in which a lease holds hosts, for ``what``.

    Without an end it is for ever.
    """

    __tablename__ = 'slots'

    id: Mapped[int] = _key()
    lease_id: Mapped[int] = _of('leases', index=True)
    begin: Mapped[int] = mapped_column(Moment)
    end: Mapped[int | None] = mapped_column(Moment)
    what: Mapped[str] = mapped_column(sa.String(32))


class SlotHost(Base):
    """How many nodes of a slot are on a host."""

    __tablename__ = 'slot_hosts'

    slot_id: Mapped[int] = _of('slots', primary_key=True)
    host_id: Mapped[int] = _of('hosts', primary_key=True, index=True)
    nodes: Mapped[int] = mapped_column(sa.Integer)


class Project(Base):
    """A project's own limits, where None is the configuration's, -1 none.

    Its row is locked by whoever makes a lease, so that two cannot both take
    the last place; ``made`` counts them.
    """

    __tablename__ = 'projects'

    project_id: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    leases: Mapped[int | None] = mapped_column(sa.Integer)
    nodes: Mapped[int | None] = mapped_column(sa.Integer)
    made: Mapped[int] = mapped_column(sa.BigInteger)
