# SPDX-License-Identifier: Apache-2.0

"""Creation, restart and cancellation of our audits and plans.

The leader uses these; ``history`` has the queries.
"""

from collections.abc import Iterable
import datetime
from typing import Any
import uuid

from oslo_log import log
from oslo_utils import timeutils
from watcher import objects
from watcher.common import context
from watcher.decision_engine import rpcapi

from secondary_scheduler.model import vocabulary
from secondary_scheduler.watcher import per_process, stages
from secondary_scheduler.watcher.action_members import ACTION_PREFIX
from secondary_scheduler.watcher.history import (
    GIVEN_UP,
    UNFINISHED,
    OneShotAudit,
    Switch,
    age_of,
)

LOG = log.getLogger(__name__)

#: Seconds without a heartbeat after which the applier of a plan counts as
#: dead.  It renews the running action (see ``heartbeat``), or is about to
#: begin the next one.
_SILENT = 90
#: Seconds for which a plan may wait in the queue of an applier at most.
_LONGEST_WAIT = 600


def cancel_plan(plan: Any, why: str) -> None:
    """Cancel a plan and its unfinished actions, with a status message."""
    ctx = context.make_context(is_admin=True)
    # Eager: saving them sends notifications, which contain their relations.
    actions = objects.Action.list(ctx, eager=True, filters={
        'action_plan_id': plan.id, 'state__in': UNFINISHED})
    for one in (objects.ActionPlan.get_by_id(ctx, plan.id, eager=True),
                *actions):
        one.state, one.status_message = 'CANCELLED', why
        one.save()


class AuditManager:
    """Writes our audits and plans, and triggers decision engines."""

    def __init__(self) -> None:
        self._engine_api = per_process.PerProcess(rpcapi.DecisionEngineAPI)

    @staticmethod
    def _context() -> Any:
        return context.make_context(is_admin=True)

    def submit_audit(self, request: str, hosts: Iterable[str],
                     switch: Switch | None, batch: str) -> str:
        """Create a ONESHOT audit and have a decision engine run it.

        :param request: ``preempt``, ``return`` or ``drain``.
        :param hosts: hosts that the request is about.
        :param switch: the CONTINUOUS audit for which it runs.
        :param batch: id of the violations that it handles.
        :returns: the audit's UUID.
        """
        ctx = self._context()
        strategy = objects.Strategy.get_by_name(ctx, vocabulary.STRATEGY)
        parameters: dict[str, Any] = {
            'request': request, 'hosts': sorted(hosts), 'batch': batch,
            'switch': switch and switch.uuid}
        if switch and switch.decision:
            parameters['decision'] = switch.decision
        audit = objects.Audit(
            ctx, uuid=str(uuid.uuid4()), name=f'secondary-{request}-{batch}',
            audit_type=objects.audit.AuditType.ONESHOT.value,
            state=objects.audit.State.PENDING,
            goal_id=strategy.goal_id, strategy_id=strategy.id,
            scope=list(switch.scope or ()) if switch else [],
            auto_trigger=True, force=True,
            parameters=parameters)
        audit.create()
        stages.mark(batch, stages.AUDIT_CREATED)
        LOG.info('Audit %(audit)s (%(request)s) on %(hosts)s, batch '
                 '%(batch)s.', {'audit': audit.uuid, 'request': request,
                                'hosts': ', '.join(sorted(hosts)),
                                'batch': batch})
        self._engine_api().trigger_audit(ctx, audit.uuid)
        return str(audit.uuid)

    def retrigger_audit(self, audit: OneShotAudit) -> None:
        """Trigger an audit again after its trigger was lost."""
        LOG.warning('Audit %s was never begun, triggering it again.',
                    audit.uuid)
        self._engine_api().trigger_audit(self._context(), audit.uuid)

    def cancel_audit(self, audit: OneShotAudit) -> None:
        """Cancel an audit of a dead engine."""
        LOG.warning('Audit %s is %s for %.0f s, cancelling it.',
                    audit.uuid, audit.state, audit.age)
        self._change_audit(audit.uuid, state=objects.audit.State.CANCELLED)

    def revive_switch(self, switch: Switch) -> None:
        """Set a FAILED switch to PENDING, so that Watcher runs it again.

        Watcher sets a CONTINUOUS audit FAILED after an exception in one run,
        such as a lost connection to the database, and never runs it again.
        """
        LOG.warning('Audit %s had failed, setting it going again.',
                    switch.uuid)
        self._change_audit(switch.uuid, hostname=None,
                           state=objects.audit.State.PENDING)

    def _change_audit(self, audit_uuid: str, **changes: Any) -> None:
        # Eager: saving it sends a notification, which contains its goal.
        audit = objects.Audit.get_by_uuid(self._context(), audit_uuid,
                                          eager=True)
        for name, value in changes.items():
            setattr(audit, name, value)
        audit.save()

    def cancel_silent_plans(self) -> None:
        """Cancel the plans of dead appliers, with their unfinished actions.

        An applier that restarts cancels its plans itself, but not a plan that
        only its worker process has left.  An applier that is alive but cut off
        from the database finds its plan cancelled later, and begins no further
        action of it.

        The silence of a plan counts from its first heartbeat.  One that has
        not begun waits in the queue of an applier; its message is lost if no
        applier has given a sign of life meanwhile.
        """
        waiting = []
        for plan in objects.ActionPlan.list(self._context(), eager=True,
                                            filters={
                'strategy_name': vocabulary.STRATEGY,
                'state__in': UNFINISHED}):
            actions = objects.Action.list(self._context(), eager=True,
                                          filters={'action_plan_id': plan.id})
            silent = min(age_of(one.updated_at or one.created_at)
                         for one in (plan, *actions))
            if silent < _SILENT:
                continue
            if all(one.state == 'PENDING' for one in actions):
                waiting.append((plan, silent))
                continue
            self._give_up(plan, 'its applier has been silent for '
                          f'{silent:.0f} s')
        if waiting:
            longest = _LONGEST_WAIT if self._has_progress() else _SILENT
            for plan, silent in waiting:
                if silent >= longest:
                    self._give_up(plan, 'no applier has begun it for '
                                  f'{silent:.0f} s')

    def _has_progress(self) -> bool:
        """Return whether an applier has given a sign of life lately."""
        since = timeutils.utcnow() - datetime.timedelta(seconds=_SILENT)
        return any(
            (one.action_type or '').startswith(ACTION_PREFIX)
            for one in objects.Action.list(self._context(), filters={
                'updated_at__gt': since,
                'state__in': ('ONGOING', 'SUCCEEDED', 'FAILED')}))

    @staticmethod
    def _give_up(plan: Any, why: str) -> None:
        LOG.warning('Plan %(plan)s is given up: %(why)s.',
                    {'plan': plan.uuid, 'why': why})
        cancel_plan(plan, f'{GIVEN_UP}: {why}')
