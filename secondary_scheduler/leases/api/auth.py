# SPDX-License-Identifier: Apache-2.0

"""Authentication: Keystone's middleware, or none for development."""

from collections.abc import Callable
import typing

from keystonemiddleware import auth_token
from oslo_config import cfg
import webob
import webob.dec

Wsgi = Callable[..., typing.Any]


def middleware(application: Wsgi, conf: cfg.ConfigOpts) -> Wsgi:
    """Return middleware that adds the user to a request and rejects none.

    Each route decides whether it needs a user: versions and the description
    are public.
    """
    if conf.secondary_lease_api.auth_strategy == 'noauth':
        return NoAuth(application)
    return typing.cast(Wsgi, auth_token.AuthProtocol(
        application, {'delay_auth_decision': True,
                      'oslo_config_config': conf}))


class NoAuth:
    """Middleware that accepts any token "USER:PROJECT"; for development.

    The user "admin" has the role admin, "reader" the role reader, and any
    other user the roles member and reader.
    """

    _ROLES: typing.ClassVar[dict[str, str]] = {
        'admin': 'admin,member,reader', 'reader': 'reader'}

    def __init__(self, application: Wsgi) -> None:
        self._application = application

    @webob.dec.wsgify
    def __call__(self, request: webob.Request) -> Wsgi:
        user, _, project = request.headers.get('X-Auth-Token',
                                               '').partition(':')
        for name, value in (
                ('X-User-Id', user), ('X-Project-Id', project),
                ('X-Roles', self._ROLES.get(user, 'member,reader'))):
            request.headers.pop(name, None)
            if user and value:
                request.headers[name] = value
        return self._application
