"""What the schedule says of a lease, as its owner sees it."""

from collections.abc import Sequence

import numpy as np

from secondary_scheduler.leases.api.db.plans import Stretch, What
from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.scheduling.lease import Booking
from secondary_scheduler.leases.scheduling.types import NEVER


def stretches(record: LeaseRecord, hosts: Sequence[str]) -> list[Stretch]:
    """Return for what a lease holds which hosts when."""
    lease, found = record.lease, []
    if lease.booking is not None:
        fresh = lease.resumes == 0 and lease.home is None
        found += _of(lease.booking, record.boot_s if fresh else 0, hosts)
    if lease.later is not None:
        found += _of(lease.later, 0, hosts)
    return found


def _of(booking: Booking, boot_s: int, hosts: Sequence[str]) -> list[Stretch]:
    there = {hosts[host]: int(booking.on[host])
             for host in np.flatnonzero(booking.on).tolist()}
    up = min(booking.up + boot_s, booking.down)
    parts = ((booking.begin, up, What.PREPARE if boot_s else What.RESUME),
             (up, booking.down, What.RUN),
             (booking.down, booking.end,
              What.SUSPEND if booking.saves else What.SHUT_DOWN))
    return [Stretch(begin, end if end < NEVER else None, what, there)
            for begin, end, what in parts if end > begin]
