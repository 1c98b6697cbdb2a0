# SPDX-License-Identifier: Apache-2.0

"""Reports and requests to the scheduler of a site."""

import unittest

import numpy as np

from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.planned_starts import (
    UnpausableError,
)
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.types import NEVER
from secondary_scheduler.model.lease_states import (
    IllegalTransitionError,
    LeaseState,
)
from tests.unit.leases.scheduling.builders import (
    NEED,
    SUSPENDS,
    Run,
    lease,
    run_times,
    withheld,
)


def adopt(run, host, name='a', at=0):
    """Adopt a running VM; return its lease."""
    run.until(at)
    one = lease(name, 1, NEVER, at)
    vms = np.zeros(run.scheduler.table.hosts, dtype=np.int64)
    vms[host] = 1
    run.scheduler.adopt(one, (vms,), at)
    run.scheduler.fill()
    return one


class FinishTest(unittest.TestCase):
    def test_hosts_are_free_after_the_shutdown_of_vms(self):
        run = Run(
            1,
            Settings(suspension=False, durations=OperationTimes(shutdown=10)),
        )
        first, second = lease('a', 1, 100), lease('b', 1, 100)
        run.submit(first, second)
        run.finish(first, 60)
        run.until(300)
        self.assertEqual((0, 60), run_times(first))
        self.assertEqual((70, 170), run_times(second))

    def test_only_a_running_lease_can_finish(self):
        run = Run(1)
        run.submit(lease('a', 1, 10))
        waiting = run.submit(lease('b', 1, 10))
        with self.assertRaisesRegex(
            IllegalTransitionError, 'it is suspended|queued|scheduled'
        ):
            run.scheduler.finish(waiting, 0)


class CancelTest(unittest.TestCase):
    def test_cancelled_lease_releases_its_hosts(self):
        run = Run(1, Settings(durations=OperationTimes(shutdown=10)))
        first, second = lease('a', 1, 1000), lease('b', 1, 50)
        run.submit(first, second)
        run.until(30)
        run.scheduler.cancel(first, 30)
        run.scheduler.fill()
        run.until(200)
        self.assertIs(LeaseState.CANCELLED, first.state)
        self.assertEqual(30, first.served)
        self.assertEqual((30, 40), (first.ended, second.started))

    def test_leases_that_have_not_begun_can_be_cancelled(self):
        run = Run(1, Settings(suspension=False))
        leases = [
            lease('a', 1, 100),
            lease('b', 1, 50),
            lease('c', 1, 50),
            lease('r', 1, 10, start=500, preemptible=False),
        ]
        run.submit(*leases)
        for one in leases[1:]:
            run.scheduler.cancel(one, 10)
        run.scheduler.fill()
        late = lease('d', 1, 1000)
        run.submit(late, at=20)
        run.until(2000)
        self.assertEqual(100, late.started)
        self.assertEqual({'cancelled'}, {str(one.state) for one in leases[1:]})
        with self.assertRaises(IllegalTransitionError):
            run.scheduler.cancel(leases[0], 2000)


class PauseTest(unittest.TestCase):
    def test_paused_lease_waits_until_it_is_unpaused(self):
        run = Run(1)
        first, second = lease('a', 1, 1000), lease('b', 1, 50)
        run.submit(first, second)
        run.until(99)
        run.scheduler.pause(first, 99)
        run.scheduler.fill()
        run.until(500)
        self.assertIs(LeaseState.SUSPENDED_QUEUED, first.state)
        self.assertEqual(100, first.served)
        self.assertEqual(100 + SUSPENDS, second.started)
        run.scheduler.unpause(first, 500)
        run.scheduler.fill()
        run.until(5000)
        self.assertIs(LeaseState.DONE, first.state)
        self.assertEqual(1000, first.served)

    def test_guaranteed_starts_cannot_be_paused(self):
        run = Run(1)
        reserved = lease('r', 1, 10, start=500, preemptible=False)
        run.submit(reserved)
        with self.assertRaisesRegex(UnpausableError, 'cancelled'):
            run.scheduler.pause(reserved, 0)
        fixed = lease('b', 1, 100, preemptible=False)
        run.submit(fixed)
        with self.assertRaisesRegex(UnpausableError, 'cannot be suspended'):
            run.scheduler.pause(fixed, 10)


class AdoptTest(unittest.TestCase):
    def test_adopted_lease_runs_on_its_host_without_end(self):
        run = Run(2)
        one = adopt(run, 1)
        self.assertIs(LeaseState.ACTIVE, one.state)
        self.assertEqual([0, 1], one.booking.vms[0].tolist())
        self.assertEqual((NEVER, NEVER), (one.booking.down, one.booking.end))
        self.assertEqual(
            [1, 0], run.scheduler.table.free_vms(NEED, 0, NEVER).tolist()
        )
        run.finish(one, 50)
        self.assertIs(LeaseState.DONE, one.state)
        self.assertEqual(50, one.served)
        self.assertEqual(
            [1, 1], run.scheduler.table.free_vms(NEED, 50, NEVER).tolist()
        )

    def test_adopted_lease_is_preempted_and_resumes(self):
        run = Run(1)
        one = adopt(run, 0)
        exact = run.submit(lease('b', 1, 100, start=200), at=10)
        self.assertIs(LeaseState.SCHEDULED, exact.state)
        run.until(200)
        self.assertIs(LeaseState.SUSPENDED_SCHEDULED, one.state)
        run.until(1000)
        self.assertEqual(200, exact.started)
        self.assertIs(LeaseState.ACTIVE, one.state)
        self.assertEqual(NEVER, one.booking.down)
        self.assertEqual(1, one.resumes)

    def test_adopted_lease_is_suspended_before_a_reservation(self):
        run = Run(1)
        run.submit(lease('b', 1, 100, start=200))
        one = adopt(run, 0, at=50)
        self.assertTrue(one.booking.saves)
        self.assertEqual(200, one.booking.end)
        self.assertEqual(200 - SUSPENDS, one.booking.down)

    def test_adopted_lease_without_room_is_suspended_at_once(self):
        run = Run(1)
        run.submit(lease('b', 1, 500, immediate=True, preemptible=False))
        one = adopt(run, 0, at=50)
        run.until(60 + SUSPENDS)
        self.assertIs(LeaseState.SUSPENDED_SCHEDULED, one.state)
        run.until(1000)
        self.assertIs(LeaseState.ACTIVE, one.state)

    def test_withheld_capacity_does_not_preempt_an_adopted_lease(self):
        run = Run(1)
        run.scheduler.withhold([withheld(0, NEVER, 0)], 0)
        one = adopt(run, 0)
        self.assertEqual(NEVER, one.booking.end)
        run.scheduler.withhold([], 0)
        self.assertEqual(
            [0], run.scheduler.table.free_vms(NEED, 0, NEVER).tolist()
        )

    def test_adopted_lease_is_not_preempted_without_suspension(self):
        """It would restart, and never end."""
        run = Run(1, Settings(suspension=False))
        one = adopt(run, 0)
        exact = run.submit(lease('b', 1, 100, start=200), at=10)
        self.assertIs(LeaseState.REJECTED, exact.state)
        with self.assertRaises(UnpausableError):
            run.scheduler.pause(one, 20)
        self.assertIs(LeaseState.ACTIVE, one.state)
