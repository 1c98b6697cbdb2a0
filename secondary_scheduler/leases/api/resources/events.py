# SPDX-License-Identifier: Apache-2.0

"""GET /leases/{id}/events: events of a lease."""

from secondary_scheduler.leases.api import errors, policies, schemas
from secondary_scheduler.leases.api.db import errors as db_errors
from secondary_scheduler.leases.api.routing import Call, Reply, Route


def list_events(call: Call) -> Reply:
    """List the latest events in the order of time."""
    most = call.service.conf.secondary_lease_api.max_limit
    try:
        found = call.service.store.events(
            call.path['id'], call.scope, min(call.query.get('limit', most),
                                             most))
    except db_errors.UnknownLease as exc:
        raise errors.not_found('leases', call.path['id']) from exc
    return Reply(200, {'events': [
        {'time': schemas.moment(one.time), 'kind': one.kind,
         'state': one.state, 'text': one.text} for one in found]})


ROUTES = (
    Route('GET', '/leases/{id}/events', list_events,
          'List the events of a lease, the latest ones if there are many.',
          200, 'EventsAnswer', policies.EVENTS, query=schemas.EVENTS_QUERY,
          refusals=(404,)),
)
