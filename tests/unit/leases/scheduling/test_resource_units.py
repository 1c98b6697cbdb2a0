# SPDX-License-Identifier: Apache-2.0

"""Units of resources (Sotomayor 2010, section 3.1)."""

import itertools
import unittest

import hypothesis
from hypothesis import strategies as st
import numpy as np

from secondary_scheduler.leases.scheduling import resource_units
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.lease import (
    Lease,
    NodeSet,
    Terms,
    TermsError,
)
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.types import NEVER
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.scheduling.builders import RESOURCES, Run


def site(*hosts):
    """Return hosts with these CPUs each, and 1024 MB for each of them."""
    cpus = np.array(hosts)
    capacity = np.column_stack(
        (cpus.sum(axis=1), 1024 * (cpus > 0).sum(axis=1))
    )
    return Site(RESOURCES, capacity, units={0: cpus})


def nodes(number, *parts):
    """Return VMs that take these parts of different CPUs."""
    return NodeSet(
        number,
        (sum(parts), 256),
        units={0: parts} if len(parts) > 1 else {},
    )


def lease(name, *sets, duration=100, **other):
    return Lease(name, Terms(sets, duration, **other), 0)


def taken(one):
    """Return the amounts a lease takes of the CPUs of its hosts."""
    return one.booking.slot.amounts[len(RESOURCES) :].T.tolist()


