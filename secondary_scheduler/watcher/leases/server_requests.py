# SPDX-License-Identifier: Apache-2.0

"""Properties of a lease's servers that only the database of leases has.

User data may be secret.  It is no parameter of an action, since Watcher stores
and shows those.
"""

from collections.abc import Iterator
import contextlib
from typing import Any

from oslo_db import exception as db_exception

from secondary_scheduler.leases.api import verification
from secondary_scheduler.leases.api.db import errors, requests
from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.watcher import per_process
from secondary_scheduler.watcher.cloud_errors import CloudError, Refused
from secondary_scheduler.watcher.settings import CONF

_database = per_process.PerProcess(lambda: Database(CONF))
_verifier = per_process.PerProcess(
    lambda: verification.Verifier.from_options(CONF))


def read_server_request(lease: str, node: int) -> dict[str, Any]:
    """Return the properties of a node's server from the database of leases.

    :raises Refused: if the database does not know the node.
    :raises CloudError: if the database does not answer.
    """
    with _translated_errors():
        return requests.server_request(_database(), lease, node)


def verify_lease(session: Any, lease: str, project: str
                 ) -> verification.VerificationResult:
    """Verify that the resources of a lease's servers exist and fit.

    :param session: session of the lease's owner.
    :raises Refused: if the database does not know the lease.
    :raises CloudError: if the database does not answer.
    """
    with _translated_errors():
        nodes = requests.node_sets(_database(), lease)
    return _verifier().verify(session, nodes, project)


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except errors.UnknownLease as exc:
        raise Refused(str(exc)) from exc
    except db_exception.DBError as exc:
        # Lines after the first one tell where to read about the error.
        raise CloudError(
            'the database of leases ([secondary_lease_api] database_url) '
            'does not answer: ' + str(exc).partition('\n')[0]) from exc
