# SPDX-License-Identifier: Apache-2.0

"""JSON schemas of requests and responses, in the dialect of OpenAPI 3.1.

The same objects validate requests and describe the service.
"""

import re
import typing

from secondary_scheduler.leases.api import (
    errors,
    microversions,
    node_sets,
    record_schemas,
)
from secondary_scheduler.leases.api.db import store
from secondary_scheduler.leases.api.db.plans import SlotPurpose
from secondary_scheduler.leases.api.db.standing_trusts import TrustState
from secondary_scheduler.leases.api.node_sets import line, nullable
from secondary_scheduler.leases.api.schema_parts import MOMENT, UUID_PATTERN
from secondary_scheduler.leases.api.schema_parts import UUID as UUID
from secondary_scheduler.leases.api.schema_parts import Schema as Schema
from secondary_scheduler.leases.api.schema_parts import make_answer as _answer
from secondary_scheduler.leases.api.schema_parts import make_list as _list
from secondary_scheduler.leases.api.schema_parts import make_object as _object
from secondary_scheduler.leases.api.schema_parts import ref as ref
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.reading import times
from secondary_scheduler.reading.values import InputError

STATE: Schema = {'type': 'string', 'enum': [str(one) for one in LeaseState]}

_NAME = line('Name of the lease; need not be unique.')
_TERMS: Schema = {
    'duration': {
        'type': 'integer', 'minimum': 1, 'maximum': times.LONGEST,
        'description': 'Running time of the nodes in seconds.'},
    'start': {**nullable(MOMENT), 'description': (
        'Earliest start. Without a deadline, or with one that leaves no '
        'choice, the exact start. null: as soon as there is room.')},
    'deadline': {**nullable(MOMENT), 'description': (
        'Time by which the whole duration has to be delivered; null: no '
        'deadline.')},
    'preemptible': {
        'type': 'boolean', 'default': True,
        'description': 'Whether other leases may preempt (suspend) it.'},
    'max_rate': {
        'type': ['number', 'null'], 'minimum': 0, 'maximum': 1e12,
        'description': 'Highest price accepted for a node and a second; '
                       'null: any price.'},
}

_ASKED: Schema = {
    **_TERMS,
    'nodes': _list(node_sets.REQUEST, minItems=1, maxItems=100),
    'immediate': {
        'type': 'boolean', 'default': False,
        'description': 'Start now or reject the lease; excludes start and '
                       'deadline.'},
}

CREATE = _object({
    'name': _NAME,
    **_ASKED,
    'client_token': line(
        'Makes it safe to repeat the request: another request of the project '
        'with the same token returns the lease that the first one made.', 1),
}, ('nodes', 'duration'))

CREATE_QUOTE = _object(_ASKED, ('nodes', 'duration'))

UPDATE = _object({
    'name': _NAME,
    **_TERMS,
    'revision': {
        'type': 'integer', 'minimum': 1, 'maximum': 2 ** 31 - 1,
        'description': 'Revision on which the change is based: the request '
                       'is refused if the lease has changed since.'},
}, anyOf=[{'required': [name]} for name in ('name', *_TERMS)])

ACTION = _object({'action': {
    'type': 'string', 'enum': ['pause', 'unpause', 'cancel']}}, ('action',))

ALL_PROJECTS: Schema = {
    'type': 'boolean', 'default': False,
    'description': 'Include leases of all projects; for operators.'}
LIMIT: Schema = {'type': 'integer', 'minimum': 1, 'maximum': 2 ** 31 - 1,
                 'description': 'Largest number of items.'}
LIST_QUERY = _object({
    'state': _list(STATE, description='Only leases in one of these states.'),
    'name': line('Only leases of exactly this name.'),
    'limit': LIMIT,
    'marker': {**UUID, 'description': 'Begin after this lease.'},
    'all_projects': ALL_PROJECTS,
    **{name: {**schema, 'x-openstack': {
        'min-ver': str(microversions.RECORDS)}} for name, schema in {
            'sort_key': {
                'type': 'string', 'enum': list(store.SORT_KEYS),
                'default': 'created_at', 'description': 'Key of the order.'},
            'sort_dir': {
                'type': 'string', 'enum': ['asc', 'desc'], 'default': 'asc',
                'description': 'Direction of the order.'},
            'project_id': line(
                'Only leases of this project; of another one than the '
                'user\'s only with all_projects.', 1, 64)}.items()}})
