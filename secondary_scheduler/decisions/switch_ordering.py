# SPDX-License-Identifier: Apache-2.0

"""Conversion of a serial switch to operations that can run in parallel.

Members of a lease are suspended as one group, and resumed as one group
(Hermenier 2009, section 4.1).  They start in the order of their names, 1 s
apart, and overlap.  So a group waits for all that any of its members waits
for, and takes one lane on each of its hosts.  An arrival also waits for the
departures without which a placement constraint forbids it.  All else is as in
``ordering``.
"""

from collections import defaultdict
from collections.abc import Sequence
import dataclasses

from secondary_scheduler.decisions.draft import Step
from secondary_scheduler.decisions.ordering import (
    MOVES,
    RoomWaits,
    enter_lane,
)
from secondary_scheduler.estimation.durations import (
    DurationInput,
    DurationModel,
)
from secondary_scheduler.estimation.overlaps import predict_overlapping
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model.cluster import Cluster
from secondary_scheduler.model.configuration import natural_key
from secondary_scheduler.model.constraints import (
    Among,
    Gather,
    Lonely,
    PlacementRules,
)
from secondary_scheduler.plans.operations import Operation, OperationKind

#: Seconds between two members of a group.
OFFSET_S = 1.0
_GROUPED = frozenset({OperationKind.SUSPEND, OperationKind.RESUME})


@dataclasses.dataclass
class _Unit:
    """Steps that start together, and the units that they wait for.

    :param first: number of its first operation
    """

    first: int
    steps: list[Step]
    after: set[int] = dataclasses.field(default_factory=set)

    @property
    def numbers(self) -> range:
        """Numbers of its operations."""
        return range(self.first, self.first + len(self.steps))


