# SPDX-License-Identifier: Apache-2.0

"""Scheduling of the wait queue."""

import unittest

from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.model.lease_order import Aged, FirstCome, Priority
from tests.unit.leases.scheduling.builders import Run, lease, run_times


class QueueTest(unittest.TestCase):
    def test_queued_lease_begins_when_hosts_are_free(self):
        run = Run(2, Settings(suspension=False))
        first, second = lease('a', 2, 100), lease('b', 1, 50)
        run.submit(first, second)
        run.until(200)
        self.assertEqual((0, 100), run_times(first))
        self.assertEqual((100, 150), run_times(second))
        self.assertEqual(
            ['pending', 'queued', 'scheduled', 'ready', 'active', 'done'],
            run.story['b'],
        )

    def test_short_lease_overtakes_a_lease_with_a_planned_start(self):
        run = Run(2, Settings(suspension=False))
        one, wide, short, long = (
            lease('a', 1, 100),
            lease('b', 2, 10),
            lease('c', 1, 100),
            lease('d', 1, 101),
        )
        run.submit(one, wide, short, long)
        run.until(300)
        self.assertEqual((100, 110), run_times(wide))
        self.assertEqual((0, 100), run_times(short))
        self.assertEqual((110, 211), run_times(long))

    def test_backfilling_delays_no_planned_start(self):
        """The long lease would delay the third, but not the second.

        Without planned starts no lease overtakes.
        """
        for reservations, begin in (
            (0, (100, 110, 120, 120)),
            (1, (100, 115, 0, 125)),
            (2, (100, 110, 120, 0)),
            (None, (100, 110, 120, 0)),
        ):
            with self.subTest(reservations=reservations, begin=begin):
                run = Run(
                    3, Settings(suspension=False, reservations=reservations)
                )
                _, *waiting = leases = [
                    lease('first', 2, 100),
                    lease('second', 2, 10),
                    lease('third', 3, 10),
                    lease('long', 1, 115),
                    lease('short', 1, 50),
                ]
                run.submit(*leases)
                run.until(500)
                self.assertEqual(begin, tuple(one.started for one in waiting))

    def test_queue_is_served_in_the_chosen_order(self):
        """b has waited for two seconds less than a, and has one point more."""
        for order, served in (
            (FirstCome(), 'abc'),
            (Priority(), 'cba'),
            (Aged(3600), 'bac'),
        ):
            with self.subTest(order=order, served=served):
                run = Run(
                    1, Settings(order=order, suspension=False, reservations=0)
                )
                run.submit(lease('x', 1, 100))
                leases = {}
                for at, name, priority in (
                    (1, 'a', 0),
                    (2, 'b', 2),
                    (5, 'c', 4),
                ):
                    leases[name] = lease(name, 1, 10, priority=priority)
                    run.submit(leases[name], at=at)
                run.until(1000)
                self.assertEqual(
                    list(served),
                    sorted(leases, key=lambda name: leases[name].started),
                )

    def test_lease_does_not_begin_for_less_than_the_minimum_run(self):
        """The minimum is twice the 21 s of a suspension."""
        run = Run(1)
        run.submit(lease('r', 1, 100, start=41, preemptible=False))
        work = run.submit(lease('b', 1, 300))
        run.until(41)
        self.assertIsNone(work.started)
        run.until(1000)
        self.assertEqual((141, 441), run_times(work))


class EarlyEndTest(unittest.TestCase):
    def test_early_end_delays_no_planned_start(self):
        """The wide lease could begin at 50, but would delay the small one."""
        for reservations in (2, None):
            with self.subTest(reservations=reservations):
                run = Run(
                    3, Settings(suspension=False, reservations=reservations)
                )
                first, second, wide, small = (
                    lease('first', 2, 100),
                    lease('second', 1, 50),
                    lease('wide', 3, 100),
                    lease('small', 1, 50),
                )
                run.submit(first, second, wide, small)
                self.assertEqual(
                    (100, 50), (wide.booking.begin, small.booking.begin)
                )
                run.finish(first, 10)
                self.assertEqual(
                    (100, 10), (wide.booking.begin, small.started)
                )

    def test_early_end_starts_deadline_leases_earlier(self):
        """A lease does not begin before its earliest start."""
        run = Run(1, Settings())
        first = lease('a', 1, 1000, deadline=2000)
        second = lease('b', 1, 500, deadline=5000)
        third = lease('c', 1, 500, start=300, deadline=5000)
        run.submit(first, second, third)
        self.assertEqual(
            [1000, 1500], [one.booking.begin for one in (second, third)]
        )
        run.finish(first, 100)
        self.assertEqual((100, None), run_times(second))
        self.assertEqual(1500, third.booking.begin)
        run.finish(second, 200)
        run.submit(lease('d', 1, 10), at=400)
        run.until(1000)
        self.assertEqual((410, 910), run_times(third))

    def test_early_end_starts_queued_leases_earlier(self):
        run = Run(1, Settings(suspension=False))
        first, second = lease('a', 1, 1000), lease('b', 1, 50)
        run.submit(first, second)
        run.finish(first, 30)
        run.until(100)
        self.assertEqual((0, 30), run_times(first))
        self.assertEqual(30, first.served)
        self.assertEqual((30, 80), run_times(second))
