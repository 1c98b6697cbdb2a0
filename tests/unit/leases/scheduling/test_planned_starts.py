# SPDX-License-Identifier: Apache-2.0

"""Guaranteed starts, and preemption for them."""

import unittest

from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.policies import (
    MostSlack,
    NoPreemption,
)
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.scheduling.builders import (
    SUSPENDS,
    Run,
    lease,
    run_times,
)


def reserve_its_host(run):
    """Submit a lease whose host is reserved once it is suspended."""
    run.submit(lease('r', 2, 100, start=200, preemptible=False))
    run.submit(lease('s', 1, 1000, start=300, preemptible=False))
    work = run.submit(lease('b', 1, 1000))
    run.until(4000)
    assert (work.started, work.suspends, work.served) == (0, 1, 1000)
    return work


class ReservationTest(unittest.TestCase):
    def test_reservation_starts_on_its_second(self):
        run = Run(2)
        one = run.submit(lease('r', 2, 60, start=500, preemptible=False))
        run.until(1000)
        self.assertEqual((500, 560), run_times(one))

    def test_reservation_without_room_is_rejected(self):
        run = Run(2)
        run.submit(lease('r', 1, 60, start=500, preemptible=False))
        other = run.submit(lease('s', 2, 60, start=559, preemptible=False))
        third = run.submit(lease('t', 2, 60, start=560, preemptible=False))
        self.assertIs(LeaseState.REJECTED, other.state)
        self.assertIs(LeaseState.SCHEDULED, third.state)

    def test_reservation_with_a_past_start_is_rejected(self):
        run = Run(2)
        late = run.submit(
            lease('r', 1, 60, start=99, preemptible=False), at=100
        )
        self.assertIs(LeaseState.REJECTED, late.state)

    def test_immediate_lease_starts_now_or_is_rejected(self):
        run = Run(2)
        run.submit(lease('b', 1, 1000))
        now = run.submit(lease('i', 1, 60, immediate=True), at=10)
        never = run.submit(lease('j', 1, 60, immediate=True), at=11)
        self.assertIs(LeaseState.ACTIVE, now.state)
        self.assertIs(LeaseState.REJECTED, never.state)
        run.until(100)
        self.assertEqual((10, 70), run_times(now))


