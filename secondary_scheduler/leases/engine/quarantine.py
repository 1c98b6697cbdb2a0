# SPDX-License-Identifier: Apache-2.0

"""Quarantine: leases that cannot be read from the database.

All other leases go on.  A lease in quarantine keeps what it holds: its servers
run on, and the hosts of its last plan are withheld from others.
Nothing is done with it until it can be read again, or its owner cancels it.
"""

from collections.abc import Mapping, Sequence
import dataclasses

from oslo_log import log as logging

from secondary_scheduler.leases.api.db import models, plans, schedules
from secondary_scheduler.leases.api.db.schedules import OwnerRequests
from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.leases.engine.records import (
    LeaseRecordError,
    RecordDocuments,
    hosts_in,
    naming_lease,
)
from secondary_scheduler.leases.engine.schedule_ledger import (
    Row,
    ScheduleLedger,
)
from secondary_scheduler.leases.engine.values import Amounts, CloudState
from secondary_scheduler.leases.scheduling.disks import Disks
from secondary_scheduler.model.lease_states import LeaseState

LOG = logging.getLogger(__name__)

#: Reason that the owner is told; the log has the fault.
_REASON = 'the engine cannot read this lease: ask your operator to repair it'
_NOTHING: Amounts = (0, 0, 0, 0)


@dataclasses.dataclass(frozen=True)
class _Unreadable:
    """A lease in quarantine.

    ``flavors`` are empty if its row cannot be read either.
    """

    uuid: str
    why: str
    flavors: frozenset[str]
    plan: tuple[plans.PlannedSlot, ...]


class Quarantine:
    """The leases in quarantine, by UUID.

    :ivar leases: UUIDs of the leases.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._found: dict[str, _Unreadable] = {}

    @property
    def leases(self) -> frozenset[str]:
        """UUIDs of the leases."""
        return frozenset(self._found)

    def take(self, found: schedules.TakenLeases, now: int) -> list[Row]:
        """Take the leases that cannot be read; return all others.

        Each of the former gets the state ``error`` and an event, once.
        """
        kept, self._found = [], {}
        for uuid, why in found.broken.items():
            self._add(uuid, why, frozenset())
        for row, text in found.rows:
            try:
                if text is not None:
                    _read_alone(row, text)
                kept.append((row, text))
            except LeaseRecordError as exc:
                self._add(row.uuid, str(exc), frozenset(
                    one.flavor for one in row.nodes))
        for one in self._found.values():
            if schedules.set_state(self._database, one.uuid, LeaseState.ERROR,
                                   _REASON, now):
                LOG.error(
                    '%(why)s It holds its hosts, and all other leases go on. '
                    'Restart the decision engine after a repair.',
                    {'why': one.why})
        return kept

    def _add(self, uuid: str, why: str, flavors: frozenset[str]) -> None:
        self._found[uuid] = _Unreadable(uuid, why, flavors, tuple(
            slot for _, slot in plans.read_plan(self._database, lease=uuid)))

    def end_cancelled(self, requests: Mapping[str, OwnerRequests], now: int
                      ) -> bool:
        """End the leases that their owners cancel; their servers are deleted.

        :returns: whether there was one.
        """
        ended = [uuid for uuid in self.leases & requests.keys()
                 if requests[uuid].wanted_end]
        for uuid in ended:
            schedules.set_state(
                self._database, uuid, LeaseState.CANCELLED, '', now)
            del self._found[uuid]
        return bool(ended)

    def hold_plans(self, ledger: ScheduleLedger, cloud_state: CloudState
                   ) -> None:
        """Hold the hosts that the leases have by their last plans."""
        for one in self._found.values():
            ledger.hold_plan(one.plan, _largest([
                *(cloud_state.flavors.get(name, _NOTHING)
                  for name in one.flavors),
                *(server.need for server in cloud_state.servers.values()
                  if server.lease == one.uuid)]))

    def counted_servers(self, cloud_state: CloudState, now: float
                        ) -> frozenset[str]:
        """Return the servers whose hosts are held by a plan at this time."""
        held = {(one.uuid, host) for one in self._found.values()
                for slot in one.plan if slot.begin <= now and (
                    slot.end is None or now < slot.end)
                for host in slot.hosts}
        return frozenset(
            uuid for uuid, server in cloud_state.servers.items()
            if (server.lease, server.host) in held)


def _read_alone(row: models.LeaseRow, text: str) -> None:
    """Read the document of a lease, with its own hosts only.

    :raises LeaseRecordError: if it cannot be read.
    """
    with naming_lease(row.uuid):
        hosts = sorted(hosts_in(text))
        RecordDocuments(hosts, Disks(max(1, len(hosts))).operation
                        ).read_record(row, text)


def _largest(needs: Sequence[Amounts]) -> Amounts:
    """Return the largest amount of each resource."""
    return tuple(map(max, zip(_NOTHING, *needs, strict=True)))
