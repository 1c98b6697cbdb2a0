# SPDX-License-Identifier: Apache-2.0

"""Routing and validation of requests by one table of routes.

The OpenAPI description and some tests are derived from the same table.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import typing

import jsonschema
from keystoneauth1 import session as sessions
from keystoneauth1.identity import access as identity_access
from oslo_config import cfg
from oslo_context import context as oslo_context
from oslo_log import log as logging
from oslo_middleware import request_id
from oslo_policy import policy
import routes
import webob
import webob.dec

from secondary_scheduler.leases.api import (
    errors,
    microversions,
    policies,
    schema_parts,
    schemas,
)
from secondary_scheduler.leases.api.db.quotes import Quotes
from secondary_scheduler.leases.api.db.session import (
    Database,
    DatabaseError,
)
from secondary_scheduler.leases.api.db.store import LeaseStore
from secondary_scheduler.leases.api.standing_trusts import (
    Owner,
    StandingTrusts,
)
from secondary_scheduler.leases.api.verification import Verifier
from secondary_scheduler.reading.values import shown

LOG = logging.getLogger(__name__)

#: Key of the operation's name in the WSGI environment.
OPERATION = 'secondary-lease.operation'


@dataclasses.dataclass(frozen=True)
class Service:
    """Parts of the service that handlers use."""

    conf: cfg.ConfigOpts
    database: Database
    store: LeaseStore
    quotes: Quotes
    enforcer: policy.Enforcer
    trusts: StandingTrusts
    verifier: Verifier
    table: Sequence['Route']


@dataclasses.dataclass(frozen=True)
class Call:
    """A valid and authorized request.

    ``query`` and ``body`` fit their schemas; ``path`` has the variables of
    the path; ``version`` is the requested microversion.
    """

    service: Service
    request: webob.Request
    context: oslo_context.RequestContext
    version: microversions.Version
    path: Mapping[str, str]
    query: Mapping[str, typing.Any]
    body: Mapping[str, typing.Any]

    @property
    def sees_all(self) -> bool:
        """Whether the user may see the leases of all projects."""
        return policies.allows(self.service.enforcer, policies.ALL_PROJECTS,
                               self.context)

    @property
    def scope(self) -> str | None:
        """Project whose leases are visible to the user; None is all."""
        return None if self.sees_all else self.context.project_id

    @property
    def token(self) -> str:
        """Token of the user."""
        return str(self.request.headers.get('X-Auth-Token', ''))

    @property
    def session(self) -> sessions.Session | None:
        """Session with the user's token; None without Keystone."""
        plugin = self.request.environ.get('keystone.token_auth')
        if plugin is None or not plugin.has_user_token:
            return None
        # The plug-in itself would add a service token.
        return self.service.verifier.pool.session(
            self.service.conf,
            identity_access.AccessInfoPlugin(plugin.get_auth_ref(None)))

    @property
    def owner(self) -> Owner:
        """User of the token, in its project."""
        plugin = self.request.environ.get('keystone.token_auth')
        by_trust = plugin is not None and plugin.has_user_token and (
            plugin.get_auth_ref(None).trust_scoped)
        return Owner(self.token, self.context.user_id,
                     self.context.project_id, self.context.roles,
                     bool(by_trust))

    def link(self, path: str) -> str:
        """Return the URL of a path of the service."""
        return f'{self.request.application_url}{path}'


