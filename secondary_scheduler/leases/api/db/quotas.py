"""How much a project may have.

The limits are in the database and not in Keystone (oslo.limit): a lease is
counted and made in one transaction, under the lock of the project's row, so
that no two requests get the last place, and none waits for another service.
"""

import dataclasses

from oslo_config import cfg
from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy import orm

from secondary_scheduler.leases.api.db import errors
from secondary_scheduler.leases.api.db.models import (
    LeaseRow,
    Nodes,
    NodeSetRow,
    Project,
    ServerRow,
)
from secondary_scheduler.leases.api.db.session import Database, retried
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState

UNLIMITED = -1
_OPEN = frozenset(LeaseState) - lease_states.FINAL


@dataclasses.dataclass(frozen=True)
class QuotaLimits:
    """At most so many leases that are not over, and nodes of them."""

    leases: int
    nodes: int

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> 'QuotaLimits':
        """Return the limits of a project without ones of its own."""
        options = conf.secondary_lease_api
        return cls(options.quota_leases, options.quota_nodes)


@dataclasses.dataclass(frozen=True)
class ProjectUsage:
    """What a project has, and may have."""

    limits: QuotaLimits
    leases: int
    nodes: int


def ensure(database: Database, project: str) -> None:
    """Make the row of a project, if there is none."""
    try:
        with database.writer() as session:
            session.execute(sa.insert(Project).values(
                project_id=project, made=0))
    except db_exception.DBDuplicateEntry:
        pass    # Somebody else made it meanwhile.


def lock(session: orm.Session, project: str) -> bool:
    """Keep others from making leases in a project until the end.

    :returns: False if the project has no row yet (``ensure``).
    """
    return bool(session.execute(sa.update(Project).where(
        Project.project_id == project).values(
            made=Project.made + 1)).rowcount)


def check(session: orm.Session, project: str, limits: QuotaLimits, nodes: int
          ) -> None:
    """Raise OverQuota unless one more lease of so many nodes may be."""
    usage = _usage(session, project, limits)
    for what, limit, used, asked in (
            ('leases', usage.limits.leases, usage.leases, 1),
            ('nodes', usage.limits.nodes, usage.nodes, nodes)):
        if limit != UNLIMITED and used + asked > limit:
            raise errors.OverQuota(what, limit, used, asked)


@retried
def usage(database: Database, project: str,
          limits: QuotaLimits) -> ProjectUsage:
    """Return what a project has, and may have.

    ``limits`` are those of a project that has none of its own.
    """
    with database.reader() as session:
        return _usage(session, project, limits)


def _usage(session: orm.Session, project: str,
           limits: QuotaLimits) -> ProjectUsage:
    own = [sa.select(column).where(Project.project_id == project)
           .scalar_subquery() for column in (Project.leases, Project.nodes)]
    counted = sa.select(
        sa.func.count(sa.distinct(LeaseRow.id)),
        sa.func.coalesce(sa.func.sum(NodeSetRow.number), 0), *own,
    ).join(NodeSetRow, NodeSetRow.lease_id == LeaseRow.id).where(
        LeaseRow.project_id == project, LeaseRow.state.in_(_OPEN),
        # Nobody has asked for those that have none.
        LeaseRow.duration.is_not(None))
    leases, nodes, most_leases, most_nodes = session.execute(counted).one()
    return ProjectUsage(QuotaLimits(
        limits.leases if most_leases is None else most_leases,
        limits.nodes if most_nodes is None else most_nodes),
        leases, int(nodes))


@retried
def running(database: Database, project: str) -> list[Nodes]:
    """Return the nodes of a project's leases that have servers now.

    Those without a duration are left out: they last as long as their owner
    likes.

    :returns: node sets with their number and flavor, one for each flavor.
    """
    query = sa.select(NodeSetRow.flavor, sa.func.sum(NodeSetRow.number)).join(
        LeaseRow, NodeSetRow.lease_id == LeaseRow.id).where(
            LeaseRow.project_id == project, LeaseRow.state.in_(_OPEN),
            LeaseRow.duration.is_not(None),
            sa.exists().where(ServerRow.lease_id == LeaseRow.id)).group_by(
                NodeSetRow.flavor)
    with database.reader() as session:
        return [Nodes(int(number), flavor)
                for flavor, number in session.execute(query)]


@retried
def override(database: Database, project: str, **limits: int | None) -> None:
    """Give a project limits of its own, ``leases`` or ``nodes`` or both.

    None is the configuration's.
    """
    ensure(database, project)
    with database.writer() as session:
        session.execute(sa.update(Project).where(
            Project.project_id == project).values(**limits))
