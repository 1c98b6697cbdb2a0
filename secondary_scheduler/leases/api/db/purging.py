# SPDX-License-Identifier: Apache-2.0

"""Deletion of old rows: leases that are over, expired quotes, accounts."""

import sqlalchemy as sa

from secondary_scheduler.leases.api.db import accounting
from secondary_scheduler.leases.api.db.models import LeaseRow, Quote
from secondary_scheduler.leases.api.db.record_models import ServedDay
from secondary_scheduler.leases.api.db.session import Database, retried
from secondary_scheduler.model import lease_states

#: Rows that are deleted in one transaction, at most.
_BATCH = 50


def purge_rows(database: Database, before: int, accounts_before: int | None,
               dry_run: bool = False) -> dict[str, int]:
    """Delete old rows, or count them only; return their number by kind.

    A lease takes its node sets, servers and events with it.  One that is not
    over is never deleted.

    :param before: time (s since 1970) before which a lease was changed last,
        or a quote has expired.
    :param accounts_before: time of the first day whose account is kept; None
        keeps all.
    """
    chosen: dict[str, tuple[type, sa.ColumnElement[bool]]] = {
        'leases': (LeaseRow, LeaseRow.state.in_(lease_states.FINAL)
                   & (LeaseRow.updated_at < before)),
        'quotes': (Quote, Quote.expires_at < before)}
    if accounts_before is not None:
        chosen['accounts'] = (
            ServedDay, ServedDay.day < accounting.day_of(accounts_before))
    return {name: _count(database, table, where) if dry_run
            else _delete(database, table, where)
            for name, (table, where) in chosen.items()}


@retried
def _count(database: Database, table: type, where: sa.ColumnElement[bool]
           ) -> int:
    with database.reader() as session:
        return int(session.scalar(
            sa.select(sa.func.count()).select_from(table).where(where)) or 0)


def _delete(database: Database, table: type, where: sa.ColumnElement[bool]
            ) -> int:
    deleted = 0
    while some := _delete_some(database, table, where):
        deleted += some
    return deleted


@retried
def _delete_some(database: Database, table: type,
                 where: sa.ColumnElement[bool]) -> int:
    """Delete the oldest rows, a few, so that others do not wait."""
    rows = table.__table__      # type: ignore[attr-defined]
    with database.reader() as session:
        found = list(session.scalars(
            sa.select(rows.c.id).where(where).order_by(rows.c.id)
            .limit(_BATCH)))
    if not found:
        return 0
    with database.writer() as session:
        session.execute(sa.delete(rows).where(rows.c.id.in_(found), where))
    return len(found)