@dataclasses.dataclass(frozen=True)
class Reply:
    """A response: status, body (converted to JSON) and headers."""

    status: int
    body: typing.Any = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Route:
    """One operation of the service.

    ``answer_by`` is the handler. ``rule`` is the policy that allows it; None
    makes it public. ``answer`` names the schema of the response with
    ``status``; ``refusals`` are the statuses of errors; ``since`` is the
    first microversion that has it.
    """

    method: str
    path: str
    answer_by: Callable[[Call], Reply]
    summary: str
    status: int
    answer: str | None = None
    rule: str | None = None
    body: schemas.Schema | None = None
    query: schemas.Schema = dataclasses.field(
        default_factory=lambda: schemas.NO_QUERY)
    refusals: Sequence[int] = ()
    since: microversions.Version = microversions.FIRST
    check: typing.Any = dataclasses.field(init=False, repr=False)
    check_query: typing.Any = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, 'check_query', _validators(self.query))
        object.__setattr__(self, 'check', self.body and _validators(self.body))

    @property
    def name(self) -> str:
        """Name of the operation: the one of the handler."""
        return self.answer_by.__name__

    @property
    def collection(self) -> str:
        """First part of the path."""
        return self.path.split('/')[1]


def _validators(schema: schemas.Schema) -> dict[str, typing.Any]:
    """Return the validator of a schema in each version."""
    return {version: jsonschema.Draft202012Validator(
        schemas.at(schema, microversions.parse(version)))
        for version in microversions.VERSIONS}


