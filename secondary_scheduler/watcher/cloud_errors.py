# SPDX-License-Identifier: Apache-2.0

"""Errors of Nova, Placement and Keystone, and the retry of conflicts.

Each error has a ``Nature``: whether the same request can succeed later.
"""

from collections.abc import Iterator
import contextlib

from keystoneauth1 import exceptions as ksa_exceptions
from openstack import exceptions as sdk_exceptions
from oslo_log import log
import tenacity

from secondary_scheduler.leases.engine.values import Nature
from secondary_scheduler.reading.placement_errors import read_refusal

LOG = log.getLogger(__name__)

#: HTTP status codes of requests that fail the same way each time: malformed,
#: forbidden (a full quota, too), not found, not supported.
PERMANENT = frozenset({400, 403, 404, 405, 410, 422, 501})
#: Status with which a proxy gives up waiting for a service.
_GATEWAY_TIMEOUT = 504


class CloudError(Exception):
    """A service did not answer, refused, or its answer cannot be read."""

    nature = Nature.TRANSIENT


class TimedOut(CloudError):
    """A request took too long: perhaps a cell of Nova is silent."""

    nature = Nature.UNSEEN


class Unseen(CloudError):
    """Nova cannot show a server, since its cell does not answer."""

    nature = Nature.UNSEEN


class NotFound(CloudError):
    """A resource of the request does not exist (any more)."""

    nature = Nature.PERMANENT


class Refused(CloudError):
    """The request is refused, and would be refused again."""

    nature = Nature.PERMANENT


class NoRoom(CloudError):
    """No host, or not the requested one, has room for the instance now."""

    nature = Nature.CAPACITY


class Untrusted(CloudError):
    """The trust of a lease's owner, or one of its roles, no longer exists."""

    nature = Nature.LOST_RIGHT


class Conflict(CloudError):
    """The request does not fit the present state."""


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Raise the errors of the client libraries as ``CloudError``."""
    try:
        yield
    except (sdk_exceptions.NotFoundException, ksa_exceptions.NotFound) as exc:
        raise NotFound(str(exc)) from exc
    except (sdk_exceptions.ConflictException, ksa_exceptions.Conflict) as exc:
        # Only Placement gives codes; of those one is worth another request.
        if read_refusal(exc.response).may_be_concurrent:
            raise Conflict(str(exc)) from exc
        raise Refused(str(exc)) from exc
    except (ksa_exceptions.ConnectTimeout,
            ksa_exceptions.GatewayTimeout) as exc:
        raise TimedOut(str(exc)) from exc
    except sdk_exceptions.HttpException as exc:
        kind = (Refused if exc.status_code in PERMANENT
                else TimedOut if exc.status_code == _GATEWAY_TIMEOUT
                else CloudError)
        raise kind(
            f'{exc.status_code}, {exc.details or exc.message}') from exc
    except sdk_exceptions.DuplicateResource as exc:
        raise Refused(str(exc)) from exc
    except (sdk_exceptions.SDKException,
            ksa_exceptions.ClientException) as exc:
        raise CloudError(f'{type(exc).__name__}: {exc}') from exc
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        LOG.exception('An answer of the cloud cannot be read.')
        raise CloudError('an answer cannot be read: '
                         f'{type(exc).__name__}: {exc}') from exc


#: Decorator: retries a method up to three times after a ``Conflict``.
retry_conflicts = tenacity.retry(
    retry=tenacity.retry_if_exception_type(Conflict),
    stop=tenacity.stop_after_attempt(4),
    wait=tenacity.wait_random(0, 0.2), reraise=True)
