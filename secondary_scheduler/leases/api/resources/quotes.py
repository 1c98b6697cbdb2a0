# SPDX-License-Identifier: Apache-2.0

"""/quotes: price and start of a possible lease, without obligation.

The scheduler, in another process, writes the answer; clients poll for it.
"""

import dataclasses
import typing

from secondary_scheduler.leases.api import (
    errors,
    microversions,
    node_sets,
    policies,
    schemas,
)
from secondary_scheduler.leases.api.db import errors as db_errors
from secondary_scheduler.leases.api.db.models import Quote
from secondary_scheduler.leases.api.resources import leases
from secondary_scheduler.leases.api.routing import Call, Reply, Route


def create_quote(call: Call) -> Reply:
    """Store a request for a quote; the scheduler answers later."""
    options = call.service.conf.secondary_lease_api
    wanted = leases.parse_request(call)
    leases.raise_problems(call.service.verifier.verify_flavors(
        call.session, wanted.nodes))
    wanted = dataclasses.replace(
        wanted, nodes=node_sets.without_user_data(wanted.nodes))
    try:
        quote = call.service.quotes.create(
            wanted, options.quote_lifetime, options.quota_quotes)
    except db_errors.OverQuota as exc:
        raise errors.ApiError(403, 'over-quota', (
            f'{exc}. Wait until quotes of your project are answered or '
            'expire.')) from exc
    return Reply(202, {'quote': _show(call, quote)},
                 {'Location': call.link(f'/quotes/{quote.uuid}')})


def show_quote(call: Call) -> Reply:
    """Show a quote, with the offer if there is one already."""
    try:
        quote = call.service.quotes.get(call.path['id'], call.scope)
    except db_errors.UnknownQuote as exc:
        raise errors.not_found('quotes', call.path['id']) from exc
    return Reply(200, {'quote': _show(call, quote)})


def _show(call: Call, quote: Quote) -> dict[str, typing.Any]:
    return {**leases.show_terms(call, quote),
            'expires_at': schemas.moment(quote.expires_at),
            'offer': None if quote.accepted is None else {
                'accepted': quote.accepted,
                'start': schemas.moment(quote.begin), 'rate': quote.rate,
                'price': quote.price, 'reason': quote.reason}}


ROUTES = (
    Route('POST', '/quotes', create_quote, (
        'Request a quote: price and start of a lease with these terms, '
        'without obligation. GET /quotes/{id} has the offer as soon as the '
        'scheduler has answered.'), 202, 'QuoteAnswer',
        policies.CREATE_QUOTE, body=schemas.CREATE_QUOTE,
        since=microversions.QUOTES),
    Route('GET', '/quotes/{id}', show_quote, 'Show a quote.', 200,
          'QuoteAnswer', policies.SHOW_QUOTE, refusals=(404,),
          since=microversions.QUOTES),
)
