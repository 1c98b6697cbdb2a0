# SPDX-License-Identifier: Apache-2.0

"""Operations of a plan as actions of Watcher's solution."""

from collections.abc import Callable
from typing import Any

from secondary_scheduler.model.cluster import Cluster, Instance
from secondary_scheduler.model.resources import RATES
from secondary_scheduler.plans import operations
from secondary_scheduler.watcher.action_members import action_type
from secondary_scheduler.watcher.lease_groups import (
    OperationGroup,
    group_operations,
)


def add_actions(solution: Any, cluster: Cluster, plan: operations.Plan,
                kind: str, batch: str, name_of: Callable[[str], str],
                stores_demand: bool) -> None:
    """Add the operations of a plan to a solution as actions.

    Operations of a context switch on one lease start together.  Those for a
    violation do not, since they must not wait.

    :param kind: of the decision.
    :param name_of: returns the name of an instance's server.
    :param stores_demand: actions store the CPU that an instance wants
    """
    groups = (group_operations(plan.operations, name_of)
              if plan.switch is not None else [
                  OperationGroup(one.id, (one,), one.after)
                  for one in plan.operations])
    for group in groups:
        first = group.members[0]
        members = [_member(one, cluster.instances[one.instance],
                           stores_demand) for one in group.members]
        parameters = {
            'operation_id': group.id, 'after': list(group.after),
            'lease': first.lease, 'request': kind, 'batch': batch,
            'expected': round(max(
                one.duration_s for one in group.members), 2)}
        if len(members) > 1:
            parameters['members'] = members
        else:
            parameters |= members[0]
        parameters.pop('resource_id', None)
        solution.add_action(
            action_type=action_type(first.kind, len(members)),
            resource_id=first.instance, input_parameters=parameters)


def _member(operation: operations.Operation, instance: Instance,
            stores_demand: bool) -> dict[str, Any]:
    """Return the parameters of one instance's operation.

    Watcher's Action object takes no parameter that is None.  Agents tell the
    use of links and disks where policies are on them.
    """
    found: dict[str, Any] = {
        'resource_id': operation.instance, 'source': operation.source,
        'target': operation.target}
    if operation.kind in operations.PREEMPTIONS:
        if stores_demand:
            found['wanted_cpu'] = instance.wanted_cpu
        found['used'] = {one: round(instance.usage[one], 3) for one in RATES
                         if one in instance.usage} or None
    return {name: value for name, value in found.items() if value is not None}
