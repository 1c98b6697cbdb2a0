# SPDX-License-Identifier: Apache-2.0

"""Quotes: price and start of a possible lease, without obligation.

The service stores the request and the scheduler answers it. Both are deleted
when the quote expires.
"""

from collections.abc import Callable
import dataclasses
import time

from oslo_db import exception as db_exception
import sqlalchemy as sa

from secondary_scheduler.leases.api.db import errors, quotas
from secondary_scheduler.leases.api.db.models import TERMS, Quote
from secondary_scheduler.leases.api.db.requests import LeaseRequest
from secondary_scheduler.leases.api.db.session import Database, retried


@dataclasses.dataclass(frozen=True)
class QuoteAnswer:
    """Answer to a quote, with the columns of ``models.Quote``."""

    accepted: bool
    begin: int | None = None
    rate: float | None = None
    price: float | None = None
    reason: str = ''


class Quotes:
    """Access to the quotes.

    :param clock: returns seconds since 1970.
    """

    def __init__(self, database: Database,
                 clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    @property
    def _now(self) -> int:
        return int(self._clock())

    # -- for owners

    def create(self, request: LeaseRequest, lifetime: int, most: int) -> Quote:
        """Store a request for a quote.

        :param lifetime: seconds until it expires.
        :param most: limit of unanswered quotes of a project.
        :raises OverQuota: if the project would exceed the limit.
        """
        self._delete_expired()
        try:
            return self._create(request, lifetime, most)
        except db_exception.DBDuplicateEntry:
            # An earlier attempt, whose result was lost with the connection.
            return self.get(request.uuid, request.project_id)

    @retried
    def _create(self, request: LeaseRequest,
                lifetime: int, most: int) -> Quote:
        now = self._now
        quote = Quote(
            uuid=request.uuid, project_id=request.project_id,
            user_id=request.user_id, nodes=request.nodes, created_at=now,
            expires_at=now + lifetime, accepted=None, rate=None, price=None,
            begin=None, reason='',
            **{name: getattr(request, name) for name in TERMS})
        with self._database.writer() as session:
            if quotas.lock_row(session, request.project_id):
                waiting = session.scalars(sa.select(Quote.id).where(
                    Quote.project_id == request.project_id,
                    *self._waiting())).all()
                if most != quotas.UNLIMITED and len(waiting) >= most:
                    raise errors.OverQuota('quotes', most, len(waiting), 1)
                session.add(quote)
                return quote
        quotas.ensure_row(self._database, request.project_id)
        return self._create(request, lifetime, most)

    @retried
    def get(self, uuid: str, project: str | None = None) -> Quote:
        """Return a quote, of a project if one is given.

        :raises UnknownQuote: if it does not exist or has expired.
        """
        query = sa.select(Quote).where(Quote.uuid == uuid,
                                       Quote.expires_at > self._now)
        if project is not None:
            query = query.where(Quote.project_id == project)
        with self._database.reader() as session:
            found = session.scalar(query)
        if found is None:
            raise errors.UnknownQuote(f'there is no quote {uuid}')
        return found

    # -- for the scheduler

    def unanswered(self, limit: int = 100) -> list[Quote]:
        """Return unanswered quotes, the oldest first.

        They are returned by each call until they are answered or expire.
        """
        self._delete_expired()
        return self._unanswered(limit)

    @retried
    def _unanswered(self, limit: int) -> list[Quote]:
        with self._database.reader() as session:
            return list(session.scalars(
                sa.select(Quote).where(*self._waiting())
                .order_by(Quote.id).limit(limit)))

    @retried
    def answer(self, uuid: str, offer: QuoteAnswer) -> bool:
        """Answer a quote; the first answer counts.

        :returns: False if it has an answer already, or has expired.
        """
        with self._database.writer() as session:
            return bool(session.execute(sa.update(Quote).where(
                Quote.uuid == uuid, *self._waiting()).values(
                    **dataclasses.asdict(offer))).rowcount)

    def _waiting(self) -> list[sa.ColumnElement[bool]]:
        return [Quote.accepted.is_(None), Quote.expires_at > self._now]

    @retried
    def _delete_expired(self) -> None:
        """Delete expired quotes.

        They are deleted by row id, since MariaDB would lock a range of
        ``expires_at`` against inserts. The condition is repeated, since
        SQLite reuses row ids.
        """
        expired = Quote.expires_at <= self._now
        with self._database.reader() as session:
            gone = session.scalars(
                sa.select(Quote.id).where(expired).limit(1000)).all()
        if gone:
            with self._database.writer() as session:
                session.execute(sa.delete(Quote).where(
                    Quote.id.in_(gone), expired))
