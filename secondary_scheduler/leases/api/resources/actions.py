# SPDX-License-Identifier: Apache-2.0

"""POST /leases/{id}/action: pause, unpause or cancel a lease."""

from secondary_scheduler.leases.api import policies, schemas
from secondary_scheduler.leases.api.db.store import OPEN
from secondary_scheduler.leases.api.resources import leases
from secondary_scheduler.leases.api.routing import Call, Reply, Route

#: Of each action the changed columns, and the kind of its event.
_ACTIONS = {
    'pause': ({'hold': True}, 'paused'),
    'unpause': ({'hold': False}, 'unpaused'),
    'cancel': ({'wanted_end': True}, 'cancel-asked')}


def act_on_lease(call: Call) -> Reply:
    """Store the request; the scheduler carries it out later."""
    values, kind = _ACTIONS[call.body['action']]
    return leases.change(call, leases.find(call), kind, values, OPEN)


ROUTES = (
    Route('POST', '/leases/{id}/action', act_on_lease, (
        'Pause a lease (it is not scheduled until it is unpaused), unpause '
        'it, or cancel it (it ends, and its servers are deleted).'),
        202, 'LeaseAnswer',
        policies.ACTION, body=schemas.ACTION, refusals=(404, 409)),
)
