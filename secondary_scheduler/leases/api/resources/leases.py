# SPDX-License-Identifier: Apache-2.0

"""/leases: request, list, show, change and delete leases."""

from collections.abc import Collection, Iterator, Mapping
import contextlib
import dataclasses
import typing

from oslo_utils import uuidutils

from secondary_scheduler.leases.api import (
    errors,
    health,
    microversions,
    node_sets,
    policies,
    schemas,
    verification,
)
from secondary_scheduler.leases.api.db import errors as db_errors
from secondary_scheduler.leases.api.db import models, quotas
from secondary_scheduler.leases.api.db.requests import LeaseRequest
from secondary_scheduler.leases.api.resources import paging
from secondary_scheduler.leases.api.routing import Call, Reply, Route
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.reading import times

#: Columns of a lease that its owner can change.
_TERMS = ('name', 'duration', 'start', 'deadline', 'preemptible', 'max_rate')


def show_terms(call: Call, found: models.LeaseRow | models.Quote
               ) -> dict[str, typing.Any]:
    """Return the requested terms of a lease or quote, for a response."""
    return {
        'id': found.uuid, 'project_id': found.project_id,
        'user_id': found.user_id, 'kind': str(found.kind),
        'nodes': [node_sets.show_node_set(one, call.version)
                  for one in found.nodes],
        'duration': found.duration, 'start': schemas.moment(found.start),
        'deadline': schemas.moment(found.deadline),
        'immediate': found.immediate, 'preemptible': found.preemptible,
        'max_rate': found.max_rate,
        'created_at': schemas.moment(found.created_at)}


def _show(call: Call, lease: models.LeaseRow) -> dict[str, typing.Any]:
    """Return a lease, for a response."""
    since: dict[str, typing.Any] = {}
    if call.version >= microversions.QUOTES:
        since['next_start'] = schemas.moment(lease.next_start)
    if call.version >= microversions.SERVERS:
        since['unverified'] = lease.unverified
    if call.version >= microversions.SERVED:
        since |= {'served': lease.served, 'charge': lease.charge}
    if call.version < microversions.OPEN and lease.duration is None:
        since['duration'] = times.LONGEST
    return {
        **show_terms(call, lease), 'name': lease.name, 'state': lease.state,
        'paused': lease.hold, 'cancelling': lease.wanted_end,
        'reason': lease.reason, 'price': lease.price,
        'servers': [one.uuid for one in lease.servers],
        'updated_at': schemas.moment(lease.updated_at),
        'revision': lease.revision, **since}


def create_lease(call: Call) -> Reply:
    """Store a request for a lease; the scheduler handles it later."""
    wanted = parse_request(call)
    made = _repeated(call, wanted)
    if made is not None:
        return _created(call, made)
    wanted = dataclasses.replace(wanted, unverified=_verify(call, wanted))
    trusts = call.service.trusts
    if trusts.required:
        trusts.ensure_trust(call.owner, _latest_start(call, wanted))
    return _created(call, _create(call, dataclasses.replace(
        wanted, trust_id=models.STANDING if trusts.required else None)))


def _latest_start(call: Call, wanted: LeaseRequest) -> int:
    """Return the latest start that the terms of a lease allow.

    Best effort has none: it counts as the present time.
    """
    if wanted.deadline is not None:
        assert wanted.duration is not None
        return wanted.deadline - wanted.duration
    return call.service.store.now if wanted.start is None else wanted.start


def _created(call: Call, lease: models.LeaseRow) -> Reply:
    return Reply(202, {'lease': _show(call, lease), **_engine(call)},
                 {'Location': call.link(f'/leases/{lease.uuid}')})


def _engine(call: Call) -> dict[str, typing.Any]:
    """Return the state of the engines, for a response."""
    if call.version < microversions.SERVED:
        return {}
    return {'engine': health.show_engine(call.service)}


def _repeated(call: Call, wanted: LeaseRequest) -> models.LeaseRow | None:
    """Return the lease that the same request made before, if any."""
    with _store_errors():
        return call.service.store.repeated(wanted)


def _create(call: Call, wanted: LeaseRequest) -> models.LeaseRow:
    with _store_errors():
        return call.service.store.create(
            wanted, quotas.QuotaLimits.from_options(call.service.conf))


