"""The tables.

Types are those that SQLite, MariaDB and PostgreSQL have in common.  Numbers of
rows are never shown to a user: they would tell how much others do.
"""

import datetime
import typing

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import Mapped, mapped_column

from secondary_scheduler.leases import kinds
from secondary_scheduler.leases.states import State

_EPOCH = datetime.datetime(1970, 1, 1)

#: The options of a table: names that differ in case or in accents differ.
OPTIONS = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
           'mysql_collate': 'utf8mb4_bin'}


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


class Base(orm.DeclarativeBase):
    """What all tables have in common."""

    metadata = sa.MetaData(naming_convention={
        'ix': 'ix_%(table_name)s_%(column_0_N_name)s',
        'uq': 'uq_%(table_name)s_%(column_0_N_name)s',
        'fk': 'fk_%(table_name)s_%(column_0_N_name)s',
        'pk': 'pk_%(table_name)s'})
    __table_args__: typing.Any = OPTIONS


#: Text that may be longer than the 64 KiB of MariaDB's.
Document = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')
Number = sa.BigInteger().with_variant(sa.Integer(), 'sqlite')


def _key() -> Mapped[int]:
    return mapped_column(Number, primary_key=True, autoincrement=True)


def _of(table: str, **options: typing.Any) -> Mapped[int]:
    return mapped_column(
        Number, sa.ForeignKey(f'{table}.id', ondelete='CASCADE'), **options)


class Lease(Base):
    """What somebody has asked for, and what has become of it.

    Times in seconds since 1970, ``duration`` in seconds.  The owner writes
    the terms while the state is "new", and ``hold`` (paused) and
    ``wanted_end`` (cancelled) until it is over; ``state``, ``reason`` and
    ``price`` are the scheduler's.  Each change makes ``revision`` one more.
    ``token`` and ``fingerprint`` tell a request that is sent again.
    ``trust_id`` is Keystone's trust by which servers are made in the owner's
    name.
    """

    __tablename__ = 'leases'
    __table_args__ = (
        sa.UniqueConstraint('project_id', 'token'),
        sa.Index(None, 'project_id', 'state'),
        sa.Index(None, 'state'),
        OPTIONS)

    id: Mapped[int] = _key()
    uuid: Mapped[str] = mapped_column(sa.String(36), unique=True)
    project_id: Mapped[str] = mapped_column(sa.String(64))
    user_id: Mapped[str] = mapped_column(sa.String(64))
    name: Mapped[str] = mapped_column(sa.String(255))
    start: Mapped[int | None] = mapped_column(Moment)
    deadline: Mapped[int | None] = mapped_column(Moment)
    duration: Mapped[int] = mapped_column(sa.BigInteger)
    immediate: Mapped[bool] = mapped_column(sa.Boolean)
    preemptible: Mapped[bool] = mapped_column(sa.Boolean)
    max_rate: Mapped[float | None] = mapped_column(sa.Double)
    state: Mapped[str] = mapped_column(sa.String(32))
    hold: Mapped[bool] = mapped_column(sa.Boolean)
    wanted_end: Mapped[bool] = mapped_column(sa.Boolean)
    reason: Mapped[str] = mapped_column(sa.Text)
    price: Mapped[float | None] = mapped_column(sa.Double)
    created_at: Mapped[int] = mapped_column(Moment)
    updated_at: Mapped[int] = mapped_column(Moment)
    revision: Mapped[int] = mapped_column(sa.Integer)
    token: Mapped[str | None] = mapped_column(sa.String(64))
    fingerprint: Mapped[str] = mapped_column(sa.String(64))
    trust_id: Mapped[str | None] = mapped_column(sa.String(64))

    nodes: Mapped[list['NodeSet']] = orm.relationship(
        order_by='NodeSet.id', lazy='selectin', passive_deletes=True)
    servers: Mapped[list['Server']] = orm.relationship(
        order_by='Server.id', lazy='selectin', passive_deletes=True,
        cascade='all, delete-orphan')

    @property
    def kind(self) -> kinds.Kind:
        """What the terms make of it."""
        return kinds.derive(self.duration, self.start, self.deadline,
                            self.immediate)

    @property
    def is_new(self) -> bool:
        """Whether the scheduler has not seen it yet."""
        return self.state == State.NEW


class NodeSet(Base):
    """Nodes of a lease that are alike, and what a server of them is made of.

    An ``image`` of None is a flavor's or volume's matter, a ``network`` of
    None is Nova's to choose.
    """

    __tablename__ = 'node_sets'

    id: Mapped[int] = _key()
    lease_id: Mapped[int] = _of('leases', index=True)
    number: Mapped[int] = mapped_column(sa.Integer)
    flavor: Mapped[str] = mapped_column(sa.String(255))
    image: Mapped[str | None] = mapped_column(sa.String(255))
    network: Mapped[str | None] = mapped_column(sa.String(255))
    key_name: Mapped[str | None] = mapped_column(sa.String(255))


class Server(Base):
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


class Engine(Base):
    """One row, by which engines see each other: how often one has written.
    """

    __tablename__ = 'engines'

    id: Mapped[int] = _key()
    passes: Mapped[int] = mapped_column(sa.BigInteger)


class Event(Base):
    """What happened to a lease, and the state that it was in then."""

    __tablename__ = 'events'

    id: Mapped[int] = _key()
    lease_id: Mapped[int] = _of('leases', index=True)
    time: Mapped[int] = mapped_column(Moment)
    kind: Mapped[str] = mapped_column(sa.String(32))
    state: Mapped[str] = mapped_column(sa.String(32))
    text: Mapped[str] = mapped_column(sa.Text)


class Host(Base):
    """A host that a plan has named."""

    __tablename__ = 'hosts'

    id: Mapped[int] = _key()
    name: Mapped[str] = mapped_column(sa.String(255), unique=True)


class Slot(Base):
    """A stretch of time in which a lease holds hosts, for ``what``."""

    __tablename__ = 'slots'

    id: Mapped[int] = _key()
    lease_id: Mapped[int] = _of('leases', index=True)
    begin: Mapped[int] = mapped_column(Moment)
    end: Mapped[int] = mapped_column(Moment)
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
