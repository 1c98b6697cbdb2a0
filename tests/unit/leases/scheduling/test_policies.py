# SPDX-License-Identifier: Apache-2.0

"""Admission policies."""

import unittest

from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.policies import (
    MinimumNotice,
    NoReservations,
    RefusedError,
)
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.scheduling.builders import Run, lease, terms


class Options:
    reservation_notice = 100


class AdmissionPolicyTest(unittest.TestCase):
    def test_reservations_are_rejected(self):
        run = Run(3, Settings(admission=NoReservations()))
        refused, let_in = (lease('a', 1, 10, start=50), lease('b', 1, 10))
        run.submit(refused, let_in)
        self.assertIs(LeaseState.REJECTED, refused.state)
        self.assertIn('ask for a deadline', refused.reason)
        self.assertIs(LeaseState.ACTIVE, let_in.state)

    def test_reservation_without_enough_notice_is_rejected(self):
        run = Run(3, Settings(admission=MinimumNotice(Options)))
        late, just = (
            lease(name, 1, 10, start=start)
            for name, start in (('a', 149), ('b', 150))
        )
        run.submit(late, just, at=50)
        self.assertIs(LeaseState.REJECTED, late.state)
        self.assertIn('150', late.reason)
        self.assertIs(LeaseState.SCHEDULED, just.state)
        with self.assertRaisesRegex(RefusedError, 'at least 100 s'):
            run.scheduler.quote(terms(1, 10, start=149))
