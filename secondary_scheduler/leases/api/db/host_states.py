# SPDX-License-Identifier: Apache-2.0

"""States of hosts, written by a decision engine and shown to operators."""

from collections.abc import Mapping
import dataclasses
import typing

import sqlalchemy as sa

from secondary_scheduler.leases.api.db.record_models import HostState
from secondary_scheduler.leases.api.db.session import Database, retried


@dataclasses.dataclass(frozen=True)
class ObservedHost:
    """An observation of a host; columns as of ``record_models.HostState``.

    A ``reported_at`` of None leaves the time of the last report as it is.
    """

    document: Mapping[str, typing.Any]
    reported_at: int | None = None


@retried
def write_hosts(database: Database, observed: Mapping[str, ObservedHost],
                now: int) -> None:
    """Replace the states of all hosts.

    :param observed: all hosts that take secondaries, by name.
    :param now: time of the observation, in seconds since 1970.
    """
    rows = {name: {'name': name, 'observed_at': now,
                   'document': dict(one.document)} | (
                       {} if one.reported_at is None
                       else {'reported_at': one.reported_at})
            for name, one in observed.items()}
    with database.writer() as session:
        session.execute(sa.delete(HostState).where(
            HostState.name.not_in(observed)))
        known = set(session.scalars(sa.select(HostState.name)))
        # Rows of one bulk update have the same columns.
        for reported in (True, False):
            old = [row for name, row in rows.items() if name in known
                   and ('reported_at' in row) is reported]
            if old:
                session.execute(sa.update(HostState), old)
        new = [{'reported_at': None, **row}
               for name, row in rows.items() if name not in known]
        if new:
            session.execute(sa.insert(HostState), new)


@retried
def read_hosts(database: Database, name: str | None = None,
               marker: str | None = None, limit: int | None = None
               ) -> list[HostState]:
    """Return states of hosts, sorted by name.

    :param name: only this host.
    :param marker: name of the host after which to begin; need not exist.
    """
    query = sa.select(HostState).order_by(HostState.name).limit(limit)
    if name is not None:
        query = query.where(HostState.name == name)
    if marker is not None:
        query = query.where(HostState.name > marker)
    with database.reader() as session:
        return list(session.scalars(query))
