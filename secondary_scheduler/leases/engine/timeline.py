# SPDX-License-Identifier: Apache-2.0

"""Timeline of the hosts that a lease holds, as its owner sees it."""

from collections.abc import Sequence

import numpy as np

from secondary_scheduler.leases.api.db.plans import PlannedSlot, SlotPurpose
from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.scheduling.lease import Booking
from secondary_scheduler.leases.scheduling.types import NEVER


def planned_slots(record: LeaseRecord, hosts: Sequence[str]
                  ) -> list[PlannedSlot]:
    """Return the planned slots of all bookings of a lease."""
    lease, found = record.lease, []
    if lease.booking is not None:
        fresh = lease.resumes == 0 and lease.home is None
        found += _slots_of_booking(
            lease.booking, record.boot_s if fresh else 0, hosts)
    if lease.later is not None:
        found += _slots_of_booking(lease.later, 0, hosts)
    return found


def _slots_of_booking(booking: Booking, boot_s: int, hosts: Sequence[str]
                      ) -> list[PlannedSlot]:
    there = {hosts[host]: int(booking.on[host])
             for host in np.flatnonzero(booking.on).tolist()}
    up = min(booking.up + boot_s, booking.down)
    parts = ((booking.begin, up,
              SlotPurpose.PREPARE if boot_s else SlotPurpose.RESUME),
             (up, booking.down, SlotPurpose.RUN),
             (booking.down, booking.end,
              SlotPurpose.SUSPEND if booking.saves else SlotPurpose.SHUT_DOWN))
    return [PlannedSlot(begin, end if end < NEVER else None, purpose, there)
            for begin, end, purpose in parts if end > begin]
