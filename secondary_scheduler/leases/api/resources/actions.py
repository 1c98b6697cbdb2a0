"""POST /leases/{id}/action: what an owner may want of a lease."""

from secondary_scheduler.leases.api import policies, schemas
from secondary_scheduler.leases.api.db.store import OPEN
from secondary_scheduler.leases.api.resources import leases
from secondary_scheduler.leases.api.routing import Call, Reply, Route

#: What is kept of each action, and the kind of its event.
_ACTIONS = {
    'pause': ({'hold': True}, 'paused'),
    'unpause': ({'hold': False}, 'unpaused'),
    'cancel': ({'wanted_end': True}, 'cancel-asked')}


def act_on_lease(call: Call) -> Reply:
    """Keep what the owner wants; the scheduler does it afterwards."""
    values, kind = _ACTIONS[call.body['action']]
    return leases.change(call, leases.find(call), kind, values, OPEN)


ROUTES = (
    Route('POST', '/leases/{id}/action', act_on_lease, (
        'Pause a lease (it is not scheduled until it is unpaused), or cancel '
        'it (it ends, and its servers with it).'), 202, 'LeaseAnswer',
        policies.ACTION, body=schemas.ACTION, refusals=(404, 409)),
)
