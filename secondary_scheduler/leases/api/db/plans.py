"""The plan: which hosts a lease holds when, as the scheduler writes it."""

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


class What(enum.StrEnum):
    """For what hosts are held."""

    PREPARE = 'prepare'
    RESUME = 'resume'
    RUN = 'run'
    SUSPEND = 'suspend'
    SHUT_DOWN = 'shut-down'


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Hosts that are held in [begin, end), seconds since 1970.

    Without an end they are held for ever; ``hosts`` is how many nodes are on
    each.
    """

    begin: int
    end: int | None
    what: What
    hosts: Mapping[str, int]


@retried
def write(database: Database, plan: Mapping[str, Sequence[Stretch]]) -> None:
    """Replace what is planned for leases, by their UUIDs.

    Those that are not named keep what they have; with nothing planned they
    hold nothing.  A lease that was deleted meanwhile is passed over.
    """
    if not plan:
        return
    hosts = _hosts(database, {host for stretches in plan.values()
                              for one in stretches for host in one.hosts})
    with database.writer() as session:
        session.execute(sa.delete(SlotRow).where(SlotRow.lease_id.in_(
            sa.select(LeaseRow.id).where(LeaseRow.uuid.in_(plan)))))
        # Locked, or one could be deleted before its slots are there.
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
                 for uuid, stretches in plan.items() if uuid in leases
                 for one in stretches]
        session.add_all(slot for slot, _ in slots)
        session.flush()
        rows = [{'slot_id': slot.id, 'host_id': hosts[host], 'nodes': nodes}
                for slot, one in slots for host, nodes in one.hosts.items()]
        if rows:
            session.execute(sa.insert(SlotHost), rows)


def _hosts(database: Database, names: set[str]) -> dict[str, int]:
    """Return the numbers of hosts; those that are new get one."""
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
            pass    # Another scheduler named one of them meanwhile.


@retried
def read(database: Database, project: str | None = None,
         lease: str | None = None, begin: int | None = None,
         end: int | None = None) -> list[tuple[str, Stretch]]:
    """Return what is planned: (lease's UUID, stretch), the earliest first.

    :param project: whose leases; None is all.
    :param begin: leave out what ends by then; ``end``: what begins later.
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
        hosts = _on(session, [slot.id for slot, _ in found])
    return [(uuid, Stretch(slot.begin, slot.end, What(slot.what),
                           hosts.get(slot.id, {})))
            for slot, uuid in found]


def _on(session: orm.Session, slots: Sequence[int]
        ) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for first in range(0, len(slots), 1000):
        for slot, host, nodes in session.execute(
                sa.select(SlotHost.slot_id, HostRow.name, SlotHost.nodes)
                .join(HostRow, HostRow.id == SlotHost.host_id)
                .where(SlotHost.slot_id.in_(slots[first:first + 1000]))
                .order_by(HostRow.name)):
            found.setdefault(slot, {})[host] = nodes
    return found