class PreemptionTest(unittest.TestCase):
    def test_best_effort_lease_is_suspended_in_time_and_resumes(self):
        run = Run(1)
        reserved = run.submit(lease('r', 1, 100, start=200, preemptible=False))
        work = run.submit(lease('b', 1, 300))
        run.until(1000)
        self.assertEqual((200, 300), run_times(reserved))
        # It runs in [0, 179), and the remaining 121 s from 321 on.
        self.assertEqual((0, 321 + 300 - (200 - SUSPENDS)), run_times(work))
        self.assertEqual(
            (1, 1, 300), (work.suspends, work.resumes, work.served)
        )
        self.assertEqual(
            [
                'pending',
                'queued',
                'scheduled',
                'ready',
                'active',
                'suspending',
                'suspended-pending',
                'suspended-queued',
                'suspended-scheduled',
                'resuming',
                'resumed-ready',
                'active',
                'done',
            ],
            run.story['b'],
        )

    def test_running_lease_is_preempted_by_a_reservation(self):
        run = Run(2)
        work = run.submit(lease('b', 2, 1000))
        reserved = run.submit(
            lease('r', 1, 100, start=200, preemptible=False), at=100
        )
        run.until(3000)
        self.assertEqual((200, 300), run_times(reserved))
        self.assertEqual((1, 1000), (work.suspends, work.served))
        self.assertEqual(300 + SUSPENDS + 1000 - (200 - SUSPENDS), work.ended)

    def test_preempted_lease_restarts_without_suspension(self):
        run = Run(1, Settings(suspension=False))
        work = run.submit(lease('b', 1, 1000))
        reserved = run.submit(
            lease('r', 1, 100, start=200, preemptible=False), at=100
        )
        run.until(3000)
        self.assertEqual((200, 300), run_times(reserved))
        self.assertEqual((1, (300, 1300)), (work.requeues, run_times(work)))

    def test_preemption_policy_none_protects_running_leases(self):
        run = Run(1, Settings(preemption=NoPreemption()))
        run.submit(lease('b', 1, 1000))
        reserved = run.submit(lease('r', 1, 100, start=200, preemptible=False))
        self.assertIs(LeaseState.REJECTED, reserved.state)

    def test_lease_that_is_not_preemptible_keeps_its_hosts(self):
        run = Run(1)
        run.submit(lease('b', 1, 1000, preemptible=False))
        reserved = run.submit(lease('r', 1, 100, start=200, preemptible=False))
        self.assertIs(LeaseState.REJECTED, reserved.state)

    def test_reservation_too_soon_for_a_suspension_is_rejected(self):
        run = Run(1)
        work = run.submit(lease('b', 1, 1000))
        reserved = run.submit(
            lease('r', 1, 100, start=120, preemptible=False), at=100
        )
        self.assertIs(LeaseState.REJECTED, reserved.state)
        run.until(2000)
        self.assertEqual((0, 1000), run_times(work))

    def test_lease_with_the_least_run_time_is_preempted(self):
        run = Run(2)
        old = run.submit(lease('a', 1, 1000))
        young = run.submit(lease('b', 1, 1000), at=50)
        run.submit(lease('r', 1, 100, start=200, preemptible=False), at=100)
        run.until(5000)
        self.assertEqual((0, 1), (old.suspends, young.suspends))

    def test_leases_with_the_least_run_time_are_preempted(self):
        for hosts in range(1, 7):
            with self.subTest(hosts=hosts):
                run = Run(6)
                running = [
                    run.submit(lease(name, 1, 1000), at=time)
                    for time, name in enumerate('abcdef')
                ]
                run.submit(
                    lease('r', hosts, 100, start=100, preemptible=False), at=50
                )
                run.until(150)
                self.assertEqual(
                    [0] * (6 - hosts) + [1] * hosts,
                    [one.suspends for one in running],
                )

    def test_no_more_leases_are_preempted_than_needed(self):
        """The first candidate is too small to help."""
        run = Run(3)
        wide = run.submit(lease('a', 2, 1000))
        run.until(10)
        run.submit(lease('b', 1, 1000), at=10)
        small = run.submit(lease('c', 1, 1000), at=10)
        run.submit(lease('r', 3, 100, start=200, preemptible=False), at=100)
        other = run.submit(lease('s', 1, 100, start=5000, preemptible=False))
        run.until(9000)
        self.assertEqual(1, wide.suspends)
        self.assertEqual(5000, other.started)
        self.assertEqual(1000, small.served)


class SuspensionTest(unittest.TestCase):
    def test_saved_memory_moves_to_other_hosts(self):
        run = Run(2)
        work = reserve_its_host(run)
        # Its memory moves while the reservation runs, and is loaded after it.
        self.assertEqual(300 + SUSPENDS + 1000 - (200 - SUSPENDS), work.ended)
        self.assertIn('migrating', run.story['b'])

    def test_lease_resumes_on_the_same_hosts_without_migration(self):
        run = Run(2, Settings(durations=OperationTimes(migration_rate=None)))
        work = reserve_its_host(run)
        self.assertNotIn('migrating', run.story['b'])
        self.assertEqual(1300 + SUSPENDS + 1000 - (200 - SUSPENDS), work.ended)

    def test_suspensions_on_one_host_do_not_overlap(self):
        run = Run(1, vms=2)
        leases = [run.submit(lease(name, 1, 1000)) for name in 'ab']
        run.submit(lease('r', 2, 100, start=200, preemptible=False), at=50)
        run.until(200)
        self.assertEqual(
            [200 - 2 * SUSPENDS, 200 - SUSPENDS],
            sorted(one.served for one in leases),
        )

    def test_suspensions_to_one_storage_do_not_overlap(self):
        run = Run(2, Settings(durations=OperationTimes(shared=True)))
        leases = [run.submit(lease(name, 1, 1000)) for name in 'ab']
        run.submit(lease('r', 2, 100, start=200, preemptible=False), at=50)
        run.until(200)
        self.assertEqual(
            [200 - 2 * SUSPENDS, 200 - SUSPENDS],
            sorted(one.served for one in leases),
        )


