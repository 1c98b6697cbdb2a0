# SPDX-License-Identifier: Apache-2.0

"""Fuzz tests: each response fits the description of the service."""

import json
import re
import unittest
import urllib.parse

import hypothesis
from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.leases.api import resources
from secondary_scheduler.leases.api.db import quotas
from tests.unit import fuzzing
from tests.unit.leases.api import keystones, services
from tests.unit.leases.api.services import NOBODY

#: Settings of these tests, which take longer than other fuzz tests.
_LESS = hypothesis.settings(
    max_examples=max(300, hypothesis.settings().max_examples // 5))
_ID = services.request(1).uuid


def fitting(schema):
    """Return a strategy for values that a schema allows."""
    if 'enum' in schema:
        return st.sampled_from(schema['enum'])
    if 'oneOf' in schema:
        return st.one_of([fitting(one) for one in schema['oneOf']])
    if 'anyOf' in schema:
        return st.one_of([_object({**schema, **one})
                          for one in schema['anyOf']])
    kinds = schema['type']
    if isinstance(kinds, list):
        return st.one_of([fitting({**schema, 'type': kind})
                          for kind in kinds])
    return {'null': lambda schema: st.none(),
            'boolean': lambda schema: st.booleans(),
            'integer': lambda schema: st.integers(schema['minimum'],
                                                  schema['maximum']),
            'number': lambda schema: st.floats(schema['minimum'],
                                               schema['maximum']),
            'string': _text, 'array': _array, 'object': _object}[kinds](
                schema)


def _text(schema):
    if 'not' in schema:
        bad = re.compile(schema['not']['pattern']).search
        return st.text(min_size=schema['minLength'], max_size=9).filter(
            lambda text: not bad(text))
    if 'pattern' in schema:
        return st.from_regex(schema['pattern']).filter(
            lambda text: len(text) <= schema.get('maxLength', len(text)))
    return st.text(max_size=9)


def _array(schema):
    return st.lists(fitting(schema['items']), max_size=3,
                    min_size=schema.get('minItems', 0))


def _object(schema):
    if 'patternProperties' in schema:
        # Short keys: long ones make the examples too large to draw.
        (_, one), = schema['patternProperties'].items()
        return st.dictionaries(st.text('aZ9_:. -', min_size=1, max_size=9),
                               fitting(one), max_size=2)
    drawn = {name: fitting(one) for name, one in schema['properties'].items()}
    return st.fixed_dictionaries(
        {name: drawn.pop(name) for name in schema['required']},
        optional=drawn)


def _encoded(value):
    return str(value).encode('utf-8', 'surrogatepass')


@st.composite
def asked(draw, spoil):
    """Draw (method, path with query, body), damaged or not."""
    route = draw(st.sampled_from(resources.TABLE))
    query, body = draw(fitting(route.query)), None
    if route.body is not None:
        body = draw(fitting(route.body))
    if spoil:
        query = draw(fuzzing.changed({**query, 'limit': '1'}))
        body = draw(fuzzing.changed(body))
    pairs = query.items() if isinstance(query, dict) else [('limit', query)]
    path = route.path.format(id=draw(st.sampled_from([_ID, NOBODY])))
    return route.method, path + '?' + urllib.parse.urlencode(
        [(_encoded(name), [_encoded(one) for one in value]
          if isinstance(value, list) else _encoded(value))
         for name, value in pairs], doseq=True), body


class DescriptionTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.service = services.on(self, quota_leases=-1, quota_nodes=-1,
                                   quota_quotes=-1, trustee_user_id='engine')
        self.service.trusts._clock = self.service.store._clock
        keystones.Keystone(self, self.service.conf)
        self.api = services.Api(self.service)
        self.service.store.create(
            services.request(1), quotas.QuotaLimits(-1, -1))
        self.service.quotes.create(services.request(1), 600, -1)

    def ask(self, method, path, body):
        status, answer = self.api.ask(
            method, path, None if body is None else json.dumps(body).encode(),
            user='admin')
        self.assertLess(status, 500)
        return answer['errors'][0]['detail'] if status == 400 else ''

    @_LESS
    @given(asked(spoil=False))
    def test_described_requests_are_valid(self, one):
        # A request that fits the schemas may still contradict itself.
        self.assertNotRegex(self.ask(*one), '^In the (query|body)')

    @_LESS
    @given(asked(spoil=True))
    def test_damaged_requests_cause_no_internal_error(self, one):
        self.ask(*one)

    def test_all_routes_are_described(self):
        found = self.api.good('GET', '/openapi.json', user=None)
        self.assertEqual('3.1.0', found['openapi'])
        self.assertEqual(
            {(one.path, one.method.lower()) for one in resources.TABLE},
            {(path, method) for path, operations in found['paths'].items()
             for method in operations})
        self.assertEqual([{'url': 'http://localhost'}], found['servers'])
        names = [operation['operationId']
                 for operations in found['paths'].values()
                 for operation in operations.values()]
        self.assertEqual(len(names), len(set(names)))
