"""Disk images: how they get to hosts in time, and who may share a copy.

Haizea 4.9 and Algorithm 6.  One repository sends one image at a time, to as
many hosts at once as want it (multicast).  What is sent is planned like
everything else; copies that come of it can be kept in each host's pool.
"""

from collections.abc import Iterator
import dataclasses
import math

import numpy as np

from secondary_scheduler.leases.scheduling.lease import (
    Booking,
    Kind,
    Lease,
    RemainingWork,
    Terms,
)
from secondary_scheduler.leases.scheduling.types import NEVER, Bools, Ints
from secondary_scheduler.model.lease_states import FINAL, LeaseState


@dataclasses.dataclass(frozen=True)
class Preparation:
    """How images get to hosts: at ``rate`` MB/s.

    ``joins`` tells that one transfer may serve several leases, ``pool_mb``
    how much of each host's disk keeps copies for later ones (0: none).
    """

    rate: float
    joins: bool = True
    pool_mb: int = 0

    def seconds(self, terms: Terms) -> int:
        """Return how long it takes to send a lease's image."""
        return math.ceil(terms.image_mb / self.rate)


@dataclasses.dataclass(frozen=True, eq=False)
class Transfer:
    """An image on its way in [start, end), to ``hosts``, shape (hosts,).

    ``users`` tells on which of them each lease, by its number, needs it and
    until when.  It may be moved as long as it ends by ``due``; None: it may
    not be moved.
    """

    image: str
    size_mb: int
    start: int
    end: int
    due: int | None
    hosts: Bools
    users: dict[int, tuple[Lease, Bools, int]]

    def serving(self, lease: Lease, hosts: Bools, begin: int, until: int
                ) -> 'Transfer':
        """Return the transfer with another lease to serve."""
        before = self.users.get(lease.number)
        served = hosts if before is None else hosts | before[1]
        return dataclasses.replace(
            self, hosts=self.hosts | hosts,
            due=None if self.due is None else min(self.due, begin),
            users=self.users | {lease.number: (lease, served, until)})

    def at(self, start: int) -> 'Transfer':
        """Return the transfer at another time."""
        return dataclasses.replace(self, start=start,
                                   end=start + self.end - self.start)


@dataclasses.dataclass(eq=False)
class _Copies:
    """Copies of an image in hosts' pools; all of shape (hosts,).

    ``there`` tells where they are, ``users`` how many leases use each, and
    ``expires`` until when one may count on it.
    """

    size_mb: int
    there: Bools
    users: Ints
    expires: Ints

    def usable(self, time: int, now: int) -> Bools:
        """Tell on which hosts a lease that begins at a time finds it."""
        return self.there & (np.maximum(self.expires, now) >= time)