EVENTS_QUERY = _object({'limit': LIMIT})
_WINDOW = {
    'begin': {**MOMENT, 'description': 'Leave out slots that end by then.'},
    'end': {**MOMENT, 'description': 'Leave out slots that begin later.'}}
WINDOW_QUERY = _object(_WINDOW)
TIMELINE_QUERY = _object({**_WINDOW, 'all_projects': ALL_PROJECTS})
NO_QUERY = _object({})

#: Fields of a request that leases and quotes show.
_SHOWN: Schema = {
    'id': UUID,
    'project_id': {'type': 'string'},
    'user_id': {'type': 'string'},
    'kind': {'type': 'string', 'enum': [str(one) for one in LeaseKind],
             'description': 'Kind of the lease, derived from its terms.'},
    'nodes': _list(node_sets.SHOWN),
    'duration': _TERMS['duration'],
    'start': nullable(MOMENT),
    'deadline': nullable(MOMENT),
    'immediate': {'type': 'boolean'},
    'preemptible': {'type': 'boolean'},
    'max_rate': _TERMS['max_rate'],
    'created_at': MOMENT,
}
_PRICE: Schema = {
    'type': ['number', 'null'],
    'description': 'Total price at which it is offered, even if that exceeds '
                   'max_rate; null: unknown.'}
_NEXT_START: Schema = {**nullable(MOMENT), 'description': (
    'Next possible start, if it was rejected for lack of room.')}

_LEASE_PARTS: Schema = {
    **_SHOWN,
    'duration': {**nullable(_TERMS['duration']), 'description': (
        'Running time of the nodes in seconds; null: unlimited (before '
        f'version 1.2 that is {times.LONGEST}).')},
    'name': _NAME,
    'state': STATE,
    'paused': {'type': 'boolean', 'description': (
        'Paused by its owner: not scheduled, and suspended if it runs.')},
    'cancelling': {'type': 'boolean', 'description': (
        'Whether its owner has cancelled it.')},
    'reason': {'type': 'string', 'description': 'Reason of its state.'},
    'price': _PRICE,
    'servers': _list(UUID),
    'updated_at': MOMENT,
    'revision': {'type': 'integer'},
}
_UNVERIFIED: Schema = {
    **_list(_answer({'field': {'type': 'string'},
                     'reason': {'type': 'string'}})),
    'description': (
        'Fields of the request that could not be verified, since a service '
        'did not answer; they are verified before the lease begins.')}
_SERVED: Schema = {'type': 'integer', 'description': (
    'Seconds in which all of its servers were observed to run; up to a '
    'minute old while it runs.')}
_CHARGE: Schema = {'type': ['number', 'null'], 'description': (
    'Part of the price that is due for the served seconds; 0 for a failed '
    'lease; null: unknown.')}
_ENGINE = _answer({
    'last_pass': {**nullable(MOMENT), 'description': (
        'Time of the last pass of an engine over all leases; null: never.')},
    'stale': {'type': 'boolean', 'description': (
        'Whether the last pass is too long ago, so that leases wait.')},
    'message': {'type': 'string', 'description': (
        'Reason and next step, if it is stale.')}})
# Responses of older versions lack the fields of newer ones.
_LEASE = _object({**_LEASE_PARTS, 'next_start': _NEXT_START,
                  'unverified': _UNVERIFIED, 'served': _SERVED,
                  'charge': _CHARGE}, _LEASE_PARTS)
_OFFER = _answer({
    'accepted': {'type': 'boolean', 'description': (
        'Whether a lease with these terms would be accepted now.')},
    'start': {**nullable(MOMENT), 'description': (
        'Start; if it would not be accepted, the next possible start. null: '
        'never.')},
    'rate': {'type': ['number', 'null'], 'description': (
        'Price of a node and a second; null: unknown.')},
    'price': _PRICE,
    'reason': {'type': 'string', 'description': (
        'Reason for which it would not be accepted.')},
})
_QUOTE = _answer({
    **_SHOWN,
    'expires_at': {**MOMENT, 'description': 'Time of its deletion.'},
    'offer': {'oneOf': [ref('Offer'), {'type': 'null'}],
              'description': 'Answer of the scheduler; null: none yet.'},
})
_SLOT = _answer({
    'lease_id': UUID,
    'begin': MOMENT,
    'end': {**nullable(MOMENT), 'description': (
        f'null: no end (before version 1.2 that is {times.LAST_TEXT}).')},
    'what': {'type': 'string', 'enum': [str(one) for one in SlotPurpose]},
    'nodes': {'type': 'integer'},
    'hosts': {
        'type': ['object', 'null'],
        'additionalProperties': {'type': 'integer'},
        'description': 'Number of nodes by host; null unless the user is an '
                       'operator.'},
})
_EVENT = _answer({
    'time': MOMENT, 'kind': {'type': 'string'}, 'state': STATE,
    'text': {'type': 'string'}})
