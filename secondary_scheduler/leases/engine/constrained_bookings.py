# SPDX-License-Identifier: Apache-2.0

"""Bookings of leases that have not begun, by placement constraints."""

from oslo_log import log as logging

from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.engine.schedule_ledger import ScheduleLedger
from secondary_scheduler.model.lease_states import LeaseState

LOG = logging.getLogger(__name__)


def apply_constraints(ledger: ScheduleLedger, now: float) -> None:
    """Set the hosts on which leases may begin, and re-plan where needed.

    Two leases that were booked in one pass may be in each other's way, and
    constraints change.  Leases that begin later are re-planned first.
    """
    records = sorted(ledger.records.values(),
                     key=lambda one: not one.lease.ahead)
    for record in records:
        ledger.choose_hosts(record)
        if record.lease.home is None:
            _replan(ledger, record, now)


def _replan(ledger: ScheduleLedger, record: LeaseRecord, now: float) -> None:
    """Give other hosts to servers that may not boot on the booked ones.

    Without such hosts, a lease none of whose servers has run is planned
    again as a whole.
    """
    rules, lease = ledger.host_rules, record.lease
    for number, host in rules.misplaced(record):
        blocking = rules.blocking(record, number, host)
        LOG.info('Server %(node)d of lease %(lease)s does not boot on '
                 '%(host)s, forbidden by %(constraints)s.', {
                     'node': number, 'lease': record.uuid, 'host': host,
                     'constraints': '; '.join(map(str, blocking))})
        if not lease.ahead and ledger.relocate_node(
                record, number, host, now):
            continue
        if (lease.ahead or lease.state is LeaseState.ACTIVE) and not any(
                node.lived for node in record.nodes):
            ledger.scheduler.restart_lost(lease, int(now))
            rules.note_booking(record)
            return
