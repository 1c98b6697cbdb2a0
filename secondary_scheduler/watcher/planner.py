# SPDX-License-Identifier: Apache-2.0

"""Planner: the dependency graph of a plan as Watcher actions."""

from typing import Any

from oslo_config import cfg
from oslo_log import log
from watcher import objects
from watcher.common import utils
from watcher.decision_engine.planner import weight

from secondary_scheduler.watcher import leader, stages
from secondary_scheduler.watcher.action_members import members_of
from secondary_scheduler.watcher.audits import cancel_plan
from secondary_scheduler.watcher.history import DROPPED, AuditHistory
from secondary_scheduler.watcher.settings import CONF

LOG = log.getLogger(__name__)


class SecondaryPlanner(weight.WeightPlanner):
    """Creates actions whose parents are the operations they wait for.

    Watcher's planners order actions by type, and reject unknown types.  This
    one follows ``operation_id`` and ``after``.  A strategy names its planner,
    so other strategies keep theirs.

    Plans are claimed under a lock that all decision engines share.  If no
    other unfinished plan works on an instance or host of the new plan, the
    actions are created.  Otherwise the new plan is stored as CANCELLED without
    actions, since the cloud is changing; the next audit decides again.
    """

    @classmethod
    def get_config_opts(cls) -> list[cfg.Opt]:
        """Return no options; the weight planner's are in its own group."""
        return []

    def schedule(self, context: Any, audit_id: int, solution: Any) -> Any:
        """Create the action plan and its actions in Watcher's database.

        :raises RuntimeError: if the lock for claiming is not acquired, or is
            lost; the plan is cancelled then.
        """
        if not solution.actions:
            last = self._last_empty_plan(context, audit_id)
            if last is not None:
                return self._update_plan(context, last, solution)
            return self._create(context, audit_id, solution, [])
        coordination = leader.shared()
        with coordination.claiming() as check_claim:
            actions = solution.actions
            claimed = self._claimed_by_others(actions)
            if claimed:
                LOG.warning('The plan is dropped: another one works on %s.',
                            ', '.join(sorted(claimed)))
                actions = []
            # An operator launches the plans of other audits at any time.
            term = (coordination.read_leader().term
                    if objects.Audit.get_by_id(context, audit_id).auto_trigger
                    else None)
            plan = self._create(context, audit_id, solution, actions, term)
            try:
                check_claim()
            except RuntimeError:
                cancel_plan(plan, DROPPED)
                raise
        batch = solution.actions[0]['input_parameters'].get('batch')
        if batch and actions:
            stages.mark(batch, stages.PLAN_CREATED)
        return plan

    @staticmethod
    def _claimed_by_others(actions: list[dict[str, Any]]) -> set[str]:
        locks = AuditHistory(CONF).locks()
        touched: set[str] = set()
        for action in actions:
            for member in members_of(action['input_parameters']):
                touched |= {member[name]
                            for name in ('resource_id', 'source', 'target')
                            if name in member}
        return touched & (locks.busy_instances | locks.busy_hosts)

    @staticmethod
    def _last_empty_plan(context: Any, audit_id: int) -> Any:
        """Return an audit's last plan if it is empty, else None.

        A CONTINUOUS audit finds nothing to do thousands of times a day.  Its
        consecutive empty results share one plan.
        """
        # Eager: saving it sends a notification, which contains its audit.
        for plan in objects.ActionPlan.list(
                context, limit=1, sort_key='id', sort_dir='desc', eager=True,
                filters={'audit_id': audit_id}):
            if (plan.state == objects.action_plan.State.SUCCEEDED
                    and not objects.Action.list(context, limit=1, filters={
                        'action_plan_id': plan.id})):
                return plan
        return None

    def _update_plan(self, context: Any, plan: Any, solution: Any) -> Any:
        """Give an empty plan the efficacy of a new, empty solution."""
        for one in objects.EfficacyIndicator.list(
                context, filters={'action_plan_id': plan.id}):
            one.destroy()
        self._create_efficacy_indicators(
            context, plan.id, solution.efficacy_indicators)
        plan.global_efficacy = solution.global_efficacy
        plan.status_message = None
        plan.save()
        return plan

    def _create(self, context: Any, audit_id: int, solution: Any,
                actions: list[dict[str, Any]], term: int | None = None
                ) -> Any:
        plan = self.create_action_plan(context, audit_id, solution)
        self._create_efficacy_indicators(
            context, plan.id, solution.efficacy_indicators)
        if not solution.actions:
            plan.state = objects.action_plan.State.SUCCEEDED
            plan.save()
        elif not actions:
            plan.state = objects.action_plan.State.CANCELLED
            plan.status_message = DROPPED
            plan.save()
        uuids = {action['input_parameters']['operation_id']:
                 utils.generate_uuid() for action in actions}
        stamp = {} if term is None else {'term': term}
        for action in actions:
            parameters = action['input_parameters']
            own = uuids[parameters['operation_id']]
            parents = [uuids[i] for i in parameters['after']]
            objects.Action(
                context, uuid=own, action_plan_id=plan.id,
                action_type=action['action_type'],
                input_parameters={**parameters, **stamp, 'action': own,
                                  'parents': parents},
                parents=parents).create()
        return plan
