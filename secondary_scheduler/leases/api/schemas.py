"""What requests and answers look like: JSON Schema, as OpenAPI 3.1 has it.

The same objects validate requests and describe the service.
"""

import datetime
import re
import typing

from secondary_scheduler.leases.api import errors, microversions, node_sets
from secondary_scheduler.leases.api.db.plans import What
from secondary_scheduler.leases.api.node_sets import line, nullable
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.model.lease_states import LeaseState

Schema = dict[str, typing.Any]

_UUID = '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'
_MOMENT = (r'^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}'
           r'(Z|[+-][0-9]{2}:[0-9]{2})$')
#: Ten years, in seconds.
LONGEST = 315_360_000


def _object(properties: Schema, required: typing.Iterable[str] = (),
            **more: typing.Any) -> Schema:
    return {'type': 'object', 'properties': properties,
            'required': list(required), 'additionalProperties': False,
            **more}


def _answer(properties: Schema) -> Schema:
    return _object(properties, properties)


def _list(items: Schema, **more: typing.Any) -> Schema:
    return {'type': 'array', 'items': items, **more}


def ref(name: str) -> Schema:
    """Return a reference to one of ``COMPONENTS``."""
    return {'$ref': f'#/components/schemas/{name}'}


UUID: Schema = {'type': 'string', 'pattern': _UUID, 'format': 'uuid'}
MOMENT: Schema = {
    'type': 'string', 'pattern': _MOMENT, 'format': 'date-time',
    'description': 'A time in whole seconds with its zone, like '
                   '2027-01-31T08:00:00Z.'}
STATE: Schema = {'type': 'string', 'enum': [str(one) for one in LeaseState]}

_NAME = line('For people; leases may have the same.')
_TERMS: Schema = {
    'duration': {
        'type': 'integer', 'minimum': 1, 'maximum': LONGEST,
        'description': 'Seconds for which the nodes are to run.'},
    'start': {**nullable(MOMENT), 'description': (
        'No earlier than this. Without a deadline, or with one that leaves '
        'no choice, exactly then. null: as soon as there is room.')},
    'deadline': {**nullable(MOMENT), 'description': (
        'All of the duration is to be delivered by then; null: whenever.')},
    'preemptible': {
        'type': 'boolean', 'default': True,
        'description': 'Whether it may be suspended for others meanwhile.'},
    'max_rate': {
        'type': ['number', 'null'], 'minimum': 0, 'maximum': 1e12,
        'description': 'The most that is paid for a node and a second; '
                       'null: whatever is asked.'},
}

_ASKED: Schema = {
    **_TERMS,
    'nodes': _list(node_sets.REQUEST, minItems=1, maxItems=100),
    'immediate': {
        'type': 'boolean', 'default': False,
        'description': 'Now or not at all; without start and deadline.'},
}

CREATE = _object({
    'name': _NAME,
    **_ASKED,
    'client_token': line(
        'Makes it safe to send the request again: who uses the same token '
        'in a project gets the lease that the first has made.', 1),
}, ('nodes', 'duration'))

CREATE_QUOTE = _object(_ASKED, ('nodes', 'duration'))

UPDATE = _object({
    'name': _NAME,
    **_TERMS,
    'revision': {
        'type': 'integer', 'minimum': 1, 'maximum': 2 ** 31 - 1,
        'description': 'The one that you have seen: refused if somebody has '
                       'changed the lease since.'},
}, anyOf=[{'required': [name]} for name in ('name', *_TERMS)])

ACTION = _object({'action': {
    'type': 'string', 'enum': ['pause', 'unpause', 'cancel']}}, ('action',))

ALL_PROJECTS: Schema = {
    'type': 'boolean', 'default': False,
    'description': 'Those of all projects; for operators.'}
LIMIT: Schema = {'type': 'integer', 'minimum': 1, 'maximum': 2 ** 31 - 1,
                 'description': 'At most so many.'}
LIST_QUERY = _object({
    'state': _list(STATE, description='Only those in one of these states.'),
    'name': line('Only those of exactly this name.'),
    'limit': LIMIT,
    'marker': {**UUID, 'description': 'Begin after this lease.'},
    'all_projects': ALL_PROJECTS})
EVENTS_QUERY = _object({'limit': LIMIT})
_WINDOW = {'begin': {**MOMENT, 'description': 'Not what ends by then.'},
           'end': {**MOMENT, 'description': 'Not what begins later.'}}
WINDOW_QUERY = _object(_WINDOW)
TIMELINE_QUERY = _object({**_WINDOW, 'all_projects': ALL_PROJECTS})
NO_QUERY = _object({})

#: What leases and quotes show of what was asked for.
_SHOWN: Schema = {
    'id': UUID,
    'project_id': {'type': 'string'},
    'user_id': {'type': 'string'},
    'kind': {'type': 'string', 'enum': [str(one) for one in LeaseKind],
             'description': 'What is promised; follows from the terms.'},
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
    'description': 'What it is offered at, in all, even if that was too '
                   'much; null: not known.'}
