# SPDX-License-Identifier: Apache-2.0

"""Predicted times of a switch, in pools and as a graph of dependencies.

Operations of a lease of one kind start in the order of the pool, 1 s apart,
and overlap (Hermenier 2009, section 4.2).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
import typing

from secondary_scheduler.estimation.move_room import freed_room, taken_room
from secondary_scheduler.model.configuration import (
    Amounts,
    Configuration,
    Move,
    Pool,
)
from secondary_scheduler.model.operation_kinds import OperationKind

#: Seconds between the starts of two members of a lease.
OFFSET_S = 1.0

#: Returns the duration of a move in seconds.
Seconds = Callable[[Move], float]

#: Durations by kind (Hermenier 2009, section 2.3): seconds, and seconds for
#: each GiB of memory.  A delete is a hard stop.
_PUBLISHED = {
    OperationKind.BOOT: (6.0, 0.0),
    OperationKind.DELETE: (1.0, 0.0),
    OperationKind.MIGRATE: (0.0, 13.0),
    OperationKind.SUSPEND: (0.0, 45.0),
    OperationKind.RESUME: (0.0, 45.0),
}


class MoveTime(typing.NamedTuple):
    """Predicted start and end of a move, in seconds after the first start."""

    move: Move
    start_s: float
    end_s: float


def published_seconds(move: Move) -> float:
    """Return the published duration of a move.

    A resume on another host lasts twice as long as one in place.
    """
    base, each = _PUBLISHED[move.kind]
    return (base + each * move.memory_mb / 1024) * (
        2 if move.is_remote else 1)


def pool_times(pools: Iterable[Pool], seconds: Seconds) -> list[MoveTime]:
    """Predict the time of each move; a pool starts as the one before ends."""
    found: list[MoveTime] = []
    begin = 0.0
    for pool in pools:
        times = [one for group in _groups(pool)
                 for one in _group_times(group, begin, seconds)]
        found += times
        begin = max((one.end_s for one in times), default=begin)
    return found


def pools_s(pools: Iterable[Pool], seconds: Seconds = published_seconds
            ) -> float:
    """Predict the seconds that pools take, one after another."""
    return max((one.end_s for one in pool_times(pools, seconds)),
               default=0.0)


def graph_times(current: Configuration, pools: Iterable[Pool],
                seconds: Seconds) -> list[MoveTime]:
    """Predict the time of each move of a graph of dependencies.

    A move waits only for the preceding moves of its member, and for those
    moves of earlier pools that free its room.  Resumes of a lease wait for
    all that one of them waits for.  So no move starts later than its pool.

    :param current: the configuration before the first pool
    """
    pools = list(pools)
    passing = _find_passing(pools)
    hosts = {host: _HostRoom(free) for host, free in _free(current)}
    ends: dict[str, float] = {}
    found = []
    for pool in pools:
        times: list[MoveTime] = []
        for group in _groups(pool):
            begin = 0.0
            for move in group:
                begin = max(begin, ends.get(move.member, 0.0))
                need = taken_room(move, current.members[move.member],
                                  move in passing)
                if need is not None:
                    begin = max(begin, hosts[str(move.target)].take(need))
            times += _group_times(group, begin, seconds)
        for one in times:
            move = one.move
            ends[move.member] = one.end_s
            freed = freed_room(move, current.members[move.member],
                               move in passing)
            if freed is not None and move.source in hosts:
                hosts[move.source].free_at(one.end_s, freed)
        found += times
    return found


def graph_s(current: Configuration, pools: Iterable[Pool],
            seconds: Seconds = published_seconds) -> float:
    """Predict the seconds that a graph of dependencies takes."""
    return max((one.end_s for one in graph_times(current, pools, seconds)),
               default=0.0)


def _find_passing(pools: Iterable[Pool]) -> set[Move]:
    """Return resumes on hosts that members leave next, and these leaves."""
    last: dict[str, Move] = {}
    found = set()
    for pool in pools:
        for move in pool:
            before = last.get(move.member)
            if (move.kind is OperationKind.MIGRATE and before is not None
                    and before.kind is OperationKind.RESUME):
                found |= {before, move}
            last[move.member] = move
    return found


def _groups(pool: Pool) -> Iterator[list[Move]]:
    """Yield the moves of a pool that start together."""
    groups: dict[tuple[OperationKind, str], list[Move]] = defaultdict(list)
    for move in pool:
        together = move.kind in (OperationKind.SUSPEND, OperationKind.RESUME)
        groups[move.kind, move.lease if together else move.member].append(move)
    yield from groups.values()


def _group_times(group: Sequence[Move], begin: float, seconds: Seconds
                 ) -> Iterator[MoveTime]:
    for number, move in enumerate(group):
        start = begin + number * OFFSET_S
        yield MoveTime(move, start, start + seconds(move))


def _free(current: Configuration) -> Iterator[tuple[str, list[int]]]:
    for host, used in current.used().items():
        yield host, [most - amount for most, amount
                     in zip(current.capacity[host], used, strict=True)]


class _HostRoom:
    """Room of a host, and the departures that arrivals can wait for.

    All earlier arrivals count as present.  So an arrival has room at any
    time, whenever the others start.

    :param free: amounts without any departure or arrival
    """

    def __init__(self, free: list[int]) -> None:
        self.free = free
        self.departures: list[tuple[float, Amounts]] = []

    def take(self, need: Amounts) -> float:
        """Take room; return the second from which it is free.

        An arrival waits for departures in the order of their ends.
        """
        free, since = list(self.free), 0.0
        departures = iter(sorted(self.departures))
        while not _fits(need, free):
            # A pool has room for its moves as soon as all earlier ones end.
            since, amounts = next(departures)
            free = [one + more for one, more in zip(free, amounts,
                                                    strict=True)]
        self.free = [one - less for one, less in zip(self.free, need,
                                                     strict=True)]
        return since

    def free_at(self, second: float, amounts: Amounts) -> None:
        """Note a departure."""
        self.departures.append((second, amounts))


def _fits(need: Amounts, free: Sequence[int]) -> bool:
    return all(amount <= most for amount, most in zip(need, free, strict=True)
               if amount)
