# SPDX-License-Identifier: Apache-2.0

"""Tests of Placement's error codes."""

import unittest
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.reading import placement_errors
from tests.unit import fuzzing


def answer(body):
    return mock.Mock(json=lambda: body, text=str(body))


class RefusalTest(unittest.TestCase):

    def test_code_and_explanation_are_read(self):
        found = placement_errors.read_refusal(answer({'errors': [{
            'status': 409, 'code': 'placement.inventory.inuse',
            'detail': 'There was a conflict.\n\n In use.  '}]}))
        self.assertEqual(('placement.inventory.inuse',
                          'There was a conflict. In use.'), found)
        self.assertFalse(found.may_be_concurrent)

    def test_only_one_code_is_a_concurrent_change(self):
        for code, expected in (
                ('placement.concurrent_update', True), (None, True),
                ('', True), ('placement.undefined_code', False),
                ('placement.duplicate_name', False)):
            self.assertEqual(expected, placement_errors.read_refusal(answer(
                {'errors': [{'code': code}]})).may_be_concurrent)

    @fuzzing.fuzzed
    @given(fuzzing.values | st.fixed_dictionaries({
        'errors': st.lists(fuzzing.values, max_size=2)}))
    def test_any_other_body_has_no_code(self, body):
        found = placement_errors.read_refusal(answer(body))
        self.assertIsInstance(found.code, str)
        self.assertIsInstance(found.detail, str)

    def test_codes_are_those_of_placement(self):
        try:
            from placement import errors
        except ImportError:
            self.skipTest('placement is not installed')
        self.assertEqual(
            (errors.CONCURRENT_UPDATE, errors.DUPLICATE_NAME,
             errors.INVENTORY_INUSE, errors.PROVIDER_IN_USE),
            (placement_errors.CONCURRENT_UPDATE,
             placement_errors.DUPLICATE_NAME,
             placement_errors.INVENTORY_IN_USE,
             placement_errors.PROVIDER_IN_USE))