_NEXT_START: Schema = {**nullable(MOMENT), 'description': (
    'When it could begin instead, if it was refused for want of room.')}

_LEASE_PARTS: Schema = {
    **_SHOWN,
    'duration': {**nullable(_TERMS['duration']), 'description': (
        'Seconds for which the nodes are to run; null: as long as their '
        f'owner likes (before version 1.2 that is {LONGEST}).')},
    'name': _NAME,
    'state': STATE,
    'paused': {'type': 'boolean', 'description': (
        'By its owner: it is not scheduled, and suspended if it runs.')},
    'cancelling': {'type': 'boolean', 'description': (
        'Its owner wants it to end.')},
    'reason': {'type': 'string', 'description': 'Why it is in its state.'},
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
        'did not answer; they are verified before it begins.')}
_SERVED: Schema = {'type': 'integer', 'description': (
    'Seconds in which all of its servers were seen to run; while it runs, up '
    'to a minute old.')}
_CHARGE: Schema = {'type': ['number', 'null'], 'description': (
    'The part of the price that is due for these; 0 for a lease that has '
    'failed; null: not known.')}
_ENGINE = _answer({
    'last_pass': {**nullable(MOMENT), 'description': (
        'When leases were last looked at; null: never.')},
    'stale': {'type': 'boolean', 'description': (
        'Whether that is so long ago that leases wait.')},
    'message': {'type': 'string', 'description': (
        'What that means, and the next step.')}})
# What came later is not in answers to requests of older versions.
_LEASE = _object({**_LEASE_PARTS, 'next_start': _NEXT_START,
                  'unverified': _UNVERIFIED, 'served': _SERVED,
                  'charge': _CHARGE}, _LEASE_PARTS)
_OFFER = _answer({
    'accepted': {'type': 'boolean', 'description': (
        'Whether a lease with these terms would be accepted now.')},
    'start': {**nullable(MOMENT), 'description': (
        'When it would begin; if it would not be accepted, when it could '
        'instead. null: never.')},
    'rate': {'type': ['number', 'null'], 'description': (
        'What is asked for a node and a second; null: not known.')},
    'price': _PRICE,
    'reason': {'type': 'string', 'description': (
        'Why it would not be accepted.')},
})
_QUOTE = _answer({
    **_SHOWN,
    'expires_at': {**MOMENT, 'description': 'When it is forgotten.'},
    'offer': {'oneOf': [ref('Offer'), {'type': 'null'}],
              'description': 'null: not answered yet.'},
})
_SLOT = _answer({
    'lease_id': UUID,
    'begin': MOMENT,
    'end': {**nullable(MOMENT), 'description': (
        'null: it has none (before version 1.2 that is '
        '2099-12-31T23:59:59Z).')},
    'what': {'type': 'string', 'enum': [str(one) for one in What]},
    'nodes': {'type': 'integer'},
    'hosts': {
        'type': ['object', 'null'],
        'additionalProperties': {'type': 'integer'},
        'description': 'Nodes on each host; null for all but operators.'},
})
_EVENT = _answer({
    'time': MOMENT, 'kind': {'type': 'string'}, 'state': STATE,
    'text': {'type': 'string'}})
_AMOUNT = _answer({
    'limit': {'type': 'integer', 'description': '-1: unlimited.'},
    'used': {'type': 'integer'}})
_LINK = _answer({'rel': {'type': 'string'}, 'href': {'type': 'string'}})
_ERROR = _answer({
    'status': {'type': 'integer'}, 'code': {'type': 'string'},
    'title': {'type': 'string'}, 'detail': {'type': 'string'},
    'request_id': {'type': 'string'}})

#: Schemas of answers by name.
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
    'VersionsAnswer': _answer({'versions': _list(_answer({
        'id': {'type': 'string'}, 'status': {'type': 'string'},
        'min_version': {'type': 'string'},
        'max_version': {'type': 'string'}, 'links': _list(_LINK)}))}),
    'Description': {'type': 'object', 'required': ['openapi', 'paths']},
    'Errors': _answer({'errors': _list(_ERROR, minItems=1)}),
}

is_uuid = re.compile(_UUID).match


def at(schema: typing.Any, version: microversions.Version) -> typing.Any:
    """Return a schema without the properties that came after a version."""
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
    """Return a time that has matched MOMENT as seconds since 1970.

    :raises ApiError: if there is no such time.
    """
    try:
        return int(datetime.datetime.fromisoformat(text).timestamp())
    except ValueError as exc:
        raise errors.invalid(f'{where} is {text}: there is no such time '
                             f'({exc}).') from exc


def moment(value: int | None) -> str | None:
    """Return seconds since 1970 as MOMENT; None stays."""
    if value is None:
        return None
    return datetime.datetime.fromtimestamp(
        value, datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')
