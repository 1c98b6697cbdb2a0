# SPDX-License-Identifier: Apache-2.0

"""Operations and plans as plain values.

A plan is a dependency graph (see reference/decisions, 11): each operation
names the operations that must have ended before it may start.
"""

from collections.abc import Mapping
import dataclasses
import typing

from secondary_scheduler.model.cluster import InstanceState
from secondary_scheduler.model.operation_kinds import OperationKind

__all__ = ('KINDS', 'PREEMPTIONS', 'RETURNS', 'ClaimedState', 'Operation',
           'OperationKind', 'Plan', 'SwitchClaim')

#: Kinds of the operations of a plan.
KINDS = tuple(one for one in OperationKind if one not in (
    OperationKind.BOOT, OperationKind.DELETE))
#: Kinds that preempt an instance, and kinds that return it.
PREEMPTIONS = (OperationKind.SUSPEND, OperationKind.SHELVE, OperationKind.STOP)
RETURNS = (OperationKind.RESUME, OperationKind.START, OperationKind.UNSHELVE)


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation on one instance.

    :param source: host that the instance leaves, or None
    :param target: host on which it runs afterwards, or None; a suspend has no
        target, a resume has the same host as both
    :param start_s: estimated seconds from the beginning of the plan
    :param duration_s: estimated duration in seconds
    :param after: operations that must have ended before
    :param deadline_s: time by which it must have ended for a violated policy;
        None without such a policy, or if the plan cannot meet it
    """

    id: int
    kind: OperationKind
    instance: str
    lease: str
    source: str | None
    target: str | None
    start_s: float = 0.0
    duration_s: float = 0.0
    after: tuple[int, ...] = ()
    deadline_s: float | None = None


class ClaimedState(typing.NamedTuple):
    """State of an instance after a plan.

    :param host: host that it is on; None if it is shelved and offloaded
    """

    state: InstanceState
    host: str | None


@dataclasses.dataclass(frozen=True)
class SwitchClaim:
    """Claims of a plan that is a cluster-wide context switch.

    The checker compares them with the plan (Hermenier 2009, section 4).

    :param objective: name of the cost that was minimised
    :param value: cost of the plan by this objective
    :param bound: lower bound of that cost, None if it is unknown
    :param status: result of the optimisation
    :param states: states after the plan, of at least all instances with an
        operation
    :param bypassed: leases that the plan suspends and resumes to break a
        cycle of migrations
    :param selected: number of leases that are to run
    :param bypasses: number of operations that only break cycles
    :param conflict: smallest set of leases and hosts that excludes another
        result, or leases without a way to their state; empty if there is none
    :param solver_missing: a solver was wanted, but is not installed
    """

    objective: str
    value: float
    bound: float | None
    status: str
    states: Mapping[str, ClaimedState]
    bypassed: tuple[str, ...] = ()
    selected: int = 0
    bypasses: int = 0
    conflict: tuple[str, ...] = ()
    solver_missing: bool = False


@dataclasses.dataclass(frozen=True)
class Plan:
    """Operations in the order in which they were decided.

    :param unresolved: places with violations that the plan does not end, or
        not in time
    :param truncated: the budget ended the search
    :param switch: claims of a cluster-wide context switch, None for another
        plan
    """

    operations: tuple[Operation, ...] = ()
    unresolved: tuple[str, ...] = ()
    truncated: bool = False
    switch: SwitchClaim | None = None

    def __bool__(self) -> bool:
        return bool(self.operations)
