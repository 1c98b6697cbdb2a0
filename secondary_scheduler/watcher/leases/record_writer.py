# SPDX-License-Identifier: Apache-2.0

"""Records of hosts and operations in the database of leases.

It imports SQLAlchemy, of which the requirement comes with the extra
``lease-engine``.
"""

from collections.abc import Mapping
import datetime
import time
from typing import Any

from oslo_config import cfg
from oslo_utils import timeutils

from secondary_scheduler.leases.api.db import host_states, recorded_plans
from secondary_scheduler.leases.api.db.recorded_plans import (
    OperationRecord,
    PlanRecord,
)
from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.watcher import decision_measures
from secondary_scheduler.watcher.cluster_state import ClusterState
from secondary_scheduler.watcher.leases import host_records, plan_records

#: Longest gap in the records that is filled afterwards, in seconds.
_GAP_S = 86_400
#: Most by which clocks of appliers differ and transactions are delayed.
_OVERLAP_S = 60
#: Seconds between two deletions of old records.
_PURGE_S = 3600


class RecordWriter:
    """Writes the records; for one thread at a time."""

    def __init__(self, conf: cfg.ConfigOpts, state: ClusterState) -> None:
        self._conf: Any = conf
        self._state = state
        self._database = Database(conf)
        self._written: dict[str, PlanRecord] | None = None
        self._purge_due = 0.0

    def write(self) -> None:
        """Record the present state of hosts, and changes of operations.

        :raises DBError: if a database does not answer.
        """
        now = int(time.time())
        # Without a snapshot nothing is known about any host.
        if self._state.snapshot.hosts_time is not None:
            host_states.write_hosts(
                self._database, host_records.describe_hosts(self._state), now)
        self._write_plans(now)
        if now >= self._purge_due:
            self._purge_due = now + _PURGE_S
            kept = self._conf.secondary_watcher.record_days
            recorded_plans.delete_plans(self._database, now - kept * 86_400)

    def _write_plans(self, now: int) -> None:
        last = recorded_plans.last_change(self._database)
        since = max(now - _GAP_S, (last or 0) - _OVERLAP_S)
        found = {one.uuid: one for one in plan_records.find_changed_plans(
            timeutils.utcnow() - datetime.timedelta(seconds=now - since),
            self._state.snapshot.servers)}
        if self._written is not None:
            self._count_ended(found, self._written)
        recorded_plans.write_plans(self._database, [
            one for uuid, one in found.items()
            if one != (self._written or {}).get(uuid)])
        self._written = found

    @staticmethod
    def _count_ended(found: Mapping[str, PlanRecord],
                     before: Mapping[str, PlanRecord]) -> None:
        """Count the operations that have ended since the last record."""
        for uuid, plan in found.items():
            ended = {_key(one) for one in (
                before[uuid].operations if uuid in before else ())
                if one.ended_at is not None}
            for one in plan.operations:
                if one.ended_at is not None and _key(one) not in ended:
                    decision_measures.shared().note_operation(
                        one.document['kind'], one.document['state'].lower(),
                        one.document['seconds'])


def _key(one: OperationRecord) -> tuple[str, str | None]:
    """Return the key of an operation: an action may have several."""
    return one.id, one.server_id
