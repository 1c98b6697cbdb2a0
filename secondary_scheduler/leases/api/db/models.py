# SPDX-License-Identifier: Apache-2.0

"""Tables of the database.

All types are common to SQLite, MariaDB and PostgreSQL. Row numbers are never
shown to users, since they would reveal the activity of other projects.
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
from secondary_scheduler.reading import times

_EPOCH = datetime.datetime(1970, 1, 1)

#: Options of tables; comparisons respect case and accents.
OPTIONS = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
           'mysql_collate': 'utf8mb4_bin'}


#: Text that may be longer than the 64 KiB of MariaDB's TEXT.
Document = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


class Moment(sa.types.TypeDecorator[int]):
    """Whole seconds since 1970; a UTC date and time in the table."""

    impl = sa.DateTime
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: typing.Any
                           ) -> datetime.datetime | None:
        if value is None:
            return None
        return times.to_datetime(value).replace(tzinfo=None)

    def process_result_value(self, value: datetime.datetime | None,
                             dialect: typing.Any) -> int | None:
        if value is None:
            return None
        return int((value - _EPOCH).total_seconds())


@dataclasses.dataclass(frozen=True)
class Nodes:
    """A set of equal nodes, with the properties of their servers.

    An ``image`` of None means boot from a volume, a ``network`` of None that
    Nova chooses it. ``server`` has further properties of Nova's request for a
    server, by Nova's names (``leases.api.node_sets``), except ``user_data``,
    which may hold secrets.
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
    """Nodes of short-lived rows, as JSON in one column."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: tuple[Nodes, ...] | None,
                           dialect: typing.Any) -> str:
        return json.dumps([dataclasses.asdict(one) for one in value or ()])

    def process_result_value(self, value: str | None, dialect: typing.Any
                             ) -> tuple[Nodes, ...]:
        return tuple(Nodes(**one) for one in json.loads(value or '[]'))


class Json(sa.types.TypeDecorator[typing.Any]):
    """A JSON list or object; an empty one is NULL in the table.

    :param empty: the type of the empty value for NULL.
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
    """Base class of all tables."""

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


#: ``trust_id`` of leases by a standing trust. It is no trust of Keystone, so
#: an engine of an earlier release makes no servers for them.
STANDING = 'standing'

#: Requested terms of a lease besides its nodes: columns of ``RequestedTerms``.
TERMS = ('start', 'deadline', 'duration', 'immediate', 'preemptible',
         'max_rate')


class RequestedTerms:
    """Requested terms of a lease or quote; times in seconds since 1970.

    ``duration`` is in seconds, ``max_rate`` the highest accepted price of a
    node and a second.
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
        """Kind of the lease, derived from its terms."""
        return kinds.derive(self.duration, self.start, self.deadline,
                            self.immediate)


class LeaseRow(RequestedTerms, Base):
    """A lease: its requested terms and its state.

    The owner writes the terms while the state is "new", and ``hold`` (paused)
    and ``wanted_end`` (cancelled) until the lease is over. The scheduler
    writes:

    - ``state`` and ``reason``,
    - ``price``: the total price, even if it exceeded ``max_rate``,
    - ``next_start``: next possible start of a lease rejected for lack of room,
    - ``served``: seconds in which all servers were observed to run,
    - ``charge``: part of the price that is due for these seconds.

    A ``duration`` of None marks an adopted lease: its server existed without
    a lease, and its end is not planned. Each change increments ``revision``.
    ``token`` and ``fingerprint`` identify repeated requests. ``trust_id`` is
    ``STANDING`` if servers are made by the owner's standing trust in the
    project (``db.standing_trusts``), or a trust of this lease alone, which
    earlier releases made.
    ``unverified`` is a list of objects with a ``field`` of the request that
    no service could verify, and the ``reason``.
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
        """Whether the scheduler has not taken the lease yet."""
        return self.state == LeaseState.NEW


class Quote(RequestedTerms, Base):
    """A request for a quote, and its answer by the scheduler.

    ``accepted`` is None until the scheduler has answered. ``rate`` is the
    price of a node and a second, ``price`` the total. ``begin`` is the start
    or, if the lease would not be accepted, the next possible one (None:
    never). ``reason`` explains a rejection. The quote expires at
    ``expires_at``.
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

    It is loaded only explicitly (``db.requests.server_request``). It is no
    column of the node set, since errors of PostgreSQL show the faulty row.
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
    """Persistent record of the engine for a lease, as JSON.

    Only the engine reads it (``leases.engine.records``).
    """

    __tablename__ = 'schedules'

    lease_id: Mapped[int] = _of('leases', primary_key=True)
    document: Mapped[str] = mapped_column(Document)


class EngineRow(Base):
    """The only row counts the passes of all engines, to detect another one.

    ``looked_at`` is the time of the last pass over all leases; ``trouble`` is
    the reason for which there has been none since. Passes have followed one
    another without a gap from ``complete_since`` on, so no lease that has
    begun since is missing in the database. ``term`` is that of the last
    leadership in which an engine has read the leases.
    """

    __tablename__ = 'engines'

    id: Mapped[int] = _key()
    passes: Mapped[int] = mapped_column(sa.BigInteger)
    term: Mapped[int] = mapped_column(sa.BigInteger, server_default='0')
    looked_at: Mapped[int | None] = mapped_column(Moment)
    trouble: Mapped[str | None] = mapped_column(sa.Text)
    complete_since: Mapped[int | None] = mapped_column(Moment)


class Learned(Base):
    """Learned state of a driver of the engine, as JSON of the driver."""

    __tablename__ = 'learned'

    name: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    document: Mapped[str] = mapped_column(Document)


class Event(Base):
    """An event of a lease, with its state at that time."""

    __tablename__ = 'events'

    id: Mapped[int] = _key()
    lease_id: Mapped[int] = _of('leases', index=True)
    time: Mapped[int] = mapped_column(Moment)
    kind: Mapped[str] = mapped_column(sa.String(32))
    state: Mapped[str] = mapped_column(sa.String(32))
    text: Mapped[str] = mapped_column(sa.Text)


class HostRow(Base):
    """Name of a host in a plan."""

    __tablename__ = 'hosts'

    id: Mapped[int] = _key()
    name: Mapped[str] = mapped_column(sa.String(255), unique=True)


class SlotRow(Base):
    """A planned slot: a lease holds hosts in [begin, end), for ``what``.

    An ``end`` of None is unlimited.
    """

    __tablename__ = 'slots'

    id: Mapped[int] = _key()
    lease_id: Mapped[int] = _of('leases', index=True)
    begin: Mapped[int] = mapped_column(Moment)
    end: Mapped[int | None] = mapped_column(Moment)
    what: Mapped[str] = mapped_column(sa.String(32))


class SlotHost(Base):
    """Number of nodes of a slot on a host."""

    __tablename__ = 'slot_hosts'

    slot_id: Mapped[int] = _of('slots', primary_key=True)
    host_id: Mapped[int] = _of('hosts', primary_key=True, index=True)
    nodes: Mapped[int] = mapped_column(sa.Integer)


class Project(Base):
    """Limits of a project: None is the configured limit, -1 no limit.

    Each transaction that creates a lease or quote locks the row by
    incrementing ``made``, so that concurrent ones cannot exceed a limit.
    """

    __tablename__ = 'projects'

    project_id: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    leases: Mapped[int | None] = mapped_column(sa.Integer)
    nodes: Mapped[int | None] = mapped_column(sa.Integer)
    made: Mapped[int] = mapped_column(sa.BigInteger)
