# SPDX-License-Identifier: Apache-2.0

"""Transfers of disk images, and pools of copies on hosts.

Sotomayor 2010, sections 6.1 to 6.3 (algorithm 6).  The repository sends one
image at a time, to any number of hosts at once (multicast).  Transfers are
scheduled; the pool of each host keeps copies for later leases.
"""

from collections.abc import Iterator
import dataclasses
import math

import numpy as np

from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import (
    Booking,
    Lease,
    RemainingWork,
    Terms,
)
from secondary_scheduler.leases.scheduling.types import NEVER, Bools, Ints
from secondary_scheduler.model.lease_states import FINAL, LeaseState


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Settings of image transfers.

    * ``rate``: MB/s.
    * ``joins``: one transfer may serve several leases.
    * ``pool_mb``: disk space of each host for copies; 0: none.
    """

    rate: float
    joins: bool = True
    pool_mb: int = 0

    def seconds(self, terms: Terms) -> int:
        """Return the seconds to transfer the image of a lease."""
        return math.ceil(terms.image_mb / self.rate)


@dataclasses.dataclass(frozen=True, eq=False)
class Transfer:
    """Transfer of an image in [start, end), to ``hosts``, shape (hosts,).

    ``users`` has, by number, each lease with the hosts on which it needs the
    image, and until when.  The transfer may be moved if it ends by ``due``;
    None: it must not be moved.
    """

    image: str
    size_mb: int
    start: int
    end: int
    due: int | None
    hosts: Bools
    users: dict[int, tuple[Lease, Bools, int]]

    def with_user(self, lease: Lease, hosts: Bools, begin: int, until: int
                  ) -> 'Transfer':
        """Return the transfer with an additional lease or hosts."""
        before = self.users.get(lease.number)
        served = hosts if before is None else hosts | before[1]
        return dataclasses.replace(
            self, hosts=self.hosts | hosts,
            due=None if self.due is None else min(self.due, begin),
            users=self.users | {lease.number: (lease, served, until)})

    def moved_to(self, start: int) -> 'Transfer':
        """Return the transfer at another time."""
        return dataclasses.replace(self, start=start,
                                   end=start + self.end - self.start)


@dataclasses.dataclass(eq=False)
class _Copies:
    """Copies of an image in the pools of hosts; arrays of shape (hosts,).

    ``present`` marks the hosts with a copy, ``users`` is how many leases use
    it, and ``expires`` is the time until which it must be kept.
    """

    size_mb: int
    present: Bools
    users: Ints
    expires: Ints

    def usable(self, time: int, now: int) -> Bools:
        """Return the hosts with a copy for a lease that begins at a time."""
        return self.present & (np.maximum(self.expires, now) >= time)


class ImageLocations:
    """Locations and transfers of the images of a site."""

    def __init__(self, preparation: Preparation, hosts: int, now: int = 0
                 ) -> None:
        self._preparation = preparation
        self._now = now
        self._hosts = hosts
        # Present and future transfers, by start.
        self._transfers: list[Transfer] = []
        # By lease: hosts with a transferred copy, and with a used pool copy.
        self._own: dict[int, Bools] = {}
        self._uses: dict[int, Bools] = {}
        self._pool: dict[str, _Copies] = {}

    def copy(self) -> 'ImageLocations':
        """Return an independent copy."""
        other = ImageLocations(self._preparation, self._hosts, self._now)
        other._transfers = list(self._transfers)
        other._own = dict(self._own)
        other._uses = dict(self._uses)
        other._pool = {name: _Copies(one.size_mb, one.present.copy(),
                                     one.users.copy(), one.expires.copy())
                       for name, one in self._pool.items()}
        return other

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """Present and future transfers, in order."""
        return tuple(self._transfers)

    # -- queries

    @staticmethod
    def is_needed(work: RemainingWork) -> bool:
        """Return whether a lease needs an image before it can begin."""
        return work.home is None and work.terms.image_mb > 0

    def ready(self, work: RemainingWork) -> Ints:
        """Return the first time of a lease's image on each host.

        Shape (hosts,).
        """
        end = self._next_gap(work) + self._preparation.seconds(work.terms)
        found = np.full(self._hosts, end, dtype=np.int64)
        for one, hosts in self._shared(work):
            np.minimum(found, one.end, out=found, where=hosts)
        found[self._present(work, self._now)] = self._now
        return found

    def reachable(self, work: RemainingWork, time: int) -> Bools:
        """Return the hosts that can have a lease's image by a time."""
        if self._with_new_transfer(work, time) is not None:
            return np.ones(self._hosts, dtype=np.bool_)
        found = self._present(work, time)
        for one, hosts in self._shared(work):
            if one.end <= time:
                found |= hosts
        return found

    def distance(self, work: RemainingWork, time: int) -> Ints:
        """Return the distance of an image from each host, shape (hosts,).

        0 present, 1 in a planned transfer, 2 absent.
        """
        found = np.full(self._hosts, 2, dtype=np.int64)
        for one, hosts in self._shared(work):
            if one.end <= time:
                found[hosts] = 1
        found[self._present(work, time)] = 0
        return found

    def _present(self, work: RemainingWork, time: int) -> Bools:
        """Return the hosts with a copy for a lease that begins at a time."""
        found = self._no_hosts()
        if work.lease in self._own:
            found |= self._own[work.lease]
        pool = self._pool.get(work.terms.image or '')
        if pool is not None:
            found |= pool.usable(time, self._now)
        return found

    def _shared(self, work: RemainingWork) -> Iterator[tuple[Transfer, Bools]]:
        """Yield transfers that a lease could share, with their hosts."""
        for one in self._transfers:
            if one.image != work.terms.image:
                continue
            if self._preparation.joins:
                yield one, (one.hosts if one.start <= self._now
                            else np.ones(self._hosts, dtype=np.bool_))
            elif work.lease in one.users:
                yield one, one.users[work.lease][1]

    # -- times of transfers

    def _next_gap(self, work: RemainingWork) -> int:
        """Return the first time at which a transfer fits."""
        length = self._preparation.seconds(work.terms)
        start = self._now
        for one in self._transfers:
            if start + length <= one.start:
                break
            start = max(start, one.end)
        return start

    def _with_new_transfer(self, work: RemainingWork, time: int
                           ) -> list[Transfer] | None:
        """Return all transfers with a new one, which ends by a time.

        Best-effort images are sent as early as possible and not moved, images
        for guaranteed starts as late as possible, so that copies do not
        occupy disks early.  None if the new one would be late.
        """
        terms, first = work.terms, self._next_gap(work)
        length = self._preparation.seconds(terms)
        soon = first + length <= time and (
            terms.kind is not LeaseKind.IMMEDIATE or first == self._now)
        new = Transfer(terms.image or '', terms.image_mb, first,
                       first + length, None, self._no_hosts(), {})
        if terms.kind in (LeaseKind.RESERVATION, LeaseKind.DEADLINE):
            new = dataclasses.replace(new, due=time)
            found = (self._with_fixed(new.moved_to(time - length))
                     or self._with_packed(new))
            if found is not None:
                return found
        return _in_order([*self._transfers, new]) if soon else None

    def _with_fixed(self, new: Transfer) -> list[Transfer] | None:
        """Return all transfers with a new one, if it overlaps no other."""
        if new.start < self._now or any(
                one.end > new.start and one.start < new.end
                for one in self._transfers):
            return None
        return _in_order([*self._transfers, new])

    def _with_packed(self, new: Transfer) -> list[Transfer] | None:
        """Return all transfers with a new one, moved as late as possible.

        Movable transfers are placed in order of decreasing ``due``, each in
        the last gap before those placed already (Sotomayor 2010, section
        6.1).  None if one would be late.
        """
        fixed = [one for one in self._transfers
                 if one.due is None or one.start <= self._now]
        movable = [one for one in self._transfers if one not in fixed]
        placed: list[Transfer] = []
        limit = NEVER
        for one in sorted([*movable, new], key=lambda one: (
                -(one.due or 0), -one.start)):
            length = one.end - one.start
            end = min(one.due or 0, limit)
            for other in reversed(fixed):
                if other.start < end and other.end > end - length:
                    end = other.start
            if end - length < self._now:
                return None
            limit = end - length
            placed.append(one.moved_to(limit))
        return _in_order([*fixed, *placed])

    # -- changes

    def assign(self, lease: Lease, booking: Booking) -> None:
        """Plan the transfers of a lease's image to the hosts of a booking."""
        work, wanted = lease.work, booking.on > 0
        pool = self._pool.get(work.terms.image or '')
        own = self._own.get(lease.number)
        missing = wanted if own is None else wanted & ~own
        if pool is not None:
            kept = missing & pool.usable(booking.begin, self._now)
            self._use(lease, pool, kept, booking.end)
            missing = missing & ~kept
        for one, hosts in list(self._shared(work)):
            served = missing & hosts
            if one.end <= booking.begin and served.any():
                self._replace(one, one.with_user(lease, served, booking.begin,
                                                 booking.end))
                missing = missing & ~served
        if missing.any():
            transfers = self._with_new_transfer(work, booking.begin)
            assert transfers is not None, 'the planner found a gap'
            self._transfers = transfers
            new = next(one for one in transfers if not one.users)
            self._replace(new, new.with_user(lease, missing, booking.begin,
                                             booking.end))

    def _replace(self, old: Transfer, new: Transfer) -> None:
        self._transfers[self._transfers.index(old)] = new

    def withdraw(self, lease: Lease) -> None:
        """Cancel the future transfers of a lease; it keeps sent copies."""
        own = self._own.get(lease.number, self._no_hosts())
        if lease.number in self._uses:
            use = self._uses[lease.number]
            self._pool[lease.terms.image or ''].users[use & ~own] -= 1
            self._uses[lease.number] = use & own
        for one in list(self._transfers):
            if lease.number in one.users and one.start > self._now:
                users = {number: user for number, user in one.users.items()
                         if number != lease.number}
                if users:
                    self._replace(one, dataclasses.replace(one, users=users))
                else:
                    self._transfers.remove(one)

    def forget_lease(self, lease: Lease) -> None:
        """Forget the copies and transfers of a lease that is over."""
        self._own.pop(lease.number, None)
        self.withdraw(lease)
        self._uses.pop(lease.number, None)

    def _use(self, lease: Lease, pool: _Copies, hosts: Bools, until: int
             ) -> None:
        """Record that a lease uses copies in pools until a time."""
        if hosts.any():
            before = self._uses.get(lease.number, self._no_hosts())
            pool.users[hosts & ~before] += 1
            pool.expires[hosts] = np.maximum(pool.expires[hosts], until)
            self._uses[lease.number] = hosts | before

    def _no_hosts(self) -> Bools:
        return np.zeros(self._hosts, dtype=np.bool_)

    # -- time

    def preparation_state(self, lease: Lease) -> LeaseState:
        """Return the state of a lease by the progress of its transfers."""
        coming = [one.start for one in self._transfers
                  if lease.number in one.users]
        if not coming:
            return LeaseState.READY
        return LeaseState.PREPARING if min(
            coming) <= self._now else LeaseState.SCHEDULED

    def next_time(self) -> int | None:
        """Return the next start or end of a transfer, if any."""
        return min((one.end if one.start <= self._now else one.start
                    for one in self._transfers), default=None)

    def advance(self, now: int) -> list[Lease]:
        """Set the time; return leases whose transfers have begun or ended."""
        moved = [one for one in self._transfers
                 if self._now < one.start <= now or one.end <= now]
        self._now = now
        while self._transfers and self._transfers[0].end <= now:
            self._complete(self._transfers.pop(0))
        return [lease for one in moved for lease, *_ in one.users.values()]

    def _complete(self, transfer: Transfer) -> None:
        """Record the copies of a transfer, for its leases and the pools."""
        users = [one for one in transfer.users.values()
                 if one[0].state not in FINAL]
        for lease, hosts, _ in users:
            self._own[lease.number] = hosts | self._own.get(
                lease.number, self._no_hosts())
        if transfer.size_mb > self._preparation.pool_mb:
            return
        pool = self._pool.get(transfer.image)
        if pool is None:
            pool = self._pool[transfer.image] = _Copies(
                transfer.size_mb, self._no_hosts(),
                *np.zeros((2, self._hosts), dtype=np.int64))
        for host in np.flatnonzero(transfer.hosts & ~pool.present).tolist():
            if self._evict_images(host, transfer.size_mb):
                pool.present[host], pool.expires[host] = True, 0
        for lease, hosts, until in users:
            self._use(lease, pool, hosts & pool.present, until)

    def _evict_images(self, host: int, size_mb: int) -> bool:
        """Evict unused images from the pool of a host, first by expiry.

        :returns: whether the new copy fits; else it is kept outside the pool
        """
        present = [one for one in self._pool.values() if one.present[host]]
        unused = sorted((one for one in present if not one.users[host]),
                       key=lambda one: -int(one.expires[host]))
        used = sum(one.size_mb for one in present)
        while used + size_mb > self._preparation.pool_mb:
            if not unused:
                return False
            evicted = unused.pop()
            evicted.present[host] = False
            used -= evicted.size_mb
        return True


def _in_order(transfers: list[Transfer]) -> list[Transfer]:
    return sorted(transfers, key=lambda one: one.start)
