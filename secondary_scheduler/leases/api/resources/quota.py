"""GET /quota: what a project has, and may have."""

from secondary_scheduler.leases.api import policies
from secondary_scheduler.leases.api.db import quotas
from secondary_scheduler.leases.api.routing import Call, Reply, Route


def show_quota(call: Call) -> Reply:
    """Show the limits of the project, and what counts against them."""
    found = quotas.usage(call.service.database, call.context.project_id,
                         quotas.QuotaLimits.from_options(call.service.conf))
    return Reply(200, {'quota': {
        'leases': {'limit': found.limits.leases, 'used': found.leases},
        'nodes': {'limit': found.limits.nodes, 'used': found.nodes}}})


ROUTES = (
    Route('GET', '/quota', show_quota, (
        'Show how many leases that are not over, and nodes of them, the '
        'project has and may have.'), 200, 'QuotaAnswer', policies.QUOTA),
)
