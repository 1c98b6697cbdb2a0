# SPDX-License-Identifier: Apache-2.0

"""Records of action plans for operators, from Watcher's database."""

from collections.abc import Mapping
import datetime
from typing import Any

from oslo_utils import timeutils
from watcher import objects
from watcher.common import context

from secondary_scheduler.leases.api.db.recorded_plans import (
    OperationRecord,
    PlanRecord,
)
from secondary_scheduler.model import vocabulary
from secondary_scheduler.watcher import outcomes
from secondary_scheduler.watcher.action_members import (
    ACTION_PREFIX,
    single_operations,
)
from secondary_scheduler.watcher.cloud_snapshot import NovaServer, node_of
from secondary_scheduler.watcher.duration_record import DurationRecord

#: Indicator with the predicted duration of a plan.
_PREDICTED = 'duration_predicted'
_ENDED = ('SUCCEEDED', 'FAILED', 'SKIPPED', 'CANCELLED')


def find_changed_plans(since: datetime.datetime,
                       servers: Mapping[str, NovaServer]) -> list[PlanRecord]:
    """Return the plans of this project that have changed, the oldest first.

    Plans without an operation are left out.

    :param since: begin of the changes, in UTC.
    :param servers: known secondaries, by UUID.
    """
    ctx = context.make_context(is_admin=True)
    found = set()
    for changed in ({'created_at__gt': since}, {'updated_at__gt': since}):
        found |= {plan.id for plan in objects.ActionPlan.list(
            ctx, filters={'strategy_name': vocabulary.STRATEGY, **changed})}
        found |= {action.action_plan_id for action in objects.Action.list(
            ctx, filters=changed)
            if (action.action_type or '').startswith(ACTION_PREFIX)}
    nodes = {node_of(one.metadata): uuid for uuid, one in servers.items()}
    records = []
    for row in sorted(found):
        plan = objects.ActionPlan.get_by_id(ctx, row, eager=True)
        actions = objects.Action.list(
            ctx, filters={'action_plan_id': row}, sort_key='id')
        if actions:
            records.append(_record_plan(ctx, plan, actions, servers, nodes))
    return records


def _record_plan(
    ctx: Any,
    plan: Any,
    actions: list[Any],
    servers: Mapping[str, NovaServer],
    nodes: Mapping[Any, str],
) -> PlanRecord:
    indicators = [
        {'name': one.name, 'value': float(one.value), 'unit': one.unit or ''}
        for one in objects.EfficacyIndicator.list(
            ctx, filters={'action_plan_id': plan.id})]
    operations = [
        _record_operation(action, kind, parameters, servers, nodes)
        for action, kind, parameters in single_operations(actions)]
    lasting = [one['value'] for one in indicators
               if one['name'] == _PREDICTED] or [
        one.document['predicted'] for one in operations
        if one.document['predicted'] is not None]
    request = (actions[0].input_parameters or {}).get('request') or (
        plan.audit.parameters or {}).get('request') or 'auto'
    return PlanRecord(
        plan.uuid, str(request)[:32], plan.state, _seconds(plan.created_at),
        plan.updated_at and _seconds(plan.updated_at), {
            'audit_id': plan.audit.uuid, 'audit_type': plan.audit.audit_type,
            'reason': plan.status_message or '',
            'predicted': max(lasting, default=None),
            'indicators': indicators}, operations)


def _record_operation(
    action: Any,
    kind: str,
    parameters: Mapping[str, Any],
    servers: Mapping[str, NovaServer],
    nodes: Mapping[Any, str],
) -> OperationRecord:
    lasted = DurationRecord.from_message(action.status_message)
    changed = action.updated_at and _seconds(action.updated_at)
    server, place = parameters['resource_id'], parameters.get('place', '')
    lease, _, node = place.partition(':')
    if server == lease:     # an operation on a server that did not exist
        server = nodes.get((lease, int(node or 0)))
    known = servers.get(server or '')
    return OperationRecord(
        action.uuid, server, parameters.get('source'),
        parameters.get('target') or parameters.get('host'),
        int(lasted.end - lasted.seconds) if lasted else
        changed if action.state == 'ONGOING' else None,
        int(lasted.end) if lasted else
        changed if action.state in _ENDED else None, {
            'kind': kind, 'state': action.state,
            'server_name': known.name if known else (
                parameters.get('build') or {}).get('name'),
            'lease_id': lease or parameters.get(
                'lease', '').partition(':')[2] or None,
            'seconds': lasted and lasted.seconds,
            'predicted': parameters.get('expected'),
            'reason': _reason(action)})


def _reason(action: Any) -> str:
    """Return the reason for which an action has not succeeded, or ''."""
    if action.state == 'FAILED':
        return outcomes.parse_failure(action.status_message)[1]
    return ('' if action.state == 'SUCCEEDED'
            else action.status_message or '')


def _seconds(moment: datetime.datetime) -> int:
    """Return a time of the database (UTC) in seconds since 1970."""
    return int(timeutils.normalize_time(moment).replace(
        tzinfo=datetime.UTC).timestamp())
