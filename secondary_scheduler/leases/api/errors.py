# SPDX-License-Identifier: Apache-2.0

"""Errors of the service, as JSON.

    {"errors": [{"status": 404, "code": "secondary-lease.not-found",
                 "title": "Not Found", "detail": "the fault and the remedy",
                 "request_id": "req-..."}]}

The format is that of the OpenStack API guidelines.
"""

from collections.abc import Callable, Mapping
import http
import json
import typing

from oslo_log import log as logging
from oslo_middleware import request_id
import webob
import webob.dec

LOG = logging.getLogger(__name__)

PREFIX = 'secondary-lease'


class ApiError(Exception):
    """A response with a status of 400 or more."""

    def __init__(self, status: int, code: str, detail: str,
                 headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})


#: By the collection in the path: the missing thing, and a remedy.
_NOT_FOUND = {
    'leases': ('lease', '"openstack secondary lease list" (GET /leases) '
                        'shows the existing ones.'),
    'quotes': ('quote', 'Quotes expire: request another (POST /quotes).')}


def not_found(collection: str, uuid: str) -> ApiError:
    """Return the error for a missing thing, or for one of another project."""
    noun, advice = _NOT_FOUND[collection]
    return ApiError(404, 'not-found', (
        f'There is no {noun} {uuid} in your project. {advice}'))


def invalid(detail: str) -> ApiError:
    """Return the error for an invalid request."""
    return ApiError(400, 'invalid', detail)


def body(environ: Mapping[str, typing.Any], status: int, code: str,
         detail: str) -> bytes:
    """Return an error as JSON."""
    return json.dumps({'errors': [{
        'status': status, 'code': f'{PREFIX}.{code}',
        'title': http.HTTPStatus(status).phrase, 'detail': detail,
        'request_id': environ.get(request_id.ENV_REQUEST_ID, '')}]}).encode()


#: Remedies for errors of the middleware, by status.
_ADVICE = {
    400: 'Check the headers of the request: OpenStack-API-Version is, for '
         'example, "secondary-lease 1.0".',
    401: 'Request a token ("openstack token issue") and send it in '
         'X-Auth-Token.',
    406: 'Request a version that GET / lists, or leave out '
         'OpenStack-API-Version.',
    413: 'Send a smaller body.',
    503: 'Try again later.'}


class JsonErrors:
    """Middleware that turns errors of inner middleware into JSON.

    Other middleware answers in plain text, in HTML, or, as the client accepts
    it, in JSON of another form. The text of an uncaught exception is only
    logged.
    """

    def __init__(self, application: Callable[..., typing.Any]) -> None:
        self._application = application

    @webob.dec.wsgify
    def __call__(self, request: webob.Request) -> webob.Response:
        # All answers are JSON; without the header errors of other middleware
        # are never JSON.
        request.headers.pop('Accept', None)
        try:
            answer = request.get_response(self._application)
        except Exception:
            LOG.exception('A request failed with an exception.')
            return webob.Response(
                status=500, content_type='application/json', charset=None,
                body=body(request.environ, 500, 'internal', (
                    'This is a fault of the service. Give its operator the '
                    'request_id.')))
        if answer.status_int < 400 or (
                answer.content_type == 'application/json'):
            return answer
        status = answer.status_int
        title = http.HTTPStatus(status).phrase
        code = title.lower().replace(' ', '-')
        answer.body = b'' if request.method == 'HEAD' else body(
            request.environ, status, code,
            f'{title}. {_ADVICE.get(status, "")}'.strip())
        answer.content_type = 'application/json'
        return answer
