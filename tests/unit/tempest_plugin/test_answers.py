# SPDX-License-Identifier: Apache-2.0

"""Answers are validated by the description that the service serves."""

import importlib.util
import unittest

import jsonschema

from secondary_tempest_plugin import answers

QUOTA = {'quota': {'leases': {'limit': 100, 'used': 1},
                   'nodes': {'limit': -1, 'used': 2}}}


@unittest.skipUnless(importlib.util.find_spec('microversion_parse'),
                     'the lease service is not installed')
class AnswerTest(unittest.TestCase):

    def setUp(self) -> None:
        """Read the description of the real service."""
        from secondary_scheduler.leases.api import openapi, resources
        self.description = openapi.describe_service(
            resources.TABLE, 'http://here')

    def validate(self, status: int, body: object, method: str = 'GET',
                 path: str = '/quota') -> object:
        """Validate an answer; return its body."""
        return answers.validate_answer(self.description, method, path, status,
                                       body)

    def test_documented_answer_is_returned(self) -> None:
        self.assertEqual(QUOTA, self.validate(200, QUOTA))
        self.assertIsNone(self.validate(204, None, 'DELETE', '/leases/{id}'))

    def test_unknown_and_missing_fields_are_found(self) -> None:
        for body in (None, {}, {**QUOTA, 'more': 1},
                     {'quota': {'leases': {'limit': 1, 'used': '1'}}}):
            with self.subTest(body=body), self.assertRaises(
                    jsonschema.ValidationError):
                self.validate(200, body)

    def test_body_where_there_is_none_is_found(self) -> None:
        with self.assertRaises(jsonschema.ValidationError):
            self.validate(204, QUOTA, 'DELETE', '/leases/{id}')

    def test_undocumented_status_is_named(self) -> None:
        with self.assertRaisesRegex(KeyError, 'answered with 201'):
            self.validate(201, QUOTA)


if __name__ == '__main__':
    unittest.main()
