# SPDX-License-Identifier: Apache-2.0

"""Quotes: the start and price that a lease would get."""

from collections.abc import Mapping

from secondary_scheduler.leases.api.db import models
from secondary_scheduler.leases.api.db.quotes import QuoteAnswer, Quotes
from secondary_scheduler.leases.engine.records import to_terms
from secondary_scheduler.leases.engine.values import Amounts
from secondary_scheduler.leases.scheduling.lease import Terms, TermsError
from secondary_scheduler.leases.scheduling.policies import RefusedError
from secondary_scheduler.leases.scheduling.scheduler import Scheduler


def answer_quotes(quotes: Quotes, scheduler: Scheduler,
                  flavors: Mapping[str, Amounts], boot_s: int,
                  learning: bool) -> None:
    """Answer all quotes that wait; nothing is booked.

    :param learning: whether capacity is not known well enough for a rejection
    """
    for quote in quotes.unanswered():
        try:
            found = _offer(quote, scheduler, to_terms(quote, flavors, boot_s),
                           boot_s, learning)
        except (TermsError, RefusedError) as exc:
            found = QuoteAnswer(False, reason=str(exc))
        quotes.answer(quote.uuid, found)


def _offer(quote: models.Quote, scheduler: Scheduler, asked: Terms,
           boot_s: int, learning: bool) -> QuoteAnswer:
    found = scheduler.quote(asked)
    reason = '' if found.accepted else 'there is no room for it at its time'
    if reason and learning:
        reason += (', as far as is known: the engine has just started; a '
                   'lease would wait for a while for room')
    if quote.max_rate is not None and found.rate > quote.max_rate:
        reason = (f'at {found.rate:g} for a node and a second it is more '
                  f'than {quote.max_rate:g}')
    return QuoteAnswer(
        not reason,
        None if found.booking is None else found.booking.up + boot_s,
        found.rate,
        found.price * quote.duration / asked.duration,
        reason,
    )


def next_possible_start(scheduler: Scheduler, asked: Terms, boot_s: int
                        ) -> int | None:
    """Return the earliest start of a lease that was rejected for lack of room.

    None if there is none.
    """
    try:
        booking = scheduler.quote(asked).booking
    except (TermsError, RefusedError):
        return None
    return None if booking is None else booking.up + boot_s
