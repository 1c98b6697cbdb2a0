# SPDX-License-Identifier: Apache-2.0

"""Terms of leases."""

import unittest

from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import (
    NodeSet,
    Terms,
    TermsError,
)
from tests.unit.leases.scheduling import builders


class TermsTest(unittest.TestCase):
    def test_kind_is_derived_from_the_terms(self):
        for asked, kind in (
            ({}, LeaseKind.BEST_EFFORT),
            ({'start': 50}, LeaseKind.RESERVATION),
            ({'start': 50, 'deadline': 150}, LeaseKind.RESERVATION),
            ({'start': 50, 'deadline': 151}, LeaseKind.DEADLINE),
            ({'deadline': 500}, LeaseKind.DEADLINE),
            ({'immediate': True}, LeaseKind.IMMEDIATE),
        ):
            with self.subTest(asked=asked, kind=kind):
                self.assertIs(kind, builders.terms(1, 100, **asked).kind)

    def test_impossible_terms_are_refused(self):
        for nodes, duration, asked, says in (
            ((), 10, {}, 'at least one node'),
            ((NodeSet(0, (1, 1)),), 10, {}, 'at least one node'),
            ((NodeSet(1, (0, 0)),), 10, {}, 'some of a resource'),
            ((NodeSet(1, (1, -1)),), 10, {}, 'no negative amount'),
            (
                (NodeSet(1, (3, 1), units={0: (1, 1)}),),
                10,
                {},
                'together what',
            ),
            (
                (NodeSet(1, (3, 1), units={0: (3, 0)}),),
                10,
                {},
                'some of each',
            ),
            ((NodeSet(1, (1, 1)),), 0, {}, 'at least a second'),
            ((NodeSet(1, (1, 1)),), 10, {'start': 5, 'deadline': 14}, '9 s'),
        ):
            with self.subTest(
                nodes=nodes, duration=duration, asked=asked, says=says
            ):
                with self.assertRaisesRegex(TermsError, says):
                    Terms(nodes, duration, **asked)
