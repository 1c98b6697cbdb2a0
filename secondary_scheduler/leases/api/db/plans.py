# SPDX-License-Identifier: Apache-2.0

"""The plan: planned slots of leases on hosts, written by the scheduler."""

from collections.abc import Mapping, Sequence
import dataclasses
import enum

from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy import orm

from secondary_scheduler.leases.api.db.models import (
    HostRow,
    LeaseRow,
    SlotHost,
    SlotRow,
)
from secondary_scheduler.leases.api.db.session import Database, retried

#: Leases that are written in one transaction, at most.
_BATCH = 50


class SlotPurpose(enum.StrEnum):
    """Purpose for which a lease holds hosts."""

    PREPARE = 'prepare'
    RESUME = 'resume'
    RUN = 'run'
    SUSPEND = 'suspend'
    SHUT_DOWN = 'shut-down'


@dataclasses.dataclass(frozen=True)
class PlannedSlot:
    """Hosts held by a lease in [begin, end), in seconds since 1970.

    An ``end`` of None is unlimited; ``hosts`` is the number of nodes by host.
    """

    begin: int
    end: int | None
    what: SlotPurpose
    hosts: Mapping[str, int]


def write_plan(database: Database,
               plan: Mapping[str, Sequence[PlannedSlot]]) -> None:
    """Replace the planned slots of the given leases, by UUID.

    Other leases keep their slots. A lease that was deleted meanwhile is
    ignored. A transaction has few leases, so that no owner waits for all.
    """
    planned = list(plan.items())
    for first in range(0, len(planned), _BATCH):
        _write_some(database, dict(planned[first:first + _BATCH]))


@retried
def _write_some(database: Database,
                plan: Mapping[str, Sequence[PlannedSlot]]) -> None:
    hosts = _host_ids(database, {host for planned in plan.values()
                                 for one in planned for host in one.hosts})
    with database.writer() as session:
        session.execute(sa.delete(SlotRow).where(SlotRow.lease_id.in_(
            sa.select(LeaseRow.id).where(LeaseRow.uuid.in_(plan)))))
        # Locked, so that no lease is deleted before its slots are written.
        leases = dict(
            session.execute(
                sa.select(LeaseRow.uuid, LeaseRow.id)
                .where(LeaseRow.uuid.in_(plan))
                .with_for_update()
            )
            .tuples()
            .all()
        )
        slots = [(SlotRow(lease_id=leases[uuid], begin=one.begin, end=one.end,
                          what=one.what), one)
                 for uuid, planned in plan.items() if uuid in leases
                 for one in planned]
        session.add_all(slot for slot, _ in slots)
        session.flush()
        rows = [{'slot_id': slot.id, 'host_id': hosts[host], 'nodes': nodes}
                for slot, one in slots for host, nodes in one.hosts.items()]
        if rows:
            session.execute(sa.insert(SlotHost), rows)


def _host_ids(database: Database, names: set[str]) -> dict[str, int]:
    """Return the row ids of hosts, by name; insert missing rows."""
    while True:
        with database.reader() as session:
            known = dict(
                session.execute(
                    sa.select(HostRow.name, HostRow.id).where(
                        HostRow.name.in_(names)
                    )
                )
                .tuples()
                .all()
            )
        missing = names - known.keys()
        if not missing:
            return known
        try:
            with database.writer() as session:
                session.execute(sa.insert(HostRow), [
                    {'name': name} for name in sorted(missing)])
        except db_exception.DBDuplicateEntry:
            pass    # Another scheduler has inserted one of them meanwhile.


@retried
def read_plan(database: Database, project: str | None = None,
              lease: str | None = None, begin: int | None = None,
              end: int | None = None) -> list[tuple[str, PlannedSlot]]:
    """Return planned slots as (UUID of the lease, slot), the earliest first.

    :param project: project of the leases; None is all.
    :param lease: UUID of a lease; None is all.
    :param begin: leave out slots that end by then.
    :param end: leave out slots that begin then or later.
    """
    query = (
        sa.select(SlotRow, LeaseRow.uuid)
        .join(LeaseRow, LeaseRow.id == SlotRow.lease_id)
        .order_by(SlotRow.begin, SlotRow.id)
    )
    if project is not None:
        query = query.where(LeaseRow.project_id == project)
    if lease is not None:
        query = query.where(LeaseRow.uuid == lease)
    if begin is not None:
        query = query.where(sa.or_(SlotRow.end > begin, SlotRow.end.is_(None)))
    if end is not None:
        query = query.where(SlotRow.begin < end)
    with database.reader() as session:
        found = session.execute(query).tuples().all()
        hosts = _hosts_of(session, [slot.id for slot, _ in found])
    return [(uuid, PlannedSlot(slot.begin, slot.end, SlotPurpose(slot.what),
                               hosts.get(slot.id, {})))
            for slot, uuid in found]


def _hosts_of(session: orm.Session, slots: Sequence[int]
              ) -> dict[int, dict[str, int]]:
    """Return the number of nodes by host of each slot."""
    found: dict[int, dict[str, int]] = {}
    for first in range(0, len(slots), 1000):
        for slot, host, nodes in session.execute(
                sa.select(SlotHost.slot_id, HostRow.name, SlotHost.nodes)
                .join(HostRow, HostRow.id == SlotHost.host_id)
                .where(SlotHost.slot_id.in_(slots[first:first + 1000]))
                .order_by(HostRow.name)):
            found.setdefault(slot, {})[host] = nodes
    return found
