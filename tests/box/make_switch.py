# SPDX-License-Identifier: Apache-2.0

"""Action plan of a context switch that a test has decided.

``python -m tests.box.make_switch FILE CONFIG-FILE ...`` reads operations as
JSON from a file, and has the applier carry them out.  Planner, applier and
actions are those of any other plan.  It prints the UUID of the plan.  It is a
process of its own, since it needs Watcher's configuration.
"""

import json
import pathlib
import sys
import uuid

from watcher import objects
from watcher.applier import rpcapi
from watcher.common import context, rpc
from watcher.decision_engine.solution import default as solutions

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import Cluster, Instance, InstanceState
from secondary_scheduler.plans.operations import (
    Operation,
    OperationKind,
    Plan,
    SwitchClaim,
)
from secondary_scheduler.watcher import goal, plan_actions, planner, strategy
from secondary_scheduler.watcher.history import SELECT_REQUEST
from secondary_scheduler.watcher.settings import CONF


def read_plan(text: str) -> tuple[Plan, dict[str, str], str]:
    """Return the plan, names of instances, and the kind of the decision."""
    given = json.loads(text)
    kind = given['kind']
    return Plan(tuple(Operation(
        one['id'], OperationKind(one['kind']), one['instance'], one['lease'],
        one.get('source'), one.get('target'), after=tuple(one['after']))
        for one in given['operations']), switch=SwitchClaim(
            'cost', 0, None, 'feasible', {}) if kind == SELECT_REQUEST
        else None), given['names'], kind


def main() -> None:
    """Create the plan and launch it."""
    source, *files = sys.argv[1:]
    arguments = [part for file in files
                 for part in ('--config-file', file)]
    CONF(arguments, project='watcher', default_config_files=[])
    objects.register_all()
    rpc.init(CONF)
    plan, names, kind = read_plan(pathlib.Path(source).read_text())
    ctx = context.make_context(is_admin=True)
    ours = objects.Strategy.get_by_name(ctx, vocabulary.STRATEGY)
    batch = str(uuid.uuid4())
    audit = objects.Audit(
        ctx, uuid=batch, name=f'test-{batch}',
        audit_type=objects.audit.AuditType.ONESHOT.value,
        state=objects.audit.State.SUCCEEDED, goal_id=ours.goal_id,
        strategy_id=ours.id, scope=[], auto_trigger=True, force=True,
        parameters={'request': kind})
    audit.create()
    made = strategy.SecondaryWorkloads({})
    solution = solutions.DefaultSolution(
        goal.SecondaryWorkloadsGoal({}), made)
    solution.set_efficacy_indicators(**goal.Effect(
        Cluster({}, {}), Plan(), (), 0.0).indicators())
    cluster = Cluster({}, {one.instance: Instance(
        one.instance, one.lease, one.source, InstanceState.ACTIVE, 1, 128, 1)
        for one in plan.operations})
    plan_actions.add_actions(solution, cluster, plan, kind, batch,
                             names.__getitem__, stores_demand=False)
    stored = planner.SecondaryPlanner({}).schedule(ctx, audit.id, solution)
    if stored.state != objects.action_plan.State.CANCELLED:
        stored.state = objects.action_plan.State.PENDING
        stored.save()
        rpcapi.ApplierAPI().launch_action_plan(ctx, stored.uuid)
    print(stored.uuid)


if __name__ == '__main__':
    main()
