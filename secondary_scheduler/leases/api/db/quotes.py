"""Quotes: what owners want to know of a lease before they ask for it.

The service keeps the question, the scheduler answers, and after a while both
are gone: nothing is promised.
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
    """What a quote is answered, as ``models.Quote`` has it."""

    accepted: bool
    begin: int | None = None
    rate: float | None = None
    price: float | None = None
    reason: str = ''


class Quotes:
    """The quotes.

    :param clock: returns seconds since 1970.
    """

    def __init__(self, database: Database,
                 clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    @property
    def _now(self) -> int:
        return int(self._clock())

    # -- what owners do

    def create(self, request: LeaseRequest, lifetime: int, most: int) -> Quote:
        """Keep what somebody wants to know, for ``lifetime`` seconds.

        :param most: how many of a project may wait for an answer at once.
        :raises OverQuota: if more would.
        """
        self._forget()
        try:
            return self._create(request, lifetime, most)
        except db_exception.DBDuplicateEntry:
            # An attempt whose answer was lost with the connection.
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
            if quotas.lock(session, request.project_id):
                waiting = session.scalars(sa.select(Quote.id).where(
                    Quote.project_id == request.project_id,
                    *self._waiting())).all()
                if most != quotas.UNLIMITED and len(waiting) >= most:
                    raise errors.OverQuota('quotes', most, len(waiting), 1)
                session.add(quote)
                return quote
        quotas.ensure(self._database, request.project_id)
        return self._create(request, lifetime, most)

    @retried
    def get(self, uuid: str, project: str | None = None) -> Quote:
        """Return a quote, of a project if one is given.

        :raises UnknownQuote: if there is none, or no more.
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

    # -- what the scheduler does

    def take(self, limit: int = 100) -> list[Quote]:
        """Return quotes that wait for an answer, the oldest first.

        They are returned again until they are answered or expire.
        """
        self._forget()
        return self._take(limit)

    @retried
    def _take(self, limit: int) -> list[Quote]:
        with self._database.reader() as session:
            return list(session.scalars(
                sa.select(Quote).where(*self._waiting())
                .order_by(Quote.id).limit(limit)))

    @retried
    def answer(self, uuid: str, offer: QuoteAnswer) -> bool:
        """Answer a quote; the first answer counts.

        :returns: False if it was answered already, or has expired.
        """
        with self._database.writer() as session:
            return bool(session.execute(sa.update(Quote).where(
                Quote.uuid == uuid, *self._waiting()).values(
                    **dataclasses.asdict(offer))).rowcount)

    def _waiting(self) -> list[sa.ColumnElement[bool]]:
        return [Quote.accepted.is_(None), Quote.expires_at > self._now]

    @retried
    def _forget(self) -> None:
        """Remove what has expired.

        By number, since MariaDB would lock a range against who adds to it;
        but SQLite gives numbers again.
        """
        expired = Quote.expires_at <= self._now
        with self._database.reader() as session:
            gone = session.scalars(
                sa.select(Quote.id).where(expired).limit(1000)).all()
        if gone:
            with self._database.writer() as session:
                session.execute(sa.delete(Quote).where(
                    Quote.id.in_(gone), expired))
