# SPDX-License-Identifier: Apache-2.0

"""Standing trusts: at most one of each user in each project.

The service writes them, and the engine reads them.
"""

import enum

from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from secondary_scheduler.leases.api.db.models import (
    OPTIONS,
    Base,
    Json,
    LeaseRow,
    Moment,
    Number,
)
from secondary_scheduler.leases.api.db.session import Database, retried
from secondary_scheduler.leases.api.db.store import OPEN

#: Command that makes or renews the standing trust.
CREATE_COMMAND = 'openstack secondary lease trust create'


class TrustState(enum.StrEnum):
    """State of a standing trust."""

    VALID = 'valid'
    #: Keystone shows it to no token of this kind, or does not answer.
    UNVERIFIED = 'unverified'
    EXPIRED = 'expired'
    #: Keystone does not know it any more.
    LOST = 'lost'
    #: Its roles are not those that the operator has configured.
    OUTDATED = 'outdated'


class StandingTrust(Base):
    """A trust of Keystone with which servers are made for its owner.

    ``trust_id`` is Keystone's id, ``roles`` are the names of its roles.
    """

    __tablename__ = 'standing_trusts'
    __table_args__ = (sa.UniqueConstraint('project_id', 'user_id'), OPTIONS)

    id: Mapped[int] = mapped_column(Number, primary_key=True,
                                    autoincrement=True)
    project_id: Mapped[str] = mapped_column(sa.String(64))
    user_id: Mapped[str] = mapped_column(sa.String(64))
    trust_id: Mapped[str] = mapped_column(sa.String(64))
    roles: Mapped[list[str]] = mapped_column(Json(list), nullable=True)
    created_at: Mapped[int] = mapped_column(Moment)
    expires_at: Mapped[int] = mapped_column(Moment)


def _of(project: str, user: str) -> list[sa.ColumnElement[bool]]:
    return [StandingTrust.project_id == project,
            StandingTrust.user_id == user]


@retried
def read_trust(database: Database, project: str, user: str
               ) -> StandingTrust | None:
    """Return the standing trust of a user in a project, if there is one."""
    with database.reader() as session:
        return session.scalar(
            sa.select(StandingTrust).where(*_of(project, user)))


@retried
def read_needed_trusts(database: Database
                       ) -> dict[tuple[str, str], StandingTrust]:
    """Return the trusts of owners of leases that are not over.

    :returns: the trusts by project and user.
    """
    query = sa.select(StandingTrust).where(sa.exists().where(
        LeaseRow.project_id == StandingTrust.project_id,
        LeaseRow.user_id == StandingTrust.user_id,
        LeaseRow.state.in_(OPEN)))
    with database.reader() as session:
        return {(one.project_id, one.user_id): one
                for one in session.scalars(query)}


def replace_trust(database: Database, new: StandingTrust, known: str | None
                  ) -> StandingTrust | None:
    """Store a trust, unless another request has changed it meanwhile.

    :param known: id of the trust that it replaces; None if there was none.
    :returns: the stored trust, which may be that of another request; None if
        ``known`` was forgotten meanwhile.
    """
    try:
        _replace(database, new, known)
    except db_exception.DBDuplicateEntry:
        pass    # Another request was first, or an earlier attempt of this one.
    return read_trust(database, new.project_id, new.user_id)


@retried
def _replace(database: Database, new: StandingTrust, known: str | None
             ) -> None:
    values = {name: getattr(new, name) for name in (
        'project_id', 'user_id', 'trust_id', 'roles', 'created_at',
        'expires_at')}
    with database.writer() as session:
        session.execute(
            sa.insert(StandingTrust).values(**values) if known is None
            else sa.update(StandingTrust).where(
                *_of(new.project_id, new.user_id),
                StandingTrust.trust_id == known).values(**values))


@retried
def forget_trust(database: Database, trust: StandingTrust) -> None:
    """Delete the row of a trust, unless another has replaced it."""
    with database.writer() as session:
        session.execute(sa.delete(StandingTrust).where(
            *_of(trust.project_id, trust.user_id),
            StandingTrust.trust_id == trust.trust_id))
