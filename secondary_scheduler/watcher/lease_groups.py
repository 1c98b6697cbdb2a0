# SPDX-License-Identifier: Apache-2.0

"""Groups of a plan's operations that one Watcher action carries out.

All suspends, or all resumes, of one lease are a group (Hermenier 2009, section
4.1).  A group waits for all that one of its operations waits for, and what
waits for one of them waits for the group.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import graphlib

from secondary_scheduler.model.configuration import natural_key
from secondary_scheduler.plans.operations import Operation
from secondary_scheduler.watcher.action_members import GROUPED


@dataclasses.dataclass(frozen=True)
class OperationGroup:
    """Operations that start together.

    :param members: at least one, in the order in which they start
    :param after: ids of the groups that must have ended before
    """

    id: int
    members: tuple[Operation, ...]
    after: tuple[int, ...]


def group_operations(operations: Sequence[Operation],
                     name_of: Callable[[str], str]) -> list[OperationGroup]:
    """Return the operations of a plan as groups, in the order of the plan.

    Operations stay apart if their group would wait for itself.

    :param name_of: returns the name of an instance, which determines the
        order within a group.
    """
    groups: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for one in operations:
        if one.kind in GROUPED:
            groups[one.lease, one.kind].append(one)
    group_of = {one.id: one.id for one in operations}
    for several in groups.values():
        joined = group_of | {one.id: several[0].id for one in several}
        if _is_acyclic(operations, joined):
            group_of = joined
    members: dict[int, list[Operation]] = defaultdict(list)
    for one in operations:
        members[group_of[one.id]].append(one)
    after = _after(operations, group_of)
    return [OperationGroup(
        number, tuple(sorted(several, key=lambda one: (
            natural_key(name_of(one.instance)), one.instance))),
        tuple(sorted(after[number]))) for number, several in members.items()]


def _after(operations: Sequence[Operation], group_of: Mapping[int, int]
           ) -> dict[int, set[int]]:
    """Return the groups for which each group waits."""
    after: dict[int, set[int]] = {group: set() for group in group_of.values()}
    for one in operations:
        own = group_of[one.id]
        after[own] |= {group_of[other] for other in one.after} - {own}
    return after


def _is_acyclic(operations: Sequence[Operation], group_of: Mapping[int, int]
                ) -> bool:
    try:
        graphlib.TopologicalSorter(_after(operations, group_of)).prepare()
    except graphlib.CycleError:
        return False
    return True
