# SPDX-License-Identifier: Apache-2.0

"""Sections with options of keystoneauth, in the forms of deployment tools.

Tools write such sections differently. For the interface alone there are
``valid_interfaces`` (Kolla), ``interface`` (DevStack), ``os_interface`` and
values like ``internalURL`` (older files of Nova), and keystoneauth refuses
some of them together.
"""

import re
import typing

from keystoneauth1 import adapter, exceptions, loading, session
from oslo_config import cfg

#: Interfaces to look for in the catalog if a section names none.
INTERFACES = ('internal', 'public')
#: Default timeout of a request in seconds; without one, a request to a
#: service that hangs never ends.
TIMEOUT_S = 30
#: The section of keystonemiddleware.
_MIDDLEWARE = 'keystone_authtoken'


class _OtherOptions:
    """A section without its interface options, which may be refused."""

    interface = valid_interfaces = None

    def __init__(self, section: typing.Any) -> None:
        self._section = section

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._section, name)


def register_opts(conf: cfg.ConfigOpts, group: str, service_type: str
                  ) -> None:
    """Register the options of credentials, session and adapter in a section.

    The files must have been read already, since ``auth_section`` may name
    another section.

    :param service_type: type of the service that the section describes.
    """
    loading.register_auth_conf_options(conf, group)
    loading.register_session_conf_options(conf, group)
    loading.register_adapter_conf_options(conf, group, deprecated_opts={
        'valid_interfaces': [cfg.DeprecatedOpt('os_interface', group)],
        'region_name': [cfg.DeprecatedOpt('os_region_name', group)]})
    conf.set_default('timeout', TIMEOUT_S, group)
    conf.set_default('service_type', service_type, group)


def make_adapter(conf: cfg.ConfigOpts, group: str, **more: typing.Any
                 ) -> adapter.Adapter:
    """Return an adapter of a registered section; it connects at first use.

    :param more: arguments of the adapter, which override the section.
    :raises keystoneauth1.exceptions.ClientException: if the section lacks
        credentials that its ``auth_type`` needs.
    """
    section = conf[group]
    auth = loading.load_auth_from_conf_options(conf, group)
    if auth is None:
        raise exceptions.MissingAuthPlugin(
            f'[{group}] has no auth_type, so there are no credentials: set '
            'it, most often to "password"')
    options = {'interface': interfaces(section) or list(INTERFACES),
               'region_name': region(section), **more}
    loading.adapter.process_conf_options(
        typing.cast(typing.Any, _OtherOptions(section)), options)
    return adapter.Adapter(
        loading.load_session_from_conf_options(conf, group, auth=auth),
        auth=auth, **options)


def make_session(conf: cfg.ConfigOpts, auth: typing.Any, timeout: float,
                 **more: typing.Any) -> session.Session:
    """Return a session with the certificates of [keystone_authtoken].

    :param auth: an auth plug-in with a user's token.
    :param more: further arguments of the session.
    """
    section = _middleware_section(conf)
    return loading.session.Session().load_from_options(
        insecure=section.insecure, cacert=section.cafile,
        cert=section.certfile, key=section.keyfile, auth=auth,
        timeout=timeout, **more)


def interfaces(section: typing.Any) -> list[str]:
    """Return the interfaces in a section, the preferred one first.

    The list is empty if it names none. Another package may have registered
    the section.
    """
    named = section.valid_interfaces or [getattr(section, 'interface', None)]
    return [one.removesuffix('URL').lower() for one in named if one]


def region(section: typing.Any) -> str | None:
    """Return the region in a section, None if it is empty."""
    return section.region_name or None


def _middleware_section(conf: cfg.ConfigOpts) -> typing.Any:
    """Return [keystone_authtoken], even if no middleware is in use."""
    # Imported here, since Watcher needs this module without the middleware.
    from keystonemiddleware import opts
    for group, options in opts.list_auth_token_opts():
        conf.register_opts(options, group)
    return conf[_MIDDLEWARE]


def identity_url(conf: cfg.ConfigOpts) -> str:
    """Return the URL of Keystone's API version 3 from [keystone_authtoken].

    ``auth_url`` is preferred, since services reach Keystone there;
    ``www_authenticate_uri`` is for users and may differ. Both may include a
    version.

    :raises keystoneauth1.exceptions.ClientException: if both are missing.
    """
    section = _middleware_section(conf)
    loading.register_auth_conf_options(conf, _MIDDLEWARE)
    auth = loading.load_auth_from_conf_options(conf, _MIDDLEWARE)
    url = getattr(auth, 'auth_url', None) or section.www_authenticate_uri
    if not url:
        raise exceptions.MissingAuthPlugin(
            f'[{_MIDDLEWARE}] has no auth_url, so Keystone cannot be found')
    return re.sub(r'(/v[0-9.]+)?/*$', '', url) + '/v3'
