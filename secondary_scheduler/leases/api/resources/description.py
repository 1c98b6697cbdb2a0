# SPDX-License-Identifier: Apache-2.0

"""GET /openapi.json: description of the service."""

from secondary_scheduler.leases.api import openapi
from secondary_scheduler.leases.api.routing import Call, Reply, Route


def show_description(call: Call) -> Reply:
    """Show the OpenAPI description."""
    return Reply(200, openapi.describe_service(
        call.service.table, call.request.application_url))


ROUTES = (
    Route('GET', '/openapi.json', show_description,
          'Describe the service (OpenAPI 3.1).', 200, 'Description'),
)