@contextlib.contextmanager
def _store_errors() -> Iterator[None]:
    """Turn the store's refusals of a new lease into answers."""
    try:
        yield
    except db_errors.OverQuota as exc:
        raise errors.ApiError(403, 'over-quota', (
            f'Your project would have too many {exc.resource}: {exc}. Wait '
            'until a lease is over, cancel or delete one, or ask the operator '
            'for more. GET /quota shows limits and usage.')) from exc
    except db_errors.OtherRequest as exc:
        raise errors.ApiError(409, 'token-used', (
            f'{exc}. Use another client_token for another lease.')) from exc


def _verify(call: Call, wanted: LeaseRequest) -> tuple[dict[str, str], ...]:
    """Verify a request; return the fields that could not be verified.

    :raises ApiError: 400 or 403, if its servers could not be made.
    """
    found = call.service.verifier.verify(
        call.session, wanted.nodes, wanted.project_id,
        quotas.nodes_with_servers(call.service.database, wanted.project_id))
    raise_problems(found)
    return tuple(dataclasses.asdict(one) for one in found.unverified)


def raise_problems(found: verification.VerificationResult) -> None:
    """Raise an error if a verification has failed.

    :raises ApiError: 400 or 403, with all problems.
    """
    if found.wrong:
        raise errors.invalid(' '.join(map(str, found.wrong)))
    if found.exceeded:
        raise errors.ApiError(403, 'over-quota',
                              ' '.join(map(str, found.exceeded)))


def parse_request(call: Call) -> LeaseRequest:
    """Return the request for a lease that is in the body.

    :raises ApiError: if it contradicts itself or the clock.
    """
    terms = _parse_terms(call.body)
    immediate = call.body.get('immediate', False)
    _check_terms(call, terms, immediate)
    for problem in node_sets.contradictions(call.body['nodes']):
        raise errors.invalid(problem)
    return LeaseRequest(
        uuid=uuidutils.generate_uuid(), project_id=call.context.project_id,
        user_id=call.context.user_id,
        nodes=node_sets.parse_node_sets(call.body['nodes']),
        immediate=immediate, token=call.body.get('client_token'), **terms)


def list_leases(call: Call) -> Reply:
    """List leases, the oldest first, a page at a time."""
    project = scope(call)
    limit = paging.page_length(call)
    only = call.query.get('project_id')
    if only is not None and project not in (None, only):
        raise errors.invalid(
            f'project_id: leases of {only} are listed only with '
            'all_projects=true, which needs the permission of an operator.')
    try:
        found = call.service.store.leases(
            only or project, among=call.query.get('state'),
            name=call.query.get('name'), marker=call.query.get('marker'),
            limit=limit + 1,
            sort_key=call.query.get('sort_key', 'created_at'),
            descending=call.query.get('sort_dir') == 'desc')
    except db_errors.UnknownLease as exc:
        raise errors.invalid(
            f'marker: {exc} in your project. Begin without a marker.'
        ) from exc
    return Reply(200, {
        'leases': [_show(call, one) for one in found[:limit]],
        'leases_links': paging.next_links(call, '/leases', found, limit,
                                          'uuid'), **_engine(call)})


def scope(call: Call) -> str | None:
    """Return the project whose leases a list has; None is all projects."""
    if not call.query.get('all_projects'):
        return call.context.project_id
    if not call.sees_all:
        raise errors.ApiError(403, 'forbidden', (
            f'The policy {policies.ALL_PROJECTS} does not allow this with '
            'your roles. Leave out all_projects.'))
    return None


def show_lease(call: Call) -> Reply:
    """Show a lease."""
    return Reply(200, {'lease': _show(call, find(call)), **_engine(call)})


def find(call: Call) -> models.LeaseRow:
    """Return the lease in the path, if it is visible to the user."""
    try:
        return call.service.store.get(call.path['id'], call.scope)
    except db_errors.UnknownLease as exc:
        raise errors.not_found('leases', call.path['id']) from exc


def update_lease(call: Call) -> Reply:
    """Change the name, or the terms of a new lease."""
    lease = find(call)
    changes = _parse_terms(call.body)
    terms = {name: changes.get(name, getattr(lease, name))
             for name in _TERMS}
    seen = call.body.get('revision')
    if changes.keys() <= {'name'}:
        return change(call, lease, 'changed', changes, set(LeaseState), seen)
    if lease.is_new:
        _check_terms(call, terms, lease.immediate)
    # The revision makes sure that the checked terms are the written ones.
    return change(call, lease, 'changed', changes, {LeaseState.NEW},
                  lease.revision if seen is None else seen)


