# SPDX-License-Identifier: Apache-2.0

"""The configuration after a given plan, and the cost of that plan."""

from collections.abc import Callable
import dataclasses

from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.packing import first_fit
from secondary_scheduler.decisions.sample_rules import SampleRules
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

    Instances that Nova unshelves anywhere are placed by first fit.

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
    sample = model.configuration.with_members(changed.values())
    anywhere = [one for one in changed.values()
                if one.state is MemberState.RUNNING and one.host is None]
    hosts = first_fit(sample, anywhere, FreeRoom.of(sample, [
        one for one in sample.members.values() if one.host is not None]),
        SampleRules(sample))
    if hosts is None:
        raise UnsuitablePlan('no host has room for instances to unshelve')
    return sample.with_members(
        dataclasses.replace(one, host=hosts[one.name]) for one in anywhere)


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
