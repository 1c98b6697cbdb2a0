"""Properties of a lease's server that only the database of leases has.

User data may be a secret, and parameters of Watcher's actions are kept in
Watcher's database, and shown.
"""

from typing import Any

from oslo_db import exception as db_exception

from secondary_scheduler.leases.api.db import errors, requests
from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.watcher import cloud as clouds
from secondary_scheduler.watcher import per_process
from secondary_scheduler.watcher.settings import CONF

_database = per_process.PerProcess(lambda: Database(CONF))


def stored(lease: str, node: int) -> dict[str, Any]:
    """Return the properties that are in the database of leases only.

    :raises Refused: if it has none of that node.
    :raises CloudError: if it does not answer.
    """
    try:
        return requests.server_request(_database(), lease, node)
    except errors.UnknownLease as exc:
        raise clouds.Refused(str(exc)) from exc
    except db_exception.DBError as exc:
        # What a database says goes on with where to read about it.
        raise clouds.CloudError(
            'the database of leases ([secondary_lease_api] database_url) '
            'does not answer: ' + str(exc).partition('\n')[0]) from exc
