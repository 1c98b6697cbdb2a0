# SPDX-License-Identifier: Apache-2.0

"""The configuration after a given plan, and the cost of that plan."""

from collections.abc import Callable
import dataclasses

from secondary_scheduler.decisions.switch_model import SwitchModel
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
    Move,
    Pool,
)
from secondary_scheduler.plans.operations import (
    PREEMPTIONS,
    Operation,
    OperationKind,
    Plan,
)


class UnsuitablePlan(ValueError):
    """A plan does not consist of the operations of a switch."""


def read_sample(model: SwitchModel, plan: Plan) -> Configuration:
    """Return the configuration that a valid plan leads to.

    :raises UnsuitablePlan: an operation loses work, or changes an instance
        that a switch leaves alone
    """
    changed: dict[str, Member] = {}
    for operation in _in_order(plan):
        name = operation.instance
        member = changed.get(name) or model.configuration.members[name]
        if member.fixed:
            raise UnsuitablePlan(f'operation {operation.id}: a switch leaves '
                                 f'instance {name} alone')
        changed[name] = _apply(member, operation)
    return model.configuration.with_members(changed.values())


def _apply(member: Member, operation: Operation) -> Member:
    if operation.kind is OperationKind.SUSPEND:
        return dataclasses.replace(member, state=MemberState.SUSPENDED)
    if operation.kind in PREEMPTIONS:
        raise UnsuitablePlan(f'operation {operation.id}: a switch has no '
                             f'{operation.kind}, which loses work')
    return dataclasses.replace(
        member, state=MemberState.RUNNING, host=operation.target)


def measure_plan(plan: Plan, model: SwitchModel,
                 measure: Callable[[tuple[Pool, ...]], float]) -> float:
    """Return the cost of a plan.

    Its pools are the levels of its graph: an operation comes one pool after
    the last of those that it waits for.
    """
    level: dict[int, int] = {}
    pools: dict[int, list[Move]] = {}
    for operation in _in_order(plan):
        level[operation.id] = max(
            (level[one] + 1 for one in operation.after), default=0)
        pools.setdefault(level[operation.id], []).append(Move(
            operation.kind, operation.instance, operation.lease,
            operation.source, operation.target,
            model.configuration.members[operation.instance].memory_mb))
    return measure(tuple(tuple(pools[one]) for one in sorted(pools)))


def _in_order(plan: Plan) -> list[Operation]:
    """Return the operations after those that they wait for."""
    return sorted(plan.operations,
                  key=lambda one: (one.start_s, len(one.after), one.id))
