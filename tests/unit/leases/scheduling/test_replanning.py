# SPDX-License-Identifier: Apache-2.0

"""Re-planning after overruns, and for withheld capacity."""

import random
import unittest

import numpy as np

from secondary_scheduler.conf.leases import OPTS
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.lease import Lease, NodeSet, Terms
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.selection import InOrder
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.model.lease_states import (
    IllegalTransitionError,
    LeaseState,
)
from secondary_scheduler.simulation.leases import figures
from secondary_scheduler.simulation.leases.run import LeaseSimulation
from secondary_scheduler.simulation.workloads.requests import TraceRequest
from tests.unit.leases.scheduling.builders import (
    NEED,
    RESOURCES,
    SUSPENDS,
    Run,
    lease,
    run_times,
    site,
    terms,
    withheld,
)


def suspending(hosts=1, **reserved):
    """Return a run in which a is suspended for r, which begins at 100."""
    run = Run(hosts)
    first, other = (
        lease('a', hosts, 1000),
        lease('r', hosts, 50, start=100, preemptible=False, **reserved),
    )
    run.submit(first, other)
    run.until(100 - SUSPENDS)
    assert first.state is LeaseState.SUSPENDING
    return run, first, other


def on(*vms):
    """Return the placement of a lease of one node set."""
    return (np.array(vms),)


class MoveTest(unittest.TestCase):
    """Leases that a decision has migrated, as the scheduler observes it."""

    def move(self, memory=1024, **terms_):
        """Move a lease to host 1, where another one is to begin at 300."""
        run = Run(Site(RESOURCES, np.array([NEED, (100, memory)])),
                  Settings(selection=InOrder()))
        moved = run.submit(lease('a', 1, 1000, **terms_))
        coming = run.submit(Lease('r', Terms(
            (NodeSet(1, (100, memory)),), 50, start=300, preemptible=False),
            0))
        self.assertEqual(([0], [1]), (moved.hosts.tolist(),
                                      coming.booking.slot.hosts.tolist()))
        run.scheduler.record_move(moved, on(0, 1), 10)
        run.until(3000)
        self.assertEqual((300, 350), run_times(coming))
        self.assertEqual(1000, moved.served)
        return moved.suspends, coming.hosts.tolist()

    def test_guaranteed_start_gets_other_hosts(self):
        for preemptible in (True, False):
            with self.subTest(preemptible):
                self.assertEqual((0, [0]), self.move(preemptible=preemptible))

    def test_moved_lease_is_suspended_before_a_guaranteed_start(self):
        self.assertEqual((1, [1]), self.move(2048))

    def test_lease_with_a_deadline_gets_other_hosts(self):
        run = Run(2)
        moved = run.submit(lease('a', 1, 1000, preemptible=False))
        coming = run.submit(lease('d', 1, 300, start=400, deadline=1500))
        self.assertEqual([1], coming.booking.slot.hosts.tolist())
        run.scheduler.record_move(moved, on(0, 1), 10)
        run.until(2000)
        self.assertEqual(([0], (400, 700)), (coming.hosts.tolist(),
                                             run_times(coming)))

    def test_planned_start_moves_away_from_a_moved_lease(self):
        run = Run(3, Settings(suspension=False))
        moved, first, second, wide = leases = (
            lease('a', 1, 1000), lease('b', 1, 100), lease('c', 1, 100),
            lease('w', 2, 50))
        run.submit(*leases)
        self.assertEqual([1, 2], wide.booking.slot.hosts.tolist())
        run.finish(second, 50)
        run.scheduler.record_move(moved, on(0, 0, 1), 60)
        run.scheduler.fill()
        self.assertEqual(([0, 1], 100), (
            wide.booking.slot.hosts.tolist(), wide.booking.begin))
        run.until(200)
        self.assertEqual((100, 150), run_times(wide))

    def test_moves_that_swap_hosts_change_no_other_booking(self):
        run = Run(2)
        one, two, coming = (lease('a', 1, 200), lease('b', 1, 200),
                            lease('r', 2, 50, start=250, preemptible=False))
        run.submit(one, two, coming)
        before = coming.booking
        run.scheduler.record_move(one, two.booking.vms, 10)
        run.scheduler.record_move(two, on(1, 0), 10)
        self.assertIs(before, coming.booking)
        run.until(300)
        self.assertEqual([(0, 200), (0, 200), (250, 300)], [
            run_times(each) for each in (one, two, coming)])