def fits(cpus, *parts):
    return resource_units.count_fitting(
        np.array([cpus]),
        np.array(sorted(parts, reverse=True)),
        np.array([sum(cpus) // sum(parts)]),
    ).tolist()[0]


def alone(cpus, parts):
    """Yield all possible rests of CPUs after one VM."""
    for chosen in itertools.permutations(range(len(cpus)), len(parts)):
        left = list(cpus)
        for index, part in zip(chosen, parts, strict=True):
            left[index] -= part
        if min(left) >= 0:
            yield tuple(left)


def every(cpus, parts, number):
    """Return all possible rests of CPUs after some VMs, one by one."""
    found = {tuple(cpus)}
    for _ in range(number):
        found = {left for cpu in found for left in alone(cpu, parts)}
    return found


class AssignmentTest(unittest.TestCase):
    def test_number_of_vms_that_fit(self):
        for cpus, parts, number in (
            ((100,), (80,), 1),
            ((40, 40), (80,), 0),
            ((40, 40), (40,), 2),
            ((100,) * 8, (100,), 8),
            ((100,) * 8, (100,) * 8, 1),
            ((100,) * 8, (100,) * 9, 0),
            ((100,) * 8, (200,), 0),
            ((100,) * 8, (60,), 8),
            # The parts of a VM are taken of different units.
            ((200,), (100, 100), 0),
            ((100, 200), (100, 100), 1),
            ((200, 200), (100, 100), 2),
            # Placed one by one on the first units, only two would fit.
            ((100,) * 3, (50, 50), 3),
            ((100, 100), (60, 40), 2),
            ((100, 100), (60, 60), 1),
        ):
            with self.subTest(cpus=cpus, parts=parts, number=number):
                self.assertEqual(number, fits(cpus, *parts))

    @hypothesis.given(
        st.lists(st.integers(0, 5), min_size=1, max_size=4),
        st.lists(st.integers(1, 3), min_size=1, max_size=3),
    )
    def test_assignment_is_one_of_all_possible_ones(self, cpus, parts):
        """Parts that are assigned together can be assigned VM by VM."""
        number = fits(cpus, *parts)
        parts = sorted(parts, reverse=True)
        left = every(cpus, parts, number)
        took = resource_units.amounts_taken(
            np.array([cpus]), np.array(parts), np.array([number])
        )[0]
        self.assertIn(tuple(np.array(cpus) - took), left)
        if len(set(parts)) == 1:
            self.assertFalse(every(cpus, parts, number + 1))

    def test_vm_without_room_overdraws_the_first_unit(self):
        self.assertEqual(
            [[80, 0]],
            resource_units.amounts_taken(
                np.array([[40, 40]]), np.array([80]), np.array([1])
            ).tolist(),
        )


class SchedulingTest(unittest.TestCase):
    def test_lease_that_does_not_fit_the_empty_site_is_refused(self):
        run = Run(site((100, 100), (200, 0)))
        for one in (nodes(1, 100, 100), nodes(1, 200)):
            run.scheduler.quote(Terms((one,), 10))
        for one, says in (
            (
                nodes(2, 200),
                'CPU 200, Memory 256 do not fit: the site has room for 1',
            ),
            (nodes(2, 100, 100), r'2 nodes of CPU 100 \+ 100'),
            (nodes(1, 100, 60, 40), 'room for 0'),
        ):
            with self.assertRaisesRegex(TermsError, says):
                run.scheduler.quote(Terms((one,), 10))

    def test_two_units_are_refused_where_hosts_have_one(self):
        run = Run(2)
        one = run.submit(
            lease('a', NodeSet(1, (100, 256), units={0: (50, 50)}))
        )
        self.assertIs(LeaseState.REJECTED, one.state)
        self.assertIn('CPU 50 + 50', one.reason)

    def test_units_that_do_not_add_up_are_refused(self):
        with self.assertRaisesRegex(TermsError, 'units of CPU do not add up'):
            Site(
                RESOURCES,
                np.array([[200, 1024]]),
                units={0: np.array([[100, 50]])},
            )

    def test_first_unit_is_filled_first(self):
        run = Run(site((100, 100, 100)))
        one, two = lease('a', nodes(3, 50)), lease('b', nodes(1, 50, 50))
        run.submit(one)
        run.submit(two)
        self.assertEqual([[100, 50, 0]], taken(one))
        self.assertEqual([[0, 50, 50]], taken(two))

    def test_free_parts_of_units_are_not_combined(self):
        run = Run(site((100, 100)), Settings(suspension=False))
        first = run.submit(lease('a', nodes(2, 60)))
        self.assertEqual([[60, 60]], taken(first))
        whole, small = lease('b', nodes(1, 80)), lease('c', nodes(2, 40))
        run.submit(whole, small)
        self.assertEqual((100, 0), (whole.booking.begin, small.booking.begin))

    def test_one_unit_must_be_free_for_the_whole_time(self):
        """One CPU has enough from 100 on, the other until 90."""
        run = Run(site((100, 100)))
        run.submit(
            lease('a', nodes(1, 60), start=0, preemptible=False),
            lease('b', nodes(1, 60), start=90, preemptible=False),
        )
        for start, end, cpu, accepted in (
            (20, 90, 50, True),
            (100, 150, 50, True),
            (40, 150, 50, False),
            (20, 91, 50, False),
            (99, 150, 50, False),
            (40, 150, 40, True),
        ):
            self.assertEqual(
                accepted,
                run.scheduler.quote(
                    Terms(
                        (nodes(1, cpu),),
                        end - start,
                        start=start,
                        preemptible=False,
                    )
                ).accepted,
                (start, end),
            )

    def test_next_possible_start_is_when_one_unit_is_free(self):
        run = Run(site((100, 100)))
        run.submit(
            lease('a', nodes(1, 60), start=0, duration=70, preemptible=False),
            lease('b', nodes(1, 60), start=0, duration=50, preemptible=False),
        )
        asked = Terms((nodes(1, 80),), 30, immediate=True, preemptible=False)
        offer = run.scheduler.quote(asked)
        self.assertFalse(offer.accepted)
        self.assertEqual(50, offer.booking.begin)

    def test_lease_on_another_unit_is_not_preempted(self):
        run = Run(site((100, 100)))
        three = [
            lease('a', nodes(1, 60)),
            lease('b', nodes(1, 60)),
            lease('c', nodes(1, 30)),
        ]
        for time, one in enumerate(three):
            run.submit(one, at=time)
        self.assertEqual(
            [[[60, 0]], [[0, 60]], [[30, 0]]], [taken(one) for one in three]
        )
        reserved = run.submit(
            lease('d', nodes(1, 70), start=60, duration=20, preemptible=False),
            at=20,
        )
        run.until(1000)
        # The youngest would be preempted first.
        self.assertEqual([0, 1, 0], [one.suspends for one in three])
        self.assertEqual(60, reserved.started)

    def test_largest_node_set_is_placed_first(self):
        run = Run(site((100, 60)))
        one = run.submit(lease('a', nodes(2, 30), nodes(1, 100)))
        # The largest node set is placed first.
        self.assertEqual([[100, 60]], taken(one))
        run.until(200)
        self.assertTrue(
            (
                run.scheduler.table.least_free(200, NEVER)
                == site((100, 60)).columns
            ).all()
        )

    def test_lease_resumes_on_its_host_on_any_unit(self):
        run = Run(
            site((100, 100)),
            Settings(
                durations=OperationTimes(
                    suspend_rate=256, resume_rate=256, migration_rate=None
                )
            ),
        )
        one = run.submit(lease('a', nodes(1, 80)))
        run.submit(
            lease('b', nodes(2, 100), start=50, duration=20, preemptible=False)
        )
        run.submit(
            lease(
                'c', nodes(1, 100), start=70, duration=500, preemptible=False
            )
        )
        run.until(80)
        self.assertEqual([[0, 80]], taken(one))
        run.until(1000)
        self.assertEqual((LeaseState.DONE, 1), (one.state, one.suspends))

    def test_moved_lease_takes_units_of_its_new_host(self):
        run = Run(site((100, 100), (100, 100)))
        one, two = lease('a', nodes(1, 60)), lease('b', nodes(1, 60, 40))
        run.submit(one)
        run.submit(two)
        self.assertEqual(([0], [1]), (one.hosts.tolist(), two.hosts.tolist()))
        run.scheduler.record_move(one, two.booking.vms, 10)
        self.assertEqual([[0, 60]], taken(one))
        self.assertEqual(
            [[100, 100], [40, 0]],
            run.scheduler.table.least_free(10, 20)[
                :, len(RESOURCES) :
            ].tolist(),
        )
