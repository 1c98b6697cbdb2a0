# SPDX-License-Identifier: Apache-2.0

"""Quotes, prices and rejections of leases."""

import unittest

from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import TermsError
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.policies import NoPreemption
from secondary_scheduler.leases.scheduling.pricing import Adaptive, Constant
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.scheduling.builders import Run, lease, terms


def reservation(nodes, duration, start):
    return terms(nodes, duration, start=start, preemptible=False)


class QuoteTest(unittest.TestCase):
    def test_feasible_lease_is_offered_as_requested(self):
        run = Run(3, Settings(pricing=Constant(2.0)))
        offer = run.scheduler.quote(reservation(2, 50, 10))
        self.assertEqual((True, 10), (offer.accepted, offer.booking.begin))
        self.assertEqual((2.0, 200.0), (offer.rate, offer.price))

    def test_quote_changes_nothing(self):
        run = Run(3)
        run.submit(lease('a', 3, 100, start=50, preemptible=False))
        before = run.scheduler.table.state_at(60)[0].tolist()
        for asked in (
            reservation(2, 50, 60),
            reservation(2, 50, 200),
            terms(1, 10, deadline=1000),
            terms(3, 10),
        ):
            run.scheduler.quote(asked)
        self.assertEqual(before, run.scheduler.table.state_at(60)[0].tolist())
        self.assertEqual({'a': ['pending', 'scheduled']}, run.story)
        self.assertFalse(run.scheduler.queue)

    def test_infeasible_lease_is_offered_the_next_possible_start(self):
        run = Run(3, Settings(durations=OperationTimes(shutdown=5)))
        run.submit(lease('a', 2, 100, start=50, preemptible=False))
        offer = run.scheduler.quote(reservation(2, 50, 60))
        self.assertEqual((False, 155), (offer.accepted, offer.booking.begin))

    def test_next_possible_start_may_preempt_leases(self):
        """The start is the earliest end of a suspension."""
        run = Run(1)
        run.submit(lease('a', 1, 1000))
        offer = run.scheduler.quote(reservation(1, 50, 10))
        self.assertEqual((False, 22), (offer.accepted, offer.booking.begin))
        run = Run(1, Settings(preemption=NoPreemption()))
        run.submit(lease('a', 1, 1000))
        self.assertEqual(
            1000, run.scheduler.quote(reservation(1, 50, 10)).booking.begin
        )

    def test_offered_start_is_accepted(self):
        for start in (0, 10, 60, 149):
            with self.subTest(start=start):
                run = Run(3)
                run.submit(
                    lease('a', 2, 100, start=50, preemptible=False),
                    lease('b', 1, 500),
                )
                offer = run.scheduler.quote(reservation(3, 50, start))
                taken = lease(
                    'r', 3, 50, start=offer.booking.begin, preemptible=False
                )
                run.submit(taken)
                self.assertIs(LeaseState.SCHEDULED, taken.state)

    def test_infeasible_deadline_is_offered_the_earliest_end(self):
        run = Run(1, Settings(preemption=NoPreemption()))
        run.submit(lease('a', 1, 100, preemptible=False))
        asked = terms(1, 50, deadline=140)
        self.assertIs(LeaseKind.DEADLINE, asked.kind)
        offer = run.scheduler.quote(asked)
        self.assertEqual(
            (False, 100, 150),
            (offer.accepted, offer.booking.begin, offer.booking.down),
        )

    def test_best_effort_is_offered_the_first_free_hosts(self):
        run = Run(1, Settings(suspension=False))
        run.submit(lease('a', 1, 100))
        offer = run.scheduler.quote(terms(1, 10))
        self.assertEqual((True, 100), (offer.accepted, offer.booking.begin))

    def test_lease_too_large_for_the_site_is_refused(self):
        with self.assertRaisesRegex(TermsError, 'room for 3'):
            Run(3).scheduler.quote(terms(4, 10))


class PriceTest(unittest.TestCase):
    def test_lease_above_its_highest_rate_is_rejected_by_the_user(self):
        pricing = Adaptive(rate=2.0)
        run = Run(1, Settings(pricing=pricing))
        reserved = run.submit(
            lease(
                'r',
                1,
                100,
                start=50,
                preemptible=False,
                user='anna',
                max_rate=1.0,
            )
        )
        self.assertIs(LeaseState.REJECTED_BY_USER, reserved.state)
        self.assertIn(
            'at 2 for a node and a second it is more than 1', reserved.reason
        )
        self.assertEqual(['pending', 'rejected-by-user'], run.story['r'])
        # Her acceptable rate is estimated as half of the refused one.
        waiting = run.submit(lease('b', 1, 10, user='anna', max_rate=1.0))
        self.assertIs(LeaseState.ACTIVE, waiting.state)
        self.assertEqual(1.0 * 10, waiting.price)

    def test_lease_without_room_does_not_change_the_rate(self):
        pricing = Adaptive(rate=2.0)
        run = Run(1, Settings(pricing=pricing))
        run.submit(lease('r', 1, 100, start=50, preemptible=False))
        for most in (1.0, 5.0):
            none = run.submit(
                lease(
                    's',
                    1,
                    100,
                    start=50,
                    preemptible=False,
                    user='anna',
                    max_rate=most,
                )
            )
            self.assertIs(LeaseState.REJECTED, none.state)
        # The user of r may accept a higher rate.
        self.assertEqual(3.0, pricing.rate(none.terms))
