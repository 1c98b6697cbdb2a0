# SPDX-License-Identifier: Apache-2.0

"""Timelines: the planned slots of leases."""

from collections.abc import Mapping
import typing

from secondary_scheduler.leases.api import microversions, policies, schemas
from secondary_scheduler.leases.api.db import plans
from secondary_scheduler.leases.api.resources import leases
from secondary_scheduler.leases.api.routing import Call, Reply, Route
from secondary_scheduler.reading import times


def show_timeline(call: Call) -> Reply:
    """Show the plan of a project, or of all projects to operators."""
    return _show_slots(call, leases.scope(call), None)


def show_lease_timeline(call: Call) -> Reply:
    """Show the plan of a lease."""
    lease = leases.find(call)
    return _show_slots(call, lease.project_id, lease.uuid)


def _show_slots(call: Call, project: str | None, lease: str | None) -> Reply:
    with_hosts = call.sees_all
    # Older versions have no slots without an end.
    never = None if call.version >= microversions.OPEN else times.LAST_TEXT
    return Reply(200, {'slots': [
        {'lease_id': uuid, 'begin': schemas.moment(one.begin),
         'end': schemas.moment(one.end) or never, 'what': str(one.what),
         'nodes': sum(one.hosts.values()),
         'hosts': dict(one.hosts) if with_hosts else None}
        for uuid, one in plans.read_plan(
            call.service.database, project, lease,
            _moment(call.query, 'begin'), _moment(call.query, 'end'))]})


def _moment(query: Mapping[str, typing.Any], name: str) -> int | None:
    return schemas.seconds(query[name], name) if name in query else None


ROUTES = (
    Route('GET', '/timeline', show_timeline, (
        'Show the planned slots of the leases of a project, the earliest '
        'first.'), 200, 'TimelineAnswer', policies.TIMELINE,
        query=schemas.TIMELINE_QUERY),
    Route('GET', '/leases/{id}/timeline', show_lease_timeline,
          'Show the planned slots of a lease.', 200, 'TimelineAnswer',
          policies.TIMELINE, query=schemas.WINDOW_QUERY, refusals=(404,)),
)