class ImageLocations:
    """The images of a site: where they are, and where they are going."""

    def __init__(self, preparation: Preparation, hosts: int, now: int = 0
                 ) -> None:
        self._preparation = preparation
        self._now = now
        self._hosts = hosts
        # In the order in which they are sent; those that are on their way
        # or still to come.
        self._transfers: list[Transfer] = []
        # What leases have had sent for themselves, and use of the pools.
        self._own: dict[int, Bools] = {}
        self._uses: dict[int, Bools] = {}
        self._pool: dict[str, _Copies] = {}

    def copy(self) -> 'ImageLocations':
        """Return images that can be changed without changing these."""
        other = ImageLocations(self._preparation, self._hosts, self._now)
        other._transfers = list(self._transfers)
        other._own = dict(self._own)
        other._uses = dict(self._uses)
        other._pool = {name: _Copies(one.size_mb, one.there.copy(),
                                     one.users.copy(), one.expires.copy())
                       for name, one in self._pool.items()}
        return other

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """What is on its way or still to be sent, in order."""
        return tuple(self._transfers)

    # -- questions

    @staticmethod
    def wanted(work: RemainingWork) -> bool:
        """Tell whether a lease needs an image before it can begin."""
        return work.home is None and work.terms.image_mb > 0

    def ready(self, work: RemainingWork) -> Ints:
        """Return from when on a lease can have its image, shape (hosts,)."""
        end = self._gap(work) + self._preparation.seconds(work.terms)
        found = np.full(self._hosts, end, dtype=np.int64)
        for one, hosts in self._shared(work):
            np.minimum(found, one.end, out=found, where=hosts)
        found[self._present(work, self._now)] = self._now
        return found

    def reachable(self, work: RemainingWork, time: int) -> Bools:
        """Tell on which hosts a lease can have its image by a time."""
        if self._room(work, time) is not None:
            return np.ones(self._hosts, dtype=np.bool_)
        found = self._present(work, time)
        for one, hosts in self._shared(work):
            if one.end <= time:
                found |= hosts
        return found

    def distance(self, work: RemainingWork, time: int) -> Ints:
        """Return how little each host has of an image, shape (hosts,).

        0 where a copy is, 1 where one is sent anyway, 2 elsewhere.
        """
        found = np.full(self._hosts, 2, dtype=np.int64)
        for one, hosts in self._shared(work):
            if one.end <= time:
                found[hosts] = 1
        found[self._present(work, time)] = 0
        return found

    def _present(self, work: RemainingWork, time: int) -> Bools:
        """Tell where a lease that begins at a time has a copy already."""
        found = self._nowhere()
        if work.lease in self._own:
            found |= self._own[work.lease]
        pool = self._pool.get(work.terms.image or '')
        if pool is not None:
            found |= pool.usable(time, self._now)
        return found

    def _shared(self, work: RemainingWork) -> Iterator[tuple[Transfer, Bools]]:
        """Yield transfers that a lease could use, and on which hosts."""
        for one in self._transfers:
            if one.image != work.terms.image:
                continue
            if self._preparation.joins:
                yield one, (one.hosts if one.start <= self._now
                            else np.ones(self._hosts, dtype=np.bool_))
            elif work.lease in one.users:
                yield one, one.users[work.lease][1]

    # -- when to send

    def _gap(self, work: RemainingWork) -> int:
        """Return the first time from which on an image can be sent."""
        length = self._preparation.seconds(work.terms)
        start = self._now
        for one in self._transfers:
            if start + length <= one.start:
                break
            start = max(start, one.end)
        return start

    def _room(self, work: RemainingWork, time: int) -> list[Transfer] | None:
        """Return all transfers with one more, which ends by a time.

        Best effort is served at once, and is moved no more; promises as late
        as they can be, so that copies do not lie about (None: too late).
        """
        terms, first = work.terms, self._gap(work)
        length = self._preparation.seconds(terms)
        soon = first + length <= time and (
            terms.kind is not Kind.IMMEDIATE or first == self._now)
        new = Transfer(terms.image or '', terms.image_mb, first,
                       first + length, None, self._nowhere(), {})
        if terms.kind in (Kind.RESERVATION, Kind.DEADLINE):
            new = dataclasses.replace(new, due=time)
            found = self._exactly(new.at(time - length)) or self._packed(new)
            if found is not None:
                return found
        return _in_order([*self._transfers, new]) if soon else None

    def _exactly(self, new: Transfer) -> list[Transfer] | None:
        """Return all transfers with one more, if nothing is in its way."""
        if new.start < self._now or any(
                one.end > new.start and one.start < new.end
                for one in self._transfers):
            return None
        return _in_order([*self._transfers, new])

    def _packed(self, new: Transfer) -> list[Transfer] | None:
        """Put what may be moved as late as it can be, earliest due last.

        What is due last is put first, in the last gap before all that is put
        already (Haizea 4.9; None: somebody's would be late).
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
            placed.append(one.at(limit))
        return _in_order([*fixed, *placed])

    # -- changes

    def assign(self, lease: Lease, booking: Booking) -> None:
        """See to it that a lease has its image where and when it begins."""
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
                self._put(one, one.serving(lease, served, booking.begin,
                                           booking.end))
                missing = missing & ~served
        if missing.any():
            transfers = self._room(work, booking.begin)
            assert transfers is not None, 'it was asked before'
            self._transfers = transfers
            new = next(one for one in transfers if not one.users)
            self._put(
    new,
    new.serving(
        lease,
        missing,
        booking.begin,
         booking.end))

    def _put(self, old: Transfer, new: Transfer) -> None:
        self._transfers[self._transfers.index(old)] = new

    def withdraw(self, lease: Lease) -> None:
        """A lease begins at another time; what was sent for it it keeps."""
        own = self._own.get(lease.number, self._nowhere())
        if lease.number in self._uses:
            use = self._uses[lease.number]
            self._pool[lease.terms.image or ''].users[use & ~own] -= 1
            self._uses[lease.number] = use & own
        for one in list(self._transfers):
            if lease.number in one.users and one.start > self._now:
                users = {number: user for number, user in one.users.items()
                         if number != lease.number}
                if users:
                    self._put(one, dataclasses.replace(one, users=users))
                else:
                    self._transfers.remove(one)

    def leave(self, lease: Lease) -> None:
        """A lease needs its images no more."""
        self._own.pop(lease.number, None)
        self.withdraw(lease)
        self._uses.pop(lease.number, None)

    def _use(self, lease: Lease, pool: _Copies, hosts: Bools, until: int
             ) -> None:
        """Let a lease use copies in pools until a time."""
        if hosts.any():
            before = self._uses.get(lease.number, self._nowhere())
            pool.users[hosts & ~before] += 1
            pool.expires[hosts] = np.maximum(pool.expires[hosts], until)
            self._uses[lease.number] = hosts | before

    def _nowhere(self) -> Bools:
        return np.zeros(self._hosts, dtype=np.bool_)

    # -- time

    def progress(self, lease: Lease) -> LeaseState:
        """Return how far what is sent for a lease is."""
        coming = [one.start for one in self._transfers
                  if lease.number in one.users]
        if not coming:
            return LeaseState.READY
        return LeaseState.PREPARING if min(
            coming) <= self._now else LeaseState.SCHEDULED

    def next_time(self) -> int | None:
        """Return when a transfer begins or ends next."""
        return min((one.end if one.start <= self._now else one.start
                    for one in self._transfers), default=None)

    def advance(self, now: int) -> list[Lease]:
        """Let time pass; return whose transfers have begun or ended."""
        moved = [one for one in self._transfers
                 if self._now < one.start <= now or one.end <= now]
        self._now = now
        while self._transfers and self._transfers[0].end <= now:
            self._arrived(self._transfers.pop(0))
        return [lease for one in moved for lease, *_ in one.users.values()]

    def _arrived(self, transfer: Transfer) -> None:
        """What was sent is there, for who wanted it and in the pools."""
        users = [one for one in transfer.users.values()
                 if one[0].state not in FINAL]
        for lease, hosts, _ in users:
            self._own[lease.number] = hosts | self._own.get(
                lease.number, self._nowhere())
        if transfer.size_mb > self._preparation.pool_mb:
            return
        pool = self._pool.get(transfer.image)
        if pool is None:
            pool = self._pool[transfer.image] = _Copies(
                transfer.size_mb, self._nowhere(),
                *np.zeros((2, self._hosts), dtype=np.int64))
        for host in np.flatnonzero(transfer.hosts & ~pool.there).tolist():
            if self._make_room(host, transfer.size_mb):
                pool.there[host], pool.expires[host] = True, 0
        for lease, hosts, until in users:
            self._use(lease, pool, hosts & pool.there, until)

    def _make_room(self, host: int, size_mb: int) -> bool:
        """Evict from a pool what nobody uses, the first to expire first.

        Tell whether that was enough; else there is a copy beside the pool.
        """
        there = [one for one in self._pool.values() if one.there[host]]
        spare = sorted((one for one in there if not one.users[host]),
                       key=lambda one: -int(one.expires[host]))
        used = sum(one.size_mb for one in there)
        while used + size_mb > self._preparation.pool_mb:
            if not spare:
                return False
            gone = spare.pop()
            gone.there[host] = False
            used -= gone.size_mb
        return True


def _in_order(transfers: list[Transfer]) -> list[Transfer]:
    return sorted(transfers, key=lambda one: one.start)