def mixed(number, seed=7):
    """Draw reservations, and best-effort leases preempted by them.

    Best-effort leases request somewhat more than 16 hosts have.
    """
    draw = random.Random(seed)
    end = 667 * number
    asked = []
    for index in range(number // 2):
        one = terms(draw.randint(1, 8), draw.randint(600, 20_000))
        asked.append(
            TraceRequest(
                f'b{index}',
                draw.randrange(end),
                one,
                draw.randint(300, one.duration),
            )
        )
    for index in range(number):
        arrival = draw.randrange(end)
        asked.append(
            TraceRequest(
                f'r{index}',
                arrival,
                terms(
                    draw.randint(1, 4),
                    1800,
                    preemptible=False,
                    start=arrival + draw.randint(600, 7200),
                ),
                1800,
            )
        )
    return asked


def late(margin, number):
    """Return the share of late reservations, with lognormal errors of 20 %."""
    errors = np.random.default_rng(3)
    outcomes = LeaseSimulation(
        site(16),
        Settings(durations=OperationTimes(margin=margin)),
        mixed(number),
        lambda: float(errors.lognormal(0.0, 0.2)),
    ).run()
    found = figures.figures(outcomes)
    accepted = found['reservations_accepted']
    assert 0.9 * number < accepted < found['suspends']
    assert all(
        one.lease.served == one.request.runs
        for one in outcomes
        if one.lease.state is not LeaseState.REJECTED
    )
    return found['reservations_late'] / accepted


class OverrunTest(unittest.TestCase):
    def test_early_end_of_a_suspension_frees_its_hosts(self):
        run, first, other = suspending()
        run.scheduler.end_suspension(first, 90)
        run.scheduler.fill()
        self.assertIs(LeaseState.SUSPENDED_SCHEDULED, first.state)
        quick = lease('b', 1, 10)
        run.submit(quick, at=90)
        run.until(2000)
        self.assertEqual(90, quick.started)
        self.assertEqual(100, other.started)
        self.assertEqual(1000, first.served)

    def test_reservation_begins_when_an_overrun_ends(self):
        run, first, other = suspending()
        run.scheduler.extend_suspension(first, 105)
        run.until(2000)
        self.assertEqual((105, 155), (other.started, other.ended))
        self.assertEqual(155 - 105, first.suspended_s)
        self.assertEqual(1000, first.served)
        self.assertEqual(50, other.served)

    def test_only_leases_on_the_same_hosts_are_late(self):
        run = Run(3)
        first = lease('a', 2, 1000)
        late, just = (
            lease(name, number, 50, start=100, preemptible=False)
            for name, number in (('r', 2), ('s', 1))
        )
        run.submit(first, just, late)
        run.until(100 - SUSPENDS)
        self.assertIs(LeaseState.SUSPENDING, first.state)
        run.scheduler.extend_suspension(first, 130)
        run.until(3000)
        self.assertEqual(100, just.started)
        self.assertEqual(130, late.started)

    def test_other_hosts_are_used_if_free(self):
        run = Run(2, Settings())
        first = lease('a', 1, 1000)
        block = lease('b', 1, 80)
        reserved = lease('r', 1, 50, start=100, preemptible=False)
        wide = lease('w', 1, 50, start=100, preemptible=False)
        run.submit(first, block, reserved, wide)
        run.until(100 - SUSPENDS)
        run.scheduler.extend_suspension(first, 130)
        run.until(3000)
        self.assertEqual([100, 130], sorted((reserved.started, wide.started)))

    def test_deadline_is_met_after_an_overrun_if_possible(self):
        run = Run(1)
        first = lease('a', 1, 1000)
        urgent = lease('d', 1, 100, start=100, deadline=210)
        run.submit(first, urgent)
        run.until(100 - SUSPENDS)
        self.assertIs(LeaseState.SUSPENDING, first.state)
        run.scheduler.extend_suspension(first, 105)
        run.until(3000)
        self.assertEqual((105, 205), (urgent.started, urgent.ended))

    def test_only_a_suspension_can_be_extended(self):
        run, first, other = suspending()
        with self.assertRaises(IllegalTransitionError):
            run.scheduler.extend_suspension(other, 200)
        with self.assertRaisesRegex(ValueError, 'planned'):
            run.scheduler.extend_suspension(first, 100)

    def test_default_margin_keeps_reservations_in_time(self):
        """At most one reservation in a hundred is late, of some 1,400."""
        (default,) = (
            one.default for one in OPTS if one.dest == 'suspend_margin'
        )
        self.assertLessEqual(late(default, 1500), 0.01)
        self.assertGreater(late(0.3, 300), 0.05)
        self.assertGreater(late(0.0, 300), 0.3)


class WithheldCapacityTest(unittest.TestCase):
    def test_no_lease_begins_on_withheld_capacity(self):
        run = Run(2, Settings(suspension=False))
        run.scheduler.withhold([withheld(0, 100, 0, 1)], 0)
        one = lease('a', 1, 50)
        run.submit(one)
        run.until(200)
        self.assertEqual(100, one.started)

    def test_best_effort_lease_is_suspended_in_time(self):
        run = Run(1)
        one = lease('a', 1, 200)
        run.submit(one)
        run.until(10)
        run.scheduler.withhold([withheld(100, 300, 0)], 10)
        run.scheduler.fill()
        run.until(1000)
        self.assertEqual((1, 200), (one.suspends, one.served))
        self.assertEqual(200, one.suspended_s)

    def test_running_lease_is_suspended_at_once(self):
        run = Run(1)
        one = lease('a', 1, 200)
        run.submit(one)
        run.until(10)
        run.scheduler.withhold([withheld(10, 300, 0)], 10)
        run.scheduler.fill()
        run.until(11 + SUSPENDS)
        self.assertIs(LeaseState.SUSPENDED_SCHEDULED, one.state)
        self.assertEqual(11, one.served)

    def test_reservation_is_relocated_delayed_or_failed(self):
        run = Run(2)
        elsewhere = lease('a', 1, 50, start=100, preemptible=False)
        run.submit(elsewhere)
        (host,) = elsewhere.booking.slot.hosts.tolist()
        run.scheduler.withhold([withheld(50, 500, host)], 0)
        self.assertEqual(100, elsewhere.booking.begin)
        self.assertEqual([1 - host], elsewhere.booking.slot.hosts.tolist())
        run.scheduler.withhold([withheld(50, 500, 0, 1)], 0)
        self.assertEqual(500, elsewhere.booking.begin)
        run.scheduler.withhold([withheld(50, 2**60, 0, 1)], 0)
        self.assertIs(LeaseState.FAILED, elsewhere.state)
        self.assertIn('guaranteed start', elsewhere.reason)

    def test_running_immediate_lease_keeps_its_hosts(self):
        run = Run(1)
        one = lease('a', 1, 100, immediate=True, preemptible=False)
        run.submit(one)
        run.until(10)
        run.scheduler.withhold([withheld(10, 300, 0)], 10)
        run.until(500)
        self.assertEqual((LeaseState.DONE, 100), (one.state, one.ended))

    def test_withheld_capacity_replaces_the_former_one(self):
        run = Run(1)
        run.scheduler.withhold([withheld(0, 1000, 0)], 0)
        run.scheduler.withhold([withheld(50, 100, 0)], 0)
        run.submit(
            lease('a', 1, 10, start=20, preemptible=False),
            lease('b', 1, 10, start=60, preemptible=False),
        )
        run.until(200)
        self.assertEqual(
            ['done', 'rejected'], [run.story[name][-1] for name in 'ab']
        )
        tenants, free, _ = run.scheduler.table.state_at(300)
        self.assertFalse(tenants.any())
        self.assertEqual([list(NEED)], free.T.tolist())