class DeadlineTest(unittest.TestCase):
    def test_deadline_lease_begins_as_early_as_possible(self):
        run = Run(1)
        run.submit(lease('r', 1, 100, start=50, preemptible=False))
        one = run.submit(lease('d', 1, 100, deadline=300))
        run.until(1000)
        self.assertEqual((150, 250), run_times(one))

    def test_lease_that_cannot_meet_its_deadline_is_rejected(self):
        run = Run(1)
        run.submit(lease('r', 1, 100, start=50, preemptible=False))
        one = run.submit(lease('d', 1, 100, deadline=249))
        self.assertIs(LeaseState.REJECTED, one.state)

    def test_more_urgent_lease_is_planned_first(self):
        """Leases that have not begun are re-planned."""
        run = Run(1, Settings(slack=1.0))
        run.submit(lease('r', 1, 100, start=0, preemptible=False))
        patient = run.submit(lease('d', 1, 100, deadline=1000))
        self.assertIs(LeaseState.SCHEDULED, patient.state)
        urgent = run.submit(lease('e', 1, 100, deadline=200))
        run.until(1000)
        self.assertEqual((100, 200), run_times(urgent))
        self.assertEqual((200, 300), run_times(patient))

    def test_replanning_orders(self):
        """The lease with the most slack may have to be first."""
        for orders, state in (
            ((), LeaseState.REJECTED),
            (('slack',), LeaseState.REJECTED),
            (('deadline',), LeaseState.SCHEDULED),
            (('slack', 'deadline'), LeaseState.SCHEDULED),
        ):
            with self.subTest(orders=orders, state=state):
                run = Run(
                    1, Settings(slack=1.0, deadline_replanning_orders=orders)
                )
                run.submit(lease('r', 1, 100, start=0, preemptible=False))
                run.submit(lease('long', 1, 1000, deadline=1210))
                self.assertIs(
                    state,
                    run.submit(lease('short', 1, 100, deadline=1150)).state,
                )

    def test_urgent_lease_of_the_same_second_begins_first(self):
        """A lease that begins in this second counts as not begun."""
        run = Run(1)
        patient, urgent = (
            lease('d', 1, 2, deadline=3),
            lease('e', 1, 1, deadline=2),
        )
        run.submit(patient, urgent)
        run.until(10)
        self.assertEqual(
            ((0, 1), (1, 3)), (run_times(urgent), run_times(patient))
        )

    def test_failed_replanning_changes_nothing(self):
        run = Run(1, Settings(slack=1.0))
        run.submit(lease('r', 1, 100, start=0, preemptible=False))
        first = run.submit(lease('d', 1, 100, deadline=250))
        second = run.submit(lease('e', 1, 100, deadline=260))
        self.assertIs(LeaseState.REJECTED, second.state)
        self.assertEqual(['pending', 'rejected'], run.story['e'])
        self.assertEqual(['pending', 'scheduled'], run.story['d'])
        run.until(1000)
        self.assertEqual((100, 200), run_times(first))

    def test_preempted_lease_with_slack_meets_its_deadline(self):
        run = Run(1, Settings(preemption=MostSlack()))
        patient = run.submit(lease('d', 1, 1000, deadline=5000))
        urgent = run.submit(lease('e', 1, 100, start=400, deadline=520), at=10)
        run.until(6000)
        self.assertEqual((400, 500), run_times(urgent))
        self.assertEqual(1000, patient.served)
        self.assertLessEqual(patient.ended, 5000)
        self.assertEqual(1, patient.suspends)
        self.assertEqual(
            [
                'pending',
                'scheduled',
                'ready',
                'active',
                'suspending',
                'suspended-pending',
                'suspended-queued',
                'suspended-scheduled',
                'resuming',
                'resumed-ready',
                'active',
                'done',
            ],
            run.story['d'],
        )

    def test_lease_that_would_miss_its_deadline_is_not_preempted(self):
        run = Run(1, Settings(preemption=MostSlack()))
        run.submit(lease('d', 1, 1000, deadline=1100))
        urgent = run.submit(lease('e', 1, 100, start=400, deadline=520), at=10)
        self.assertIs(LeaseState.REJECTED, urgent.state)
