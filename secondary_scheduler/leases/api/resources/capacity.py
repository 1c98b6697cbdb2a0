# SPDX-License-Identifier: Apache-2.0

"""GET /capacity: hosts that take secondaries, as last observed."""

import typing

from secondary_scheduler.leases.api import (
    health,
    microversions,
    policies,
    record_schemas,
    schemas,
)
from secondary_scheduler.leases.api.db import host_states
from secondary_scheduler.leases.api.db.record_models import HostState
from secondary_scheduler.leases.api.resources import paging
from secondary_scheduler.leases.api.routing import Call, Reply, Route


def list_capacity(call: Call) -> Reply:
    """List the hosts, sorted by name."""
    limit = paging.page_length(call)
    found = host_states.read_hosts(
        call.service.database, call.query.get('host'),
        call.query.get('marker'), limit + 1)
    return Reply(200, {
        'hosts': [_show(call, one) for one in found[:limit]],
        'hosts_links': paging.next_links(call, '/capacity', found, limit,
                                         'name'),
        'engine': health.show_engine(call.service)})


def _show(call: Call, host: HostState) -> dict[str, typing.Any]:
    age = call.service.store.now - host.observed_at
    document = dict(host.document)
    if age > call.service.conf.secondary_lease_api.engine_stale_after:
        document |= _forget(document, (
            f'no decision engine has observed the host for {age} s'))
    return {'host': host.name,
            'observed_at': schemas.moment(host.observed_at),
            'reported_at': schemas.moment(host.reported_at), **document}


def _forget(document: dict[str, typing.Any], reason: str
            ) -> dict[str, typing.Any]:
    """Return the fields of a host whose present state is unknown."""
    return {
        'known': False, 'admission': 'unknown', 'reason': reason,
        'at_floor': None,
        'use': [one | {'primary': None, 'secondary': None}
                for one in document['use']],
        'policies': [one | {'usage': None, 'failed_checks': None,
                            'state': 'unknown'}
                     for one in document['policies']],
        'secondaries': [one | {'cpu': None, 'limit': None,
                               'at_floor': None, 'paused': None}
                        for one in document['secondaries']]}


ROUTES = (
    Route('GET', '/capacity', list_capacity, (
        'List the hosts that take secondaries: use, policies, inventory and '
        'admission, as a decision engine has observed them last.'), 200,
        'CapacityAnswer', policies.CAPACITY,
        query=record_schemas.CAPACITY_QUERY, since=microversions.RECORDS),
)