_AMOUNT = _answer({
    'limit': {'type': 'integer', 'description': '-1: unlimited.'},
    'used': {'type': 'integer'}})
_TRUST = _answer({
    'id': {'type': 'string', 'description': 'Id of the trust in Keystone.'},
    'project_id': {'type': 'string'},
    'user_id': {'type': 'string'},
    'roles': _list({'type': 'string'}, description='Roles of the trust.'),
    'created_at': MOMENT,
    'expires_at': MOMENT,
    'state': {
        'type': 'string', 'enum': [str(one) for one in TrustState],
        'description': (
            'valid; unverified (Keystone does not answer, or not for this '
            'token); expired; lost (Keystone does not know it any more); '
            'outdated (its roles are not those that are needed now).')},
    'message': {'type': 'string', 'description': (
        'Remedy if no server can be made with it; else empty.')}})
_LINK = _answer({'rel': {'type': 'string'}, 'href': {'type': 'string'}})
_ERROR = _answer({
    'status': {'type': 'integer'}, 'code': {'type': 'string'},
    'title': {'type': 'string'}, 'detail': {'type': 'string'},
    'request_id': {'type': 'string'}})

#: Schemas of responses by name.
COMPONENTS: dict[str, Schema] = {
    'Lease': _LEASE,
    'Engine': _ENGINE,
    'LeaseAnswer': _object({'lease': ref('Lease'), 'engine': ref('Engine')},
                           ('lease',)),
    'LeasesAnswer': _object({'leases': _list(ref('Lease')),
                             'leases_links': _list(_LINK),
                             'engine': ref('Engine')},
                            ('leases', 'leases_links')),
    'TimelineAnswer': _answer({'slots': _list(_SLOT)}),
    'EventsAnswer': _answer({'events': _list(_EVENT)}),
    'Offer': _OFFER,
    'Quote': _QUOTE,
    'QuoteAnswer': _answer({'quote': ref('Quote')}),
    'QuotaAnswer': _answer({'quota': _answer({'leases': _AMOUNT,
                                              'nodes': _AMOUNT})}),
    'TrustAnswer': _answer({'trust': _TRUST}),
    'VersionsAnswer': _answer({'versions': _list(_answer({
        'id': {'type': 'string'}, 'status': {'type': 'string'},
        'min_version': {'type': 'string'},
        'max_version': {'type': 'string'}, 'links': _list(_LINK)}))}),
    **record_schemas.COMPONENTS,
    'Description': {'type': 'object', 'required': ['openapi', 'paths']},
    'Errors': _answer({'errors': _list(_ERROR, minItems=1)}),
}

is_uuid = re.compile(UUID_PATTERN).match


def at(schema: typing.Any, version: microversions.Version) -> typing.Any:
    """Return a schema without properties of versions after ``version``."""
    if isinstance(schema, list):
        return [at(one, version) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: {
        name: at(one, version) for name, one in value.items()
        if microversions.parse(one.get('x-openstack', {}).get(
            'min-ver', '1.0')) <= version}
            if key == 'properties' else at(value, version)
            for key, value in schema.items()}


def seconds(text: str, where: str) -> int:
    """Convert a time that has matched MOMENT to seconds since 1970.

    :raises ApiError: if there is no such time, or it is out of bounds.
    """
    try:
        return times.parse_time(text)
    except InputError as exc:
        raise errors.invalid(f'{where} is {text}: {exc}.') from exc


def moment(value: int | None) -> str | None:
    """Convert seconds since 1970 to the form of MOMENT; None stays."""
    return None if value is None else times.format_time(value)