class Application:
    """WSGI application that routes requests by the table of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._mapper = routes.Mapper()
        self._by_path: dict[str, dict[str, Route]] = {}
        for route in service.table:
            if route.path not in self._by_path:
                self._mapper.connect(None, route.path, path=route.path)
            self._by_path.setdefault(route.path, {})[route.method] = route
        self._mapper.create_regs([])

    @webob.dec.wsgify
    def __call__(self, request: webob.Request) -> webob.Response:
        try:
            reply = self._reply(request)
        except errors.ApiError as exc:
            return _refuse(request, exc)
        except DatabaseError as exc:
            LOG.error('The database of leases failed: %s', exc)
            return _refuse(request, errors.ApiError(
                503, 'database', 'The database of leases does not answer. '
                'Try again later; requests with the same client_token are '
                'carried out only once.', {'Retry-After': '5'}))
        return _response(reply.status, None if reply.body is None
                         else json.dumps(reply.body).encode(), reply.headers)

    def _reply(self, request: webob.Request) -> Reply:
        route, path = self._route(request)
        request.environ[OPERATION] = route.name
        version = request.environ[microversions.ENVIRON]
        if version < route.since:
            raise errors.ApiError(404, 'no-such-path', (
                f'This exists from version {route.since} on: send '
                f'"OpenStack-API-Version: {microversions.SERVICE_TYPE} '
                f'{route.since}".'))
        context = oslo_context.RequestContext.from_environ(
            request.environ,
            request_id=request.environ.get(request_id.ENV_REQUEST_ID))
        if route.rule is not None:
            self._allow(route, context)
        # An id that is no UUID cannot exist.
        if 'id' in path and not schemas.is_uuid(path['id']):
            raise errors.not_found(route.collection, path['id'][:255])
        return route.answer_by(Call(
            self._service, request, context, version, path,
            _query(request, route, version), _body(request, route, version)))

    def _route(self, request: webob.Request) -> tuple[Route, dict[str, str]]:
        try:
            found = self._mapper.match(request.path_info) or {}
        except UnicodeDecodeError:
            found = {}
        path = found.pop('path', None)
        if path is None:
            raise errors.ApiError(404, 'no-such-path', (
                'There is nothing at this path; GET /openapi.json describes '
                'all operations.'))
        methods = self._by_path[path]
        method = 'GET' if request.method == 'HEAD' else request.method
        if method not in methods:
            allowed = ', '.join(sorted(methods))
            raise errors.ApiError(
                405, 'no-such-method', f'Only {allowed} is possible here.',
                {'Allow': allowed})
        return methods[method], found

    def _allow(self, route: Route, context: oslo_context.RequestContext
               ) -> None:
        if context.user_id is None:
            raise errors.ApiError(
                401, 'unauthorized', 'Authentication required. Request a '
                'token ("openstack token issue") and send it in '
                'X-Auth-Token.')
        if context.project_id is None:
            raise errors.ApiError(
                403, 'no-project', 'Leases belong to projects: request a '
                'token with a project scope (OS_PROJECT_NAME).')
        assert route.rule is not None
        if not policies.allows(self._service.enforcer, route.rule, context):
            raise errors.ApiError(403, 'forbidden', (
                f'The policy {route.rule} does not allow this with your roles '
                f'({", ".join(context.roles) or "none"}). Ask an '
                'administrator of the project for a role that does.'))


def _query(request: webob.Request, route: Route,
           version: microversions.Version) -> dict[str, typing.Any]:
    """Return the query with the types of its schema in a version."""
    try:
        given = request.GET.mixed()
    except UnicodeDecodeError as exc:
        raise errors.invalid('The query is not in UTF-8.') from exc
    known = route.query['properties']
    read = {name: _typed(value, known.get(name, {}))
            for name, value in given.items()}
    _check(route.check_query[str(version)], read, 'the query')
    return read


def _typed(value: typing.Any, schema: schemas.Schema) -> typing.Any:
    """Return a text of the query in the type of its schema, if possible."""
    kind = schema.get('type')
    if kind == 'array':
        return value if isinstance(value, list) else [value]
    if kind == 'integer' and isinstance(value, str) and (
            value.isascii() and value.isdigit() and len(value) < 20):
        return int(value)
    if kind == 'boolean':
        return {'true': True, 'false': False}.get(str(value).lower(), value)
    return value


def _refuse_constant(name: str) -> typing.NoReturn:
    raise ValueError(f'{name} is not a number of JSON')


def _body(request: webob.Request, route: Route,
          version: microversions.Version) -> dict[str, typing.Any]:
    """Return the body, validated by the schema of a version."""
    if route.check is None:
        return {}
    if request.content_type != 'application/json':
        raise errors.ApiError(415, 'no-json', (
            'Send JSON, with "Content-Type: application/json".'))
    try:
        read = json.loads(request.body.decode('utf-8'),
                          parse_constant=_refuse_constant)
        # Escapes of JSON can denote surrogates, which UTF-8 cannot encode.
        json.dumps(read, ensure_ascii=False).encode('utf-8')
    except (ValueError, RecursionError) as exc:
        raise errors.invalid(f'The body is not JSON: {exc}.') from exc
    _check(route.check[str(version)], read, 'the body')
    return typing.cast(dict[str, typing.Any], read)


def _check(validator: typing.Any, value: object, part: str) -> None:
    found = next(validator.iter_errors(value), None)
    if found is None:
        return
    where = '.'.join(str(one) for one in found.absolute_path)
    raise errors.invalid(
        f'In {part}{", at " + where if where else ""}: '
        f'{_message(found)[:500]}. GET /openapi.json has the schema.')


def _message(found: jsonschema.ValidationError) -> str:
    """Return the message of an error, without a value that may be secret.

    The error of a pattern describes the format in place of the pattern.
    """
    expected = found.validator == 'pattern' and schema_parts.EXPECTED.get(
        found.schema.get('format'))
    if expected:
        return f'expected {expected}, not {shown(found.instance)}'
    if found.validator == 'not':
        return (f'{shown(found.instance)} has a control character or a part '
                'that is not allowed, such as ".."')
    secret = isinstance(found.instance, (dict, list)) or (
        isinstance(found.schema, dict) and found.schema.get('writeOnly'))
    return found.message.replace(repr(found.instance), 'the value') if (
        secret) else found.message


def _refuse(request: webob.Request, exc: errors.ApiError) -> webob.Response:
    return _response(exc.status, errors.body(
        request.environ, exc.status, exc.code, exc.detail), exc.headers)


def _response(status: int, body: bytes | None, headers: Mapping[str, str]
              ) -> webob.Response:
    if body is None:
        answer = webob.Response(status=status)
        del answer.content_type
    else:
        answer = webob.Response(status=status, body=body,
                                content_type='application/json', charset=None)
    answer.headers['Cache-Control'] = 'no-cache'
    answer.headers.update(headers)
    return answer
