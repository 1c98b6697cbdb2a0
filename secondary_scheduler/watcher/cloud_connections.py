# SPDX-License-Identifier: Apache-2.0

"""Connections to the cloud: one of Watcher's own, and one for each trust.

One session per process, from [watcher_clients_auth]: Watcher itself opens a
new one, with a new token, for each audit and each action.
"""

from collections.abc import Iterator
import contextlib
import functools

from keystoneauth1 import exceptions as ksa_exceptions
from keystoneauth1 import loading
from openstack import connection
from watcher.common import clients

from secondary_scheduler.conf import keystone
from secondary_scheduler.watcher import cloud_errors, per_process
from secondary_scheduler.watcher.cloud import Cloud
from secondary_scheduler.watcher.settings import CONF

_AUTH = 'watcher_clients_auth'
#: Seconds that Nova may take to look for a server in all cells, or to count
#: the quota in them: it waits 60 s for a cell that does not answer.
_PATIENCE_S = 90.0


def _connect() -> Cloud:
    return _connect_with(CONF.secondary_watcher.request_timeout)


def _connect_with(timeout: float) -> Cloud:
    with cloud_errors.translated_errors():
        session = clients.OpenStackClients().session
        session.timeout = timeout
        return Cloud(clients.get_sdk_connection(_AUTH, session=session),
                     timeout)


@functools.lru_cache(maxsize=64)
def _connect_by_trust(trust: str | None, lease: str) -> Cloud:
    """Return a cloud with all services, by a trust of a lease's owner.

    Each lease has a token of its own: services accept one for minutes after
    its trust was deleted, and a lease must not begin by that.
    """
    # A token by a trust takes its project from the trust.
    auth = loading.load_auth_from_conf_options(CONF, _AUTH, **({
        'trust_id': trust, 'project_id': None, 'project_name': None,
        'project_domain_id': None, 'project_domain_name': None}
        if trust else {}))
    session = loading.load_session_from_conf_options(CONF, _AUTH, auth=auth)
    session.timeout = _PATIENCE_S
    # Watcher's own connections offer only the services that it names.
    return Cloud(connection.Connection(
        session=session, region_name=keystone.region(CONF.nova),
        interface=keystone.interfaces(CONF.nova) or None))


def _check_own_account() -> None:
    """Check that Watcher's own account gets a new token.

    :raises CloudError: if it does not.
    """
    try:
        _connect().open_session()
    except cloud_errors.CloudError as exc:
        raise cloud_errors.CloudError(
            "Keystone gives Watcher's own account no token, see "
            f'[{_AUTH}]: {exc}') from exc


@contextlib.contextmanager
def act_as_owner(trust: str | None, lease: str) -> Iterator[Cloud]:
    """Act on the cloud with the rights of a trust's owner.

    The loss of the trust may show only when a service rejects the token, and
    Keystone issues no other one.

    :param trust: id of the trust; None for Watcher's own account.
    :param lease: UUID of the lease of the owner.
    :raises Untrusted: if the trust, or one of its roles, no longer exists.
        Keystone refuses all trusts in the same way while Watcher's own
        password is wrong; that is another ``CloudError``.
    """
    try:
        with cloud_errors.translated_errors():
            cloud = _connect_by_trust(trust, lease)
            cloud.open_session()
        yield cloud
    except cloud_errors.CloudError as exc:
        if isinstance(exc.__cause__, ksa_exceptions.Unauthorized
                      | ksa_exceptions.Forbidden | ksa_exceptions.NotFound):
            _connect_by_trust.cache_clear()
            _check_own_account()
            raise cloud_errors.Untrusted(str(exc)) from exc
        raise


#: The cloud of this process; no request is made before its first use.
shared = per_process.PerProcess(_connect)
#: The same for requests that have to wait for cells which do not answer.
patient = per_process.PerProcess(lambda: _connect_with(_PATIENCE_S))