def change(call: Call, lease: models.LeaseRow, kind: str,
           values: Mapping[str, typing.Any], among: Collection[str],
           revision: int | None = None) -> Reply:
    """Change a lease in one of the given states; return it."""
    try:
        return Reply(202, {'lease': _show(call, call.service.store.change(
            lease.uuid, kind, values, project=lease.project_id,
            revision=revision, among=among))})
    except db_errors.UnknownLease as exc:
        raise errors.not_found('leases', lease.uuid) from exc
    except db_errors.Stale as exc:
        raise errors.ApiError(409, 'stale', (
            f'{exc}: it has changed meanwhile. Show it again, and send its '
            'present revision.')) from exc
    except db_errors.WrongState as exc:
        raise errors.ApiError(409, 'wrong-state', (
            f'{exc}, so this is not possible any more. Terms can be changed '
            'while a lease is new, and nothing once it is over: request '
            'another lease.')) from exc


def delete_lease(call: Call) -> Reply:
    """Delete a lease that is over or new."""
    trust = find(call).trust_id
    try:
        call.service.store.delete(call.path['id'], call.scope)
    except db_errors.UnknownLease as exc:
        raise errors.not_found('leases', call.path['id']) from exc
    except db_errors.WrongState as exc:
        raise errors.ApiError(409, 'wrong-state', (
            f'{exc}. Cancel it (POST /leases/{call.path["id"]}/action), and '
            'delete it when it is over.')) from exc
    if trust not in (None, models.STANDING):
        call.service.trusts.keystone.discard_trust(call.token, trust)
    return Reply(204)


def _parse_terms(body: Mapping[str, typing.Any]) -> dict[str, typing.Any]:
    """Return the given terms of a request, as values of columns."""
    terms = {name: body[name] for name in _TERMS if name in body}
    for name in ('start', 'deadline'):
        if terms.get(name) is not None:
            terms[name] = schemas.seconds(terms[name], name)
    return terms


def _check_terms(call: Call, terms: Mapping[str, typing.Any], immediate: bool
           ) -> None:
    """Raise an error for terms that contradict each other or the clock."""
    start, deadline = terms.get('start'), terms.get('deadline')
    now, duration = call.service.store.now, terms['duration']
    if immediate and (start is not None or deadline is not None):
        raise errors.invalid('An immediate lease begins now: leave out '
                             'start and deadline, or immediate.')
    if start is not None and start < now:
        raise errors.invalid(
            f'start is {schemas.moment(start)}, and the time is '
            f'{schemas.moment(now)} already. Choose a later start.')
    first = now if start is None else start
    if first + duration > times.LAST:
        raise errors.invalid(
            f'start is {schemas.moment(first)}: a lease of {duration} s would '
            f'end after {times.LAST_TEXT}. Choose an earlier start or a '
            'shorter duration.')
    if deadline is not None and deadline < first + duration:
        raise errors.invalid(
            f'Between {schemas.moment(first)} and the deadline, '
            f'{schemas.moment(deadline)}, there are {deadline - first} s: '
            f'the duration of {duration} s does not fit. Choose a later '
            'deadline or a shorter duration.')


_ID = '/leases/{id}'
ROUTES = (
    Route('POST', '/leases', create_lease, (
        'Request a lease. The response comes at once; the scheduler decides '
        'later whether and when the lease gets hosts, and its state shows '
        'the decision.'),
        202, 'LeaseAnswer', policies.CREATE, body=schemas.CREATE,
        refusals=(409,)),
    Route('GET', '/leases', list_leases, 'List leases, the oldest first.',
          200, 'LeasesAnswer', policies.LIST, query=schemas.LIST_QUERY),
    Route('GET', _ID, show_lease, 'Show a lease.', 200, 'LeaseAnswer',
          policies.SHOW, refusals=(404,)),
    Route('PATCH', _ID, update_lease, (
        'Change the name of a lease, or its terms while it is new.'),
        202, 'LeaseAnswer', policies.UPDATE, body=schemas.UPDATE,
        refusals=(404, 409)),
    Route('DELETE', _ID, delete_lease, (
        'Delete a lease that is over or new.'), 204, None, policies.DELETE,
        refusals=(404, 409)),
)
