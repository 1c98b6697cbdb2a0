"""GET /openapi.json: the service describes itself."""

from secondary_scheduler.leases.api import openapi
from secondary_scheduler.leases.api.routing import Call, Reply, Route


def show_description(call: Call) -> Reply:
    """Show the description."""
    return Reply(200, openapi.document(call.service.table,
                                       call.request.application_url))


ROUTES = (
    Route('GET', '/openapi.json', show_description,
          'Describe the service (OpenAPI 3.1).', 200, 'Description'),
)
