# SPDX-License-Identifier: Apache-2.0

"""Served time and charge of leases by day (UTC)."""

from collections.abc import Sequence
import dataclasses
import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from secondary_scheduler.leases.api.db.record_models import ServedDay
from secondary_scheduler.leases.api.db.session import Database, retried
from secondary_scheduler.reading import times

_AMOUNTS = ('served', 'node_seconds', 'charge')

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


@dataclasses.dataclass(frozen=True)
class Served:
    """Served time of a lease to be added; amounts may be negative."""

    lease_uuid: str
    project_id: str
    served: int
    node_seconds: int
    charge: float


def add_served(session: orm.Session, more: Sequence[Served], now: int) -> None:
    """Add to the accounts of leases for the present day."""
    day, table = day_of(now), ServedDay.__table__
    stored = dict(session.execute(
        sa.select(ServedDay.lease_uuid, ServedDay.id).where(
            ServedDay.day == day,
            ServedDay.lease_uuid.in_([one.lease_uuid for one in more]))
    ).tuples().all())
    new = [{'day': day, **dataclasses.asdict(one)} for one in more
           if one.lease_uuid not in stored]
    if new:
        session.execute(sa.insert(table), new)
    added = [{'row': stored[one.lease_uuid], **{
        f'more_{name}': getattr(one, name) for name in _AMOUNTS}}
        for one in more if one.lease_uuid in stored]
    if added:
        session.execute(
            sa.update(table).where(table.c.id == sa.bindparam('row')).values({
                name: table.c[name] + sa.bindparam(f'more_{name}')
                for name in _AMOUNTS}), added)


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
