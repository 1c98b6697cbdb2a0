# SPDX-License-Identifier: Apache-2.0

"""Quotas of projects.

The limits are in the database and not in Keystone (oslo.limit). A lease is
counted and created in one transaction, under the lock of the project's row.
So concurrent requests cannot exceed the quota, and no request depends on
Keystone.
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
    """Limits of leases that are not over, and of their nodes."""

    leases: int
    nodes: int

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> 'QuotaLimits':
        """Return the limits of projects without own limits."""
        options = conf.secondary_lease_api
        return cls(options.quota_leases, options.quota_nodes)


@dataclasses.dataclass(frozen=True)
class ProjectUsage:
    """Limits and usage of a project."""

    limits: QuotaLimits
    leases: int
    nodes: int


def ensure_row(database: Database, project: str) -> None:
    """Insert the row of a project, if there is none."""
    try:
        with database.writer() as session:
            session.execute(sa.insert(Project).values(
                project_id=project, made=0))
    except db_exception.DBDuplicateEntry:
        pass    # Another request has inserted it meanwhile.


def lock_row(session: orm.Session, project: str) -> bool:
    """Lock the row of a project until the end of the transaction.

    Other requests cannot create leases or quotes of the project meanwhile.

    :returns: False if the project has no row yet (``ensure_row``).
    """
    return bool(session.execute(sa.update(Project).where(
        Project.project_id == project).values(
            made=Project.made + 1)).rowcount)


def check_quota(session: orm.Session, project: str, limits: QuotaLimits,
                nodes: int) -> None:
    """Check that the quota leaves room for one more lease.

    :param limits: limits of a project without own limits.
    :param nodes: number of nodes of the lease.
    :raises OverQuota: if the lease would exceed a limit.
    """
    usage = _usage(session, project, limits)
    for resource, limit, used, requested in (
            ('leases', usage.limits.leases, usage.leases, 1),
            ('nodes', usage.limits.nodes, usage.nodes, nodes)):
        if limit != UNLIMITED and used + requested > limit:
            raise errors.OverQuota(resource, limit, used, requested)


@retried
def read_usage(database: Database, project: str,
               limits: QuotaLimits) -> ProjectUsage:
    """Return limits and usage of a project.

    :param limits: limits of a project without own limits.
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
        # Adopted leases have no duration and do not count.
        LeaseRow.duration.is_not(None))
    leases, nodes, most_leases, most_nodes = session.execute(counted).one()
    return ProjectUsage(QuotaLimits(
        limits.leases if most_leases is None else most_leases,
        limits.nodes if most_nodes is None else most_nodes),
        leases, int(nodes))


@retried
def nodes_with_servers(database: Database, project: str) -> list[Nodes]:
    """Return the nodes of a project's leases that have servers now.

    Adopted leases, which have no duration, are left out: their end is not
    planned.

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
def set_limits(database: Database, project: str, **limits: int | None
               ) -> None:
    """Set own limits of a project, ``leases`` or ``nodes`` or both.

    None restores the configured limit.
    """
    ensure_row(database, project)
    with database.writer() as session:
        session.execute(sa.update(Project).where(
            Project.project_id == project).values(**limits))
