"""Images that hosts fetch before servers boot from them.

Nova fetches an image some time after it was asked to, does not say when that
is done, and does not keep a server that boots meanwhile from writing the same
file.  So a host is given some seconds for it, in which nobody of ours boots
there who would fetch the same.
"""

from collections.abc import Collection, Iterator, Sequence
import math
import typing

import numpy as np
from oslo_utils import uuidutils

from secondary_scheduler.leases.engine import assignment, reconcile
from secondary_scheduler.leases.engine.records import LeaseRecord
from secondary_scheduler.leases.engine.values import (
    CloudState,
    Copy,
    LeaseOperation,
    OperationRequest,
)
from secondary_scheduler.leases.scheduling.types import Ints
from secondary_scheduler.model.lease_states import HOLDING

#: Seconds before a lease begins from which on its images are fetched: less
#: than for how long what was asked for is known, so that it is asked for once.
AHEAD_S = 3000
#: Seconds in which Nova is to have been asked.
_PATIENCE_S = 20


class _Need(typing.NamedTuple):
    """That a node is to boot from an image on a host, not before ``begin``."""

    begin: int
    record: LeaseRecord
    set_: int
    number: int
    copy: Copy


class Copies:
    """Where images are at one time, as far as that is known.

    ``fetch_s`` is how long a host fetches one at most.
    """

    def __init__(
        self,
        records: Collection[LeaseRecord],
        cloud_state: CloudState,
        now: float,
        fetch_s: int,
    ) -> None:
        self._records = records
        self._cloud_state = cloud_state
        self._now = now
        self._fetch_s = fetch_s
        # From when on each is there.  Who has lived on a host has left one.
        self._since = {copy: asked + fetch_s
                       for copy, asked in cloud_state.asked.items()}
        self._since |= dict.fromkeys(cloud_state.used, 0.0)
        for record in records:
            for set_, number in record.sets():
                node, image = record.nodes[number], _image(record, set_)
                if node.lived and node.host is not None and image is not None:
                    self._since[node.host, image] = 0.0
        # What each host fetches now.
        self._coming = {host: image
                        for (host, image), since in self._since.items()
                        if since > now}

    def away(self, hosts: Sequence[str]) -> dict[str, Ints]:
        """Return how far each image is from hosts; see ``Scheduler.away``."""
        found: dict[str, Ints] = {}
        index = {name: number for number, name in enumerate(hosts)}
        for host, image in self._since:
            if host in index:
                found.setdefault(image, np.full(len(hosts), 2, dtype=np.int64)
                                 )[index[host]] = (
                                     self._coming.get(host) == image)
        return found

    def lets_begin(self, order: OperationRequest) -> bool:
        """Tell whether no server would boot while its image is fetched."""
        host, image = order.host or '', order.build and order.build.image
        coming = self._coming.get(host)
        if order.kind is not LeaseOperation.BOOT or not (
                coming and image and _may_be_same(coming, image)):
            return True
        there = self._since.get((host, image), math.inf)
        return order.at >= min(there, self._since[host, coming])

    def orders(self, hosts: Sequence[str]) -> Iterator[OperationRequest]:
        """Yield which images are to be fetched now, the most urgent first.

        A host fetches one image at a time, and an image goes to one host at a
        time, since hosts may share where they keep them.  Where somebody
        boots before it could be there nothing is fetched.
        """
        needs = sorted(self._needs(hosts), key=lambda one: one.begin)
        latest = self._now + self._fetch_s + _PATIENCE_S
        busy = self._coming.keys() | {one.copy[0] for one in needs
                                      if one.begin < latest}
        coming = set(self._coming.values())
        seen: set[Copy] = set()
        for one in needs:
            host, image = one.copy
            place = one.record.uuid, one.number
            if one.copy in seen or one.copy in self._since or (
                    host in busy or image in coming):
                continue
            seen.add(one.copy)
            if host not in self._cloud_state.hosts or reconcile.retry_at(
                    self._cloud_state.failures.get(
                        (place, LeaseOperation.CACHE_IMAGE))
                    ) > self._now:
                continue
            busy.add(host)
            coming.add(image)
            yield OperationRequest(
                LeaseOperation.CACHE_IMAGE,
                place,
                one.record.row.project_id,
                host,
                self._now,
                self._now + _PATIENCE_S,
                build=one.record.build(one.set_, one.number),
            )

    def _needs(self, hosts: Sequence[str]) -> Iterator[_Need]:
        """Yield what is needed by who begins soon, or has not quite begun."""
        for record in self._records:
            lease, booking = record.lease, record.lease.booking
            if booking is None or lease.home is not None or not (
                    lease.ahead or lease.state in HOLDING) or (
                    booking.begin > self._now + AHEAD_S):
                continue
            coming = [(set_, number) for set_, number in record.sets()
                      if _image(record, set_) is not None
                      and not (record.nodes[number].lived
                               or record.nodes[number].gone)]
            places = assignment.hosts(
                record, booking.vms, hosts) if coming else []
            for set_, number in coming:
                yield _Need(booking.begin, record, set_, number, (
                    places[number], _image(record, set_) or ''))


def _may_be_same(image: str, other: str) -> bool:
    """Tell whether two may be one: owners give the id or the name."""
    return image == other or (uuidutils.is_uuid_like(image)
                              != uuidutils.is_uuid_like(other))


def _image(record: LeaseRecord, set_: int) -> str | None:
    return record.row.nodes[set_].image
