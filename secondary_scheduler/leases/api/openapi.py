# SPDX-License-Identifier: Apache-2.0

"""OpenAPI 3.1 description, derived from the routes and their schemas."""

from collections.abc import Sequence
import http
import re
import typing

from secondary_scheduler.leases.api import microversions, schemas
from secondary_scheduler.leases.api.routing import Route

_JSON = 'application/json'
_ABOUT = """\
Leases of secondary capacity. Times are UTC, durations in seconds. Every \
error is JSON with a code and a detail that names the remedy."""
#: Statuses of errors: of all requests, of authenticated ones, of ones with a
#: body.
_ALWAYS = (400, 406, 500)
_OF_USERS = (401, 403, 503)
_OF_BODIES = (413, 415)

_TOKEN = {'type': 'apiKey', 'in': 'header', 'name': 'X-Auth-Token',
          'description': 'A token of Keystone.'}
_VERSION_HEADER = {
    'name': 'OpenStack-API-Version', 'in': 'header', 'required': False,
    'description': (
        'Requested version, "secondary-lease 1.0" or "secondary-lease '
        'latest"; the default is the oldest. The header may contain versions '
        'of other services too.'),
    'schema': {'type': 'string'}}


def describe_service(table: Sequence[Route], url: str
                     ) -> dict[str, typing.Any]:
    """Return the description of a service at a URL."""
    paths: dict[str, typing.Any] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(
            route)
    return {
        'openapi': '3.1.0',
        'info': {'title': 'Secondary leases', 'description': _ABOUT,
                 'version': microversions.VERSIONS[-1]},
        'servers': [{'url': url}],
        'paths': paths,
        'components': {'schemas': schemas.COMPONENTS,
                       'securitySchemes': {'token': _TOKEN}}}


def _operation(route: Route) -> dict[str, typing.Any]:
    operation: dict[str, typing.Any] = {
        'operationId': route.name, 'summary': route.summary,
        'parameters': [*_path(route), *_query(route), _VERSION_HEADER],
        'responses': _responses(route),
        'security': [] if route.rule is None else [{'token': []}]}
    if route.rule is not None:
        operation['description'] = f'Policy: {route.rule}'
    if route.since != microversions.FIRST:
        operation['x-openstack'] = {'min-ver': str(route.since)}
    if route.body is not None:
        operation['requestBody'] = {
            'required': True, 'content': {_JSON: {'schema': route.body}}}
    return operation


def _path(route: Route) -> list[dict[str, typing.Any]]:
    return [{'name': name, 'in': 'path', 'required': True,
             'schema': schemas.UUID}
            for name in re.findall(r'{(\w+)}', route.path)]


def _query(route: Route) -> list[dict[str, typing.Any]]:
    return [{'name': name, 'in': 'query', 'required': False,
             'schema': schema, 'description': schema['description']}
            for name, schema in route.query['properties'].items()]


def _responses(route: Route) -> dict[str, typing.Any]:
    good: dict[str, typing.Any] = {
        'description': http.HTTPStatus(route.status).phrase}
    if route.answer is not None:
        good['content'] = {_JSON: {'schema': schemas.ref(route.answer)}}
    refusals = {*_ALWAYS, *route.refusals}
    if route.rule is not None:
        refusals |= set(_OF_USERS)
    if route.since != microversions.FIRST:
        refusals.add(404)
    if route.body is not None:
        refusals |= set(_OF_BODIES)
    return {str(route.status): good} | {
        str(status): {
            'description': http.HTTPStatus(status).phrase,
            'content': {_JSON: {'schema': schemas.ref('Errors')}}}
        for status in sorted(refusals)}
