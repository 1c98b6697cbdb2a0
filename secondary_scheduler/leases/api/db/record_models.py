# SPDX-License-Identifier: Apache-2.0

"""Tables of records for operators: hosts, operations and served time.

The leader among Watcher's decision engines writes them
(``watcher.cloud_records`` and ``leases.engine``), and the service reads them.
"""

import datetime
import typing

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.orm import Mapped, mapped_column

from secondary_scheduler.leases.api.db.models import (
    OPTIONS,
    Base,
    Json,
    Moment,
    Number,
)


class HostState(Base):
    """Last observed state of a host that takes secondaries.

    ``observed_at`` is the time of the observation by the decision engine,
    ``reported_at`` that of the last report of the host's agent; None if there
    has been none. ``document`` has the fields of ``schemas.CAPACITY``.
    """

    __tablename__ = 'host_states'

    name: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    observed_at: Mapped[int] = mapped_column(Moment)
    reported_at: Mapped[int | None] = mapped_column(Moment)
    document: Mapped[dict[str, typing.Any]] = mapped_column(
        Json(dict), nullable=True)


class RecordedPlan(Base):
    """An action plan of Watcher, with its operations.

    ``document`` has the fields of ``schemas.PLAN`` that no column has.
    """

    __tablename__ = 'recorded_plans'
    __table_args__ = (sa.Index(None, 'created_at'), OPTIONS)

    id: Mapped[int] = mapped_column(Number, primary_key=True,
                                    autoincrement=True)
    uuid: Mapped[str] = mapped_column(sa.String(36), unique=True)
    request: Mapped[str] = mapped_column(sa.String(32))
    state: Mapped[str] = mapped_column(sa.String(20))
    created_at: Mapped[int] = mapped_column(Moment)
    updated_at: Mapped[int | None] = mapped_column(Moment)
    document: Mapped[dict[str, typing.Any]] = mapped_column(
        Json(dict), nullable=True)

    operations: Mapped[list['RecordedOperation']] = orm.relationship(
        order_by='RecordedOperation.id', lazy='selectin',
        passive_deletes=True, cascade='all, delete-orphan')


class RecordedOperation(Base):
    """An operation on one server, of an action of Watcher.

    An action on several members of a lease has one operation for each.
    ``document`` has the fields of ``schemas.OPERATION`` that no column has.
    """

    __tablename__ = 'recorded_operations'

    id: Mapped[int] = mapped_column(Number, primary_key=True,
                                    autoincrement=True)
    plan_id: Mapped[int] = mapped_column(
        Number, sa.ForeignKey('recorded_plans.id', ondelete='CASCADE'),
        index=True)
    server_id: Mapped[str | None] = mapped_column(sa.String(36), index=True)
    source: Mapped[str | None] = mapped_column(sa.String(255), index=True)
    target: Mapped[str | None] = mapped_column(sa.String(255), index=True)
    began_at: Mapped[int | None] = mapped_column(Moment)
    ended_at: Mapped[int | None] = mapped_column(Moment)
    document: Mapped[dict[str, typing.Any]] = mapped_column(
        Json(dict), nullable=True)


class ServedDay(Base):
    """Time that a lease was served on one day (UTC), and its charge.

    It outlives the lease. ``served`` is in seconds, ``node_seconds`` the same
    times the number of nodes. All are sums of changes of that day, which are
    negative if the work or the charge of earlier days is cancelled.
    """

    __tablename__ = 'served_days'
    __table_args__ = (
        sa.UniqueConstraint('day', 'lease_uuid'),
        sa.Index(None, 'project_id', 'day'),
        OPTIONS)

    id: Mapped[int] = mapped_column(Number, primary_key=True,
                                    autoincrement=True)
    day: Mapped[datetime.date] = mapped_column(sa.Date)
    lease_uuid: Mapped[str] = mapped_column(sa.String(36))
    project_id: Mapped[str] = mapped_column(sa.String(64))
    served: Mapped[int] = mapped_column(sa.BigInteger)
    node_seconds: Mapped[int] = mapped_column(sa.BigInteger)
    charge: Mapped[float] = mapped_column(sa.Double)
