# SPDX-License-Identifier: Apache-2.0

"""GET /operations: Watcher's action plans for secondaries."""

import typing

from secondary_scheduler.leases.api import (
    errors,
    health,
    microversions,
    policies,
    record_schemas,
    schemas,
)
from secondary_scheduler.leases.api.db import errors as db_errors
from secondary_scheduler.leases.api.db import recorded_plans
from secondary_scheduler.leases.api.db.record_models import (
    RecordedOperation,
    RecordedPlan,
)
from secondary_scheduler.leases.api.resources import paging
from secondary_scheduler.leases.api.routing import Call, Reply, Route


def list_operations(call: Call) -> Reply:
    """List plans with their operations, the newest first."""
    query = call.query
    limit = paging.page_length(
        call, record_schemas.OPERATIONS_QUERY['properties']['limit']['default']
    )
    try:
        found = recorded_plans.read_plans(
            call.service.database, host=query.get('host'),
            server=query.get('server'), request=query.get('request'),
            among=query.get('state'), marker=query.get('marker'),
            limit=limit + 1,
            **{name: schemas.seconds(query[name], name)
               for name in ('since', 'until') if name in query})
    except db_errors.UnknownPlan as exc:
        raise errors.invalid(
            f'marker: {exc}. Begin without a marker.') from exc
    return Reply(200, {
        'plans': [_show(one) for one in found[:limit]],
        'plans_links': paging.next_links(call, '/operations', found, limit,
                                         'uuid'),
        'engine': health.show_engine(call.service)})


def _show(plan: RecordedPlan) -> dict[str, typing.Any]:
    return {**plan.document, 'id': plan.uuid, 'request': plan.request,
            'state': plan.state,
            'created_at': schemas.moment(plan.created_at),
            'updated_at': schemas.moment(plan.updated_at),
            'operations': [_show_operation(one) for one in plan.operations]}


def _show_operation(one: RecordedOperation) -> dict[str, typing.Any]:
    return {**one.document, 'server_id': one.server_id,
            'source': one.source, 'target': one.target,
            'began_at': schemas.moment(one.began_at),
            'ended_at': schemas.moment(one.ended_at)}


ROUTES = (
    Route('GET', '/operations', list_operations, (
        'List Watcher\'s action plans for secondaries with their operations, '
        'the newest first.'), 200, 'OperationsAnswer', policies.OPERATIONS,
        query=record_schemas.OPERATIONS_QUERY, since=microversions.RECORDS),
)
