"""What the schedule says of a lease, as its owner sees it."""

from collections.abc import Sequence

import numpy as np

from secondary_scheduler.lease_api.db.plans import Stretch, What
from secondary_scheduler.lease_engine.records import Record
from secondary_scheduler.leases.lease import Stay
from secondary_scheduler.leases.types import NEVER


def stretches(record: Record, hosts: Sequence[str]) -> list[Stretch]:
    """Return for what a lease holds which hosts when."""
    lease, found = record.lease, []
    if lease.stay is not None:
        fresh = lease.resumes == 0 and lease.home is None
        found += _of(lease.stay, record.boot_s if fresh else 0, hosts)
    if lease.later is not None:
        found += _of(lease.later, 0, hosts)
    return found


def _of(stay: Stay, boot_s: int, hosts: Sequence[str]) -> list[Stretch]:
    there = {hosts[host]: int(stay.on[host])
             for host in np.flatnonzero(stay.on).tolist()}
    up = min(stay.up + boot_s, stay.down)
    parts = ((stay.begin, up, What.PREPARE if boot_s else What.RESUME),
             (up, stay.down, What.RUN),
             (stay.down, stay.end,
              What.SUSPEND if stay.saves else What.SHUT_DOWN))
    return [Stretch(begin, end if end < NEVER else None, what, there)
            for begin, end, what in parts if end > begin]
