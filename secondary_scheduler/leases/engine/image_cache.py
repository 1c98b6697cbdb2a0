# SPDX-License-Identifier: Apache-2.0

"""Pre-caching of images on hosts before servers boot from them.

Nova fetches an image some time after the request, does not report the end,
and lets a server that boots meanwhile write the same file.  So each fetch gets
a fixed time, and servers of leases that would fetch the same image on the host
boot after it.
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

#: Seconds before a lease begins from which on its images are fetched.  Less
#: than requests are remembered for, so that each is made once.
AHEAD_S = 3000
#: Seconds in which a request has to reach Nova.
_REQUEST_TIMEOUT_S = 20


class _Need(typing.NamedTuple):
    """An image that a node boots from on a host, not before ``begin``."""

    begin: int
    record: LeaseRecord
    set_: int
    number: int
    copy: Copy


class ImageCopies:
    """Copies of images on hosts at one time, as far as they are known.

    :param fetch_s: longest time in which a host fetches an image; 0: no
        image is fetched ahead.
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
        # Time from which on each copy exists.  A server that has run on a
        # host has left a copy there.
        self._since = {copy: asked + fetch_s
                       for copy, asked in cloud_state.asked.items()}
        self._since |= dict.fromkeys(cloud_state.used, 0.0)
        for record in records:
            for set_, number in record.numbered_nodes():
                node, image = record.nodes[number], _image(record, set_)
                if node.lived and node.host is not None and image is not None:
                    self._since[node.host, image] = 0.0
        # The image that each host fetches now.
        self._coming = {host: image
                        for (host, image), since in self._since.items()
                        if since > now}

    def distances(self, hosts: Sequence[str]) -> dict[str, Ints]:
        """Return the value of ``Scheduler.image_distance`` for these hosts."""
        found: dict[str, Ints] = {}
        index = {name: number for number, name in enumerate(hosts)}
        for host, image in self._since:
            if host in index:
                found.setdefault(image, np.full(len(hosts), 2, dtype=np.int64)
                                 )[index[host]] = (
                                     self._coming.get(host) == image)
        return found

    def permits(self, order: OperationRequest) -> bool:
        """Return False for a boot while its host fetches the same image."""
        host, image = order.host or '', order.build and order.build.image
        coming = self._coming.get(host)
        if order.kind is not LeaseOperation.BOOT or not (
                coming and image and _may_be_same(coming, image)):
            return True
        there = self._since.get((host, image), math.inf)
        return order.at >= min(there, self._since[host, coming])

    def due_fetches(self, hosts: Sequence[str]) -> Iterator[OperationRequest]:
        """Yield requests for images that are needed soon, most urgent first.

        A host fetches one image at a time.  An image goes to one host at a
        time, since hosts may share their image cache.  A host on which a
        server boots before the fetch could end fetches nothing.
        """
        if not self._fetch_s:
            return
        needs = sorted(self._needs(hosts), key=lambda one: one.begin)
        latest = self._now + self._fetch_s + _REQUEST_TIMEOUT_S
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
            state = self._cloud_state
            if host not in state.hosts or (
                    host in state.unreachable_hosts) or reconcile.retry_at(
                    state.failures.get((place, LeaseOperation.CACHE_IMAGE))
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
                self._now + _REQUEST_TIMEOUT_S,
                build=one.record.build_of(one.set_, one.number),
            )

    def _needs(self, hosts: Sequence[str]) -> Iterator[_Need]:
        """Yield the images of nodes that are to boot soon, or boot now."""
        for record in self._records:
            lease, booking = record.lease, record.lease.booking
            if booking is None or lease.home is not None or not (
                    lease.ahead or lease.state in HOLDING) or (
                    booking.begin > self._now + AHEAD_S):
                continue
            coming = [(set_, number)
                      for set_, number in record.numbered_nodes()
                      if _image(record, set_) is not None
                      and not (record.nodes[number].lived
                               or record.nodes[number].gone)]
            places = assignment.assign_hosts(
                record, booking.vms, hosts) if coming else []
            for set_, number in coming:
                yield _Need(booking.begin, record, set_, number, (
                    places[number], _image(record, set_) or ''))


def _may_be_same(image: str, other: str) -> bool:
    """Return whether two names may mean one image: an id and a name may."""
    return image == other or (uuidutils.is_uuid_like(image)
                              != uuidutils.is_uuid_like(other))


def _image(record: LeaseRecord, set_: int) -> str | None:
    return record.row.nodes[set_].image
