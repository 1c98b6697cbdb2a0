"""Who asks: Keystone's middleware, or none while developing."""

from collections.abc import Callable
import typing

from keystonemiddleware import auth_token
from oslo_config import cfg
import webob
import webob.dec

Wsgi = Callable[..., typing.Any]


def middleware(application: Wsgi, conf: cfg.ConfigOpts) -> Wsgi:
    """Return what puts the user into a request, and lets all through.

    Whether somebody has to be known is for the route to say: the versions
    and the description are for everybody.
    """
    if conf.secondary_lease_api.auth_strategy == 'noauth':
        return Believing(application)
    return typing.cast(Wsgi, auth_token.AuthProtocol(
        application, {'delay_auth_decision': True,
                      'oslo_config_config': conf}))


class Believing:
    """Takes a token "USER:PROJECT" at its word; for development only.

    The user "admin" has the role admin; the others may do what members may,
    or those named "reader" what readers may.
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
