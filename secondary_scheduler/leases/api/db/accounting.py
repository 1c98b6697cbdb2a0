# SPDX-License-Identifier: Apache-2.0

"""Served time and charge of leases by day (UTC)."""

import dataclasses
import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from secondary_scheduler.leases.api.db.models import LeaseRow
from secondary_scheduler.leases.api.db.record_models import ServedDay
from secondary_scheduler.leases.api.db.session import Database, retried
from secondary_scheduler.reading import times


@dataclasses.dataclass(frozen=True)
class ProjectAccount:
    """Sums of a project in an interval; see ``record_models.ServedDay``.

    ``leases`` is the number of leases that were served.
    """

    project_id: str
    leases: int
    served: int
    node_seconds: int
    charge: float


def day_of(now: int) -> datetime.date:
    """Return the day (UTC) of a time in seconds since 1970."""
    return times.to_datetime(now).date()


def add_served(session: orm.Session, lease: LeaseRow, served: int,
               charge: float, now: int) -> None:
    """Add seconds and charge to the account of a lease for the present day.

    Both may be negative; nothing is stored if both are 0.
    """
    if not served and not charge:
        return
    day = day_of(now)
    row = session.scalar(sa.select(ServedDay).where(
        ServedDay.day == day, ServedDay.lease_uuid == lease.uuid))
    if row is None:
        row = ServedDay(day=day, lease_uuid=lease.uuid,
                        project_id=lease.project_id, served=0,
                        node_seconds=0, charge=0.0)
        session.add(row)
    row.served += served
    row.node_seconds += served * sum(one.number for one in lease.nodes)
    row.charge += charge


@retried
def read_accounts(database: Database, begin: datetime.date,
                  end: datetime.date, project: str | None = None
                  ) -> list[ProjectAccount]:
    """Return the account of each project with one, sorted by project.

    :param begin: first day.
    :param end: day after the last one.
    :param project: only this project; None is all.
    """
    query = sa.select(
        ServedDay.project_id, sa.func.count(ServedDay.lease_uuid.distinct()),
        sa.func.sum(ServedDay.served), sa.func.sum(ServedDay.node_seconds),
        sa.func.sum(ServedDay.charge),
    ).where(ServedDay.day >= begin, ServedDay.day < end).group_by(
        ServedDay.project_id).order_by(ServedDay.project_id)
    if project is not None:
        query = query.where(ServedDay.project_id == project)
    with database.reader() as session:
        return [ProjectAccount(name, count, int(served), int(nodes),
                               float(charge))
                for name, count, served, nodes, charge
                in session.execute(query)]


@retried
def first_day(database: Database) -> datetime.date | None:
    """Return the first day with an account, None if there is none."""
    with database.reader() as session:
        return session.scalar(sa.select(sa.func.min(ServedDay.day)))
