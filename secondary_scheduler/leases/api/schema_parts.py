# SPDX-License-Identifier: Apache-2.0

"""Parts of JSON schemas that several modules use."""

import typing

from secondary_scheduler.reading import times

Schema = dict[str, typing.Any]

UUID_PATTERN = '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'
MOMENT_PATTERN = (r'^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}'
           r'(Z|[+-][0-9]{2}:[0-9]{2})$')


def make_object(properties: Schema, required: typing.Iterable[str] = (),
                **more: typing.Any) -> Schema:
    """Return the schema of an object without further properties."""
    return {'type': 'object', 'properties': properties,
            'required': list(required), 'additionalProperties': False,
            **more}


def make_answer(properties: Schema) -> Schema:
    """Return the schema of an object that has all of its properties."""
    return make_object(properties, properties)


def make_list(items: Schema, **more: typing.Any) -> Schema:
    """Return the schema of a list."""
    return {'type': 'array', 'items': items, **more}


def ref(name: str) -> Schema:
    """Return a reference to one of ``schemas.COMPONENTS``."""
    return {'$ref': f'#/components/schemas/{name}'}


UUID: Schema = {'type': 'string', 'pattern': UUID_PATTERN, 'format': 'uuid'}
MOMENT: Schema = {
    'type': 'string', 'pattern': MOMENT_PATTERN, 'format': 'date-time',
    'description': 'A time in whole seconds with its zone, like '
                   '2027-01-31T08:00:00Z.'}
#: Description of a valid text, by its format.
EXPECTED: typing.Mapping[str, str] = {
    'date-time': f'{times.EXPECTED_TIME} in whole seconds with its zone, like '
                 '2027-01-31T08:00:00Z',
    'date': f'{times.EXPECTED_DAY}, like 2027-01-31'}