class ConstraintWaits:
    """Finds the departures for which an arrival waits by a constraint.

    These are all earlier ones of the same host, by members that a constraint
    names together, or that a ``lonely`` keeps apart from others.  Members
    that a constraint keeps together wait for departures of other hosts.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._rules = PlacementRules(cluster.constraints)
        self._gone: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self._left: dict[Gather | Among, list[tuple[str, int]]] = (
            defaultdict(list))

    def waits(self, step: Step) -> set[int]:
        """Return the units that an arrival has to wait for."""
        target, uuid = step.target, step.old.uuid
        if target is None or target == step.old.host:
            return set()
        found = {unit for one, unit in self._gone[target]
                 if self._keeps_apart(one, uuid)}
        for rule in self._keeping_together(uuid):
            found.update(unit for host, unit in self._left[rule]
                         if not rule.allows_both(host, target))
        return found

    def note(self, unit: int, step: Step) -> None:
        """Note the departure of a step."""
        if (self._rules.constraints and step.old.host is not None
                and step.new.host != step.old.host):
            self._gone[step.old.host].append((step.old.uuid, unit))
            for rule in self._keeping_together(step.old.uuid):
                self._left[rule].append((step.old.host, unit))

    def _keeping_together(self, uuid: str) -> list[Gather | Among]:
        return [one for one in self._rules.concerning(uuid)
                if isinstance(one, Gather | Among)]

    def _keeps_apart(self, one: str, other: str) -> bool:
        return any(
            isinstance(rule, Lonely) or {one, other} <= rule.named
            for uuid in (one, other) for rule in self._rules.concerning(uuid))


def arrange_switch(
        cluster: Cluster, steps: Sequence[Step], limits: LoadLimits,
        durations: DurationModel) -> tuple[Operation, ...]:
    """Return the operations of a switch, numbered from 1.

    Each operation starts at the earliest time that its dependencies allow.
    Durations count only the operations that overlap.

    :param cluster: the cluster before the first step, in which the use of
        each instance is its demand
    """
    jobs: list[DurationInput] = []
    units: list[_Unit] = []
    for several in _groups(steps):
        units.append(_Unit(len(jobs) + 1, several))
        jobs += (step.job for step in several)
    ongoing = [DurationInput(one.kind, one.source, one.target)
               for one in cluster.in_flight]
    alone = [durations.predict_all([job])[0] for job in jobs]
    _link(cluster, units, limits, alone)
    lasting = predict_overlapping(jobs, _starts(units, alone), alone,
                                  durations, ongoing)
    starts = _starts(units, lasting)
    return tuple(
        Operation(
            id=number, kind=step.kind, instance=step.old.uuid,
            lease=step.old.lease, source=step.old.host, target=step.target,
            start_s=starts[number - 1], duration_s=lasting[number - 1],
            after=tuple(number for other in sorted(unit.after)
                        for number in units[other].numbers))
        for unit in units
        for number, step in zip(unit.numbers, unit.steps, strict=True))


def leases_awaited(cluster: Cluster, steps: Sequence[Step],
                   limits: LoadLimits) -> dict[str, set[str]]:
    """Return the leases that each lease of a switch waits for.

    These free the room that the lease needs, or leave a host that constraints
    keep from it.  Lanes do not count.
    """
    units = [_Unit(0, several) for several in _groups(steps)]
    _link(cluster, units, dataclasses.replace(limits, lanes=len(units) + 1),
          [])
    found: dict[str, set[str]] = defaultdict(set)
    for unit in units:
        lease = unit.steps[0].old.lease
        found[lease] |= {units[other].steps[0].old.lease
                         for other in unit.after} - {lease}
    return found


def _groups(steps: Sequence[Step]) -> list[list[Step]]:
    """Return the steps that start together, in a serial order.

    A group of suspends takes the place of its first member, which frees room
    early, and a group of resumes that of its last one, which takes room late.
    A lease that breaks a cycle has both, the suspends first.
    """
    groups: dict[tuple[str, OperationKind], list[Step]] = defaultdict(list)
    for step in steps:
        if step.kind in _GROUPED:
            groups[step.old.lease, step.kind].append(step)
    found = []
    seen: dict[tuple[str, OperationKind], int] = defaultdict(int)
    for step in steps:
        key = (step.old.lease, step.kind)
        if step.kind not in _GROUPED:
            found.append([step])
            continue
        seen[key] += 1
        due = (1 if step.kind is OperationKind.SUSPEND
               else len(groups[key]))
        if seen[key] == due:
            found.append(sorted(groups[key], key=lambda one: natural_key(
                one.old.uuid)))
    return found


def _link(cluster: Cluster, units: list[_Unit], limits: LoadLimits,
          alone: Sequence[float]) -> None:
    """Set the units that each unit waits for."""
    room, apart = RoomWaits(cluster, limits), ConstraintWaits(cluster)
    unit_of: list[int] = []     # by number of a step, in the order of units
    last_of: dict[str, int] = {}
    last_move: dict[str, int] = {}
    lanes: dict[str, list[int | None]] = defaultdict(
        lambda: [None] * limits.lanes)
    ends: dict[int, float] = {}
    for number, unit in enumerate(units):
        for step in unit.steps:
            unit.after |= {unit_of[one] for one in room.waits(step)}
            unit.after |= apart.waits(step)
            room.note(len(unit_of), step)
            apart.note(number, step)
            unit_of.append(number)
            uuid, group = step.old.uuid, step.old.anti_affinity
            unit.after |= {last_of[uuid]} if uuid in last_of else set()
            last_of[uuid] = number
            if group is not None and step.kind in MOVES:
                unit.after |= ({last_move[group]} if group in last_move
                               else set())
                last_move[group] = number
        for host in sorted({host for step in unit.steps
                            for host in (step.old.host, step.target)
                            if host is not None}):
            unit.after |= enter_lane(lanes[host], number, ends)
        unit.after.discard(number)
        start = max((ends[one] for one in unit.after), default=0.0)
        ends[number] = start + _lasting(unit, alone)


def _lasting(unit: _Unit, lasting: Sequence[float]) -> float:
    """Return the seconds from the first start to the last end of a unit."""
    return max((number * OFFSET_S + lasting[unit.first - 1 + number]
                for number in range(len(unit.steps))), default=0.0
               ) if lasting else 0.0


def _starts(units: list[_Unit], lasting: Sequence[float]) -> list[float]:
    """Return the start of each operation in seconds, by its number."""
    starts: list[float] = []
    ends: list[float] = []
    for unit in units:
        begin = max((ends[one] for one in unit.after), default=0.0)
        starts += (begin + number * OFFSET_S
                   for number in range(len(unit.steps)))
        ends.append(begin + _lasting(unit, lasting))
    return starts
