# SPDX-License-Identifier: Apache-2.0

"""Calls of the lease service with the token of a dashboard's user.

Errors of the service become Horizon's own exceptions.  Their messages are for
users: they name a next step, and no address inside the cloud.
"""

from collections.abc import Iterator, Sequence
import contextlib
import logging
import typing

from django.conf import settings
from django.utils.translation import gettext_lazy as _
from horizon import exceptions
from keystoneauth1 import adapter, session, token_endpoint
from keystoneauth1 import exceptions as keystone_exceptions
from openstack_dashboard.api import base

from secondary_scheduler.leases.client import client

LOG = logging.getLogger(__name__)

#: Horizon's name of the permission to see panels of the service.
SERVICE = f'openstack.services.{client.SERVICE_TYPE}'
#: Seconds after which a request counts as not answered.
_TIMEOUT = 20

Json = client.Json


class LeaseServiceError(exceptions.NotAvailable):
    """A refusal or failure of the lease service; the text is for the user.

    ``status`` is the HTTP status; None: there was no response.
    """

    def __init__(self, message: typing.Any, status: int | None = None
                 ) -> None:
        super().__init__(message)
        self.status = status


class LeaseNotFound(exceptions.NotFound):
    """There is no such lease, or it belongs to another project."""


def lease_client(request: typing.Any) -> client.Client:
    """Return a client with the user's token and the catalogue's endpoint.

    :raises ServiceCatalogException: if the region has no lease service.
    """
    verify = not settings.OPENSTACK_SSL_NO_VERIFY and (
        settings.OPENSTACK_SSL_CACERT or True)
    return client.Client(adapter.Adapter(
        session.Session(verify=verify, timeout=_TIMEOUT),
        service_type=client.SERVICE_TYPE,
        auth=token_endpoint.Token(
            base.url_for(request, client.SERVICE_TYPE),
            request.user.token.id)))


@contextlib.contextmanager
def _errors_for_users() -> Iterator[None]:
    """Translate errors into exceptions of Horizon.

    :raises NotAuthenticated: if the token is not valid any more.
    :raises LeaseNotFound: if the lease does not exist for this user.
    :raises LeaseServiceError: for all other errors.
    """
    try:
        yield
    except client.LeaseError as exc:
        raise _translate(exc) from exc
    except exceptions.ServiceCatalogException as exc:
        raise LeaseServiceError(_(
            'There is no lease service in this region. Choose another '
            'region, or ask the operator of this cloud.')) from exc
    except keystone_exceptions.ClientException as exc:
        LOG.warning('The lease service does not answer: %s', exc)
        raise LeaseServiceError(_(
            'The lease service does not answer. Try again in a minute; if '
            'it still does not answer, tell the operator of this cloud.')
                                ) from exc


def _translate(exc: client.LeaseError) -> Exception:
    status = exc.status_code
    if status == 401:
        return exceptions.NotAuthenticated()
    if status == 404:
        return LeaseNotFound(exc.message)
    if exc.code == 'unknown':
        # The text is that of a proxy, or of another service.
        LOG.warning('Unexpected response of the lease service: %s',
                    exc.message)
        return LeaseServiceError(_(
            'The lease service failed (HTTP status %s). Try again in a '
            'minute; if it fails again, tell the operator of this cloud.'
            ) % status, status)
    return LeaseServiceError(exc.message, status)


class Listed(typing.NamedTuple):
    """A page of a list, and the reason why leases wait ('': they do not)."""

    items: Sequence[Json]
    more: bool
    warning: str = ''


def lease_list(request: typing.Any, **filters: typing.Any) -> Listed:
    """Return a page of leases; the filters are those of the client."""
    with _errors_for_users():
        leases = lease_client(request)
        page = leases.leases_page(**filters)
        return Listed(page.items, page.more, leases.warning)


def lease_get(request: typing.Any, lease: str) -> Json:
    """Return a lease by its id."""
    with _errors_for_users():
        return lease_client(request).get(lease)


def lease_create(request: typing.Any, **terms: typing.Any) -> Json:
    """Request a lease; the terms are those of the client's ``create``."""
    with _errors_for_users():
        return lease_client(request).create(**terms)


def lease_act(request: typing.Any, lease: str, action: str) -> None:
    """Pause, unpause or cancel a lease."""
    with _errors_for_users():
        lease_client(request).act(lease, action)


def lease_delete(request: typing.Any, lease: str) -> None:
    """Delete a lease that is over or new."""
    with _errors_for_users():
        lease_client(request).delete(lease)


def lease_events(request: typing.Any, lease: str) -> list[Json]:
    """Return the events of a lease in the order of time."""
    with _errors_for_users():
        return lease_client(request).events(lease)


def timeline(request: typing.Any, lease: str | None = None,
             **window: typing.Any) -> list[Json]:
    """Return the planned slots of a lease, or of all of the project."""
    with _errors_for_users():
        return lease_client(request).timeline(lease, **window)


def quota(request: typing.Any) -> Json:
    """Return limits and usage of the project."""
    with _errors_for_users():
        return lease_client(request).quota()


def quote_create(request: typing.Any, **terms: typing.Any) -> str:
    """Request a quote; return its id."""
    with _errors_for_users():
        return str(lease_client(request).request_quote(**terms)['id'])


def quote_get(request: typing.Any, quote: str) -> Json:
    """Return a quote; its offer is None until the scheduler has answered."""
    with _errors_for_users():
        return lease_client(request).get_quote(quote)


def capacity(request: typing.Any, **filters: typing.Any) -> Listed:
    """Return a page of hosts that take secondaries; for operators."""
    with _errors_for_users():
        leases = lease_client(request)
        page = leases.capacity_page(**filters)
        return Listed(page.items, page.more, leases.warning)


def operations(request: typing.Any, **filters: typing.Any) -> Listed:
    """Return a page of action plans with operations; for operators."""
    with _errors_for_users():
        leases = lease_client(request)
        page = leases.operations_page(**filters)
        return Listed(page.items, page.more, leases.warning)


def accounting(request: typing.Any, **interval: typing.Any) -> Json:
    """Return served time and charge of all projects; for operators."""
    with _errors_for_users():
        return lease_client(request).accounting(all_projects=True,
                                                **interval)
