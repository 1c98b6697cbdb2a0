# SPDX-License-Identifier: Apache-2.0

"""Conversion of serial steps to operations that can run in parallel.

Every wait is a dependency, and none relies on estimated times.  So a plan
stays valid if an operation takes longer than expected (see
reference/decisions, 11).  An operation waits for

* the preceding operation on the same instance,
* the last one that moved a member of its anti-affinity group (Nova checks
  groups one request at a time: bug 1821755),
* the ones that free the room it needs on its target,
* the preceding one in its lane; each host has ``limits.lanes`` of them.
"""

from collections import defaultdict
from collections.abc import Sequence

from secondary_scheduler.decisions.draft import Step
from secondary_scheduler.estimation.cluster_room import Rooms
from secondary_scheduler.estimation.durations import (
    DurationInput,
    DurationModel,
)
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import Cluster
from secondary_scheduler.plans.operations import Operation, OperationKind

#: Kinds that change the hosts on which an instance has claims.
MOVES = frozenset(
    {OperationKind.MIGRATE, OperationKind.SHELVE, OperationKind.UNSHELVE})


class RoomWaits:
    """Finds the departures for which an arrival has to wait.

    The view is conservative.  All earlier arrivals count as completed, and
    only those departures that every later arrival waits for count as gone.
    """

    def __init__(self, cluster: Cluster, limits: LoadLimits) -> None:
        self.cluster = cluster
        self.rooms = Rooms(cluster, limits)
        self.departures: dict[str, dict[int, Step]] = defaultdict(dict)
        self.awaited: dict[str, set[int]] = defaultdict(set)
        #: Last departure by instance and place.
        self._gone: dict[tuple[str, str], int] = {}

    def waits(self, step: Step) -> set[int]:
        """Return the operations that an arrival has to wait for."""
        if step.target is None:
            return set()
        found: set[int] = set()
        for place in self.cluster.places(step.target):
            while self.departures[place] and not self._fits(step, place):
                self._leave(*next(iter(self.departures[place].items())))
            found |= self.awaited[place]
        return found

    def _leave(self, number: int, gone: Step) -> None:
        """Make all later arrivals wait for a departure."""
        self.rooms.take(gone.old)
        if gone.new.host == gone.old.host:  # down, but still holding claims
            self.rooms.put(gone.new)
        for place in self._left(gone):
            del self.departures[place][number]
            self.awaited[place].add(number)

    def _left(self, step: Step) -> list[str]:
        """Return the places that an instance leaves."""
        if step.old.host is None or step.old.host == step.target:
            return []
        reached = (() if step.target is None
                   else self.cluster.places(step.target))
        return [place for place in self.cluster.places(step.old.host)
                if place not in reached]

    def _fits(self, step: Step, place: str) -> bool:
        if not self.rooms.fits_policies(place, step.new):
            return False
        return place in self.cluster.items or (
            self.rooms.has_minimum_share(place)
            and (step.old.host == place
                 or self.rooms.has_inventory(place, step.new)))

    def note(self, number: int, step: Step) -> None:
        """Note the arrival and the departure of a step.

        A suspend frees CPU of its host, a migration and a shelve free all.
        The departure of an instance that comes back frees nothing.
        """
        if step.target is not None:
            for place in self.cluster.places(step.target):
                self.departures[place].pop(
                    self._gone.pop((step.old.uuid, place), -1), None)
            if step.old.host == step.target:
                self.rooms.take(step.old)
            self.rooms.put(step.new)
        for place in self._left(step):
            self.departures[place][number] = step
            self._gone[step.old.uuid, place] = number


def arrange_steps(
        cluster: Cluster, steps: Sequence[Step], limits: LoadLimits,
        durations: DurationModel) -> tuple[Operation, ...]:
    """Return the operations of a plan, numbered from 1.

    Each operation starts at the earliest time that its dependencies allow.
    Durations are upper estimates, as if all operations ran at the same time.

    :param cluster: the cluster before the first step
    """
    lasting = durations.predict_all(
        [step.job for step in steps],
        [DurationInput(one.kind, one.source, one.target)
         for one in cluster.in_flight])
    room = RoomWaits(cluster, limits)
    ends: dict[int, float] = {}
    last_of: dict[str, int] = {}
    last_move: dict[str, int] = {}
    lanes: dict[str, list[int | None]] = defaultdict(
        lambda: [None] * limits.lanes)
    operations = []
    for number, (step, duration) in enumerate(
            zip(steps, lasting, strict=True), 1):
        uuid, group = step.old.uuid, step.old.anti_affinity
        after = room.waits(step)
        room.note(number, step)
        if uuid in last_of:
            after.add(last_of[uuid])
        last_of[uuid] = number
        if group is not None and step.kind in MOVES:
            if group in last_move:
                after.add(last_move[group])
            last_move[group] = number
        for host in sorted({step.old.host, step.target} - {None}, key=str):
            after |= enter_lane(lanes[str(host)], number, ends)
        start = max((ends[one] for one in after), default=0.0)
        ends[number] = start + duration
        operations.append(Operation(
            id=number, kind=step.kind, instance=uuid, lease=step.old.lease,
            source=step.old.host, target=step.target, start_s=start,
            duration_s=duration, after=tuple(sorted(after))))
    return tuple(operations)


def enter_lane(lanes: list[int | None], number: int,
                ends: dict[int, float]) -> set[int]:
    """Enter the lane that is free first; return its last operation."""
    def free_at(lane: int) -> float:
        last = lanes[lane]
        return 0.0 if last is None else ends[last]

    lane = min(range(len(lanes)), key=free_at)
    last, lanes[lane] = lanes[lane], number
    return set() if last is None else {last}
