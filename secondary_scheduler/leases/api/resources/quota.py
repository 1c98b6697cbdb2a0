# SPDX-License-Identifier: Apache-2.0

"""GET /quota: limits and usage of a project."""

from secondary_scheduler.leases.api import policies
from secondary_scheduler.leases.api.db import quotas
from secondary_scheduler.leases.api.routing import Call, Reply, Route


def show_quota(call: Call) -> Reply:
    """Show the limits of the project, and its usage of them."""
    found = quotas.read_usage(
        call.service.database, call.context.project_id,
        quotas.QuotaLimits.from_options(call.service.conf))
    return Reply(200, {'quota': {
        'leases': {'limit': found.limits.leases, 'used': found.leases},
        'nodes': {'limit': found.limits.nodes, 'used': found.nodes}}})


ROUTES = (
    Route('GET', '/quota', show_quota, (
        'Show limits and usage of the project: leases that are not over, and '
        'their nodes.'), 200, 'QuotaAnswer', policies.QUOTA),
)
