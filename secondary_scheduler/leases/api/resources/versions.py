# SPDX-License-Identifier: Apache-2.0

"""GET /: versions of the service."""

from secondary_scheduler.leases.api import microversions
from secondary_scheduler.leases.api.routing import Call, Reply, Route


def list_versions(call: Call) -> Reply:
    """Show the oldest and the newest microversion."""
    return Reply(200, {'versions': [{
        'id': 'v1.0', 'status': 'CURRENT',
        'min_version': microversions.VERSIONS[0],
        'max_version': microversions.VERSIONS[-1],
        'links': [{'rel': 'self', 'href': call.link('/')}]}]})


ROUTES = (
    Route('GET', '/', list_versions, 'List the versions.', 200,
          'VersionsAnswer'),
)
