# SPDX-License-Identifier: Apache-2.0

"""Transfers and pools of disk images."""

import dataclasses
import unittest

import numpy as np

from secondary_scheduler.leases.scheduling.images import Preparation
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.policies import MostSlack
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.scheduling.builders import Run, lease

#: At 10 MB/s an image of 1000 MB takes 100 s.
EACH = Preparation(10.0, joins=False)
JOINED = Preparation(10.0)
POOLED = Preparation(10.0, pool_mb=2000)


def with_image(name, nodes, duration, image='i', **other):
    return lease(name, nodes, duration, image=image, image_mb=1000, **other)


def run(hosts, preparation, **other):
    return Run(hosts, Settings(preparation=preparation, **other))


def sent(one):
    return [
        (each.image, each.start, each.end)
        for each in one.scheduler._state.images.transfers
    ]


class TransferTest(unittest.TestCase):
    def test_lease_begins_when_its_image_has_arrived(self):
        world = run(3, EACH)
        one = with_image('a', 2, 50)
        world.submit(one)
        self.assertEqual([('i', 0, 100)], sent(world))
        world.until(500)
        self.assertEqual((100, 150), (one.started, one.ended))
        self.assertEqual(
            [
                'pending',
                'queued',
                'scheduled',
                'preparing',
                'ready',
                'active',
                'done',
            ],
            world.story['a'],
        )

    def test_one_image_is_transferred_at_a_time(self):
        world = run(3, EACH)
        leases = [with_image(name, 1, 50) for name in 'abc']
        world.submit(*leases)
        world.until(1000)
        self.assertEqual([100, 200, 300], [one.started for one in leases])

    def test_leases_with_the_same_image_share_a_transfer(self):
        world = run(3, JOINED)
        leases = [
            with_image('a', 1, 50),
            with_image('b', 1, 50, image='j'),
            with_image('c', 1, 50),
        ]
        world.submit(*leases)
        world.until(1000)
        # The transfer to a's host has begun, so c waits for its own.
        self.assertEqual([100, 200, 300], [one.started for one in leases])
        world = run(3, JOINED)
        leases = [
            with_image('x', 1, 50, image='j'),
            with_image('a', 1, 50),
            with_image('c', 1, 50),
        ]
        world.submit(*leases)
        world.until(1000)
        self.assertEqual([100, 200, 200], [one.started for one in leases])

    def test_transfer_time(self):
        for megabytes, rate, seconds in (
            (4096, 125.0, 33),
            (4096, 12.5, 328),
            (1, 125.0, 1),
        ):
            with self.subTest(megabytes=megabytes, rate=rate, seconds=seconds):
                one = dataclasses.replace(
                    with_image('a', 1, 1).terms, image_mb=megabytes
                )
                self.assertEqual(seconds, Preparation(rate).seconds(one))


class PoolTest(unittest.TestCase):
    def test_copy_in_the_pool_is_reused(self):
        world = run(1, POOLED)
        first, second = with_image('a', 1, 50), with_image('b', 1, 50)
        world.submit(first, second)
        world.until(1000)
        self.assertEqual((100, 150), (first.started, second.started))
        world = run(1, JOINED)
        first, second = with_image('a', 1, 50), with_image('b', 1, 50)
        world.submit(first)
        world.until(120)
        world.submit(second, at=120)
        world.until(1000)
        self.assertEqual(220, second.started)

    def test_unused_copies_are_evicted(self):
        """The pool holds two images; the first is evicted first."""
        world = run(1, POOLED)
        leases = [with_image(name, 1, 10, image=name) for name in 'abc']
        world.submit(*leases)
        world.until(500)
        again = [
            with_image('a2', 1, 10, image='a'),
            with_image('c2', 1, 10, image='c'),
        ]
        world.submit(again[1], at=1000)
        world.until(1100)
        self.assertEqual(1000, again[1].started)
        world.submit(again[0], at=2000)
        world.until(2500)
        self.assertEqual(2100, again[0].started)

    def test_used_copy_is_not_evicted(self):
        """Copies outside a full pool serve their own lease only."""
        world = run(3, dataclasses.replace(POOLED, pool_mb=1000))
        held = with_image('a', 3, 10_000, image='a')
        world.submit(held)
        world.until(200)
        self.assertIs(LeaseState.ACTIVE, held.state)
        pool = world.scheduler._state.images._pool['a']
        self.assertTrue(pool.present.all())
        self.assertTrue((pool.users == 1).all())
        world.until(20_000)
        self.assertTrue((pool.users == 0).all())

    def test_hosts_with_the_image_are_preferred(self):
        world = run(3, POOLED)
        world.submit(
            with_image('x', 1, 500, image='x'), with_image('a', 1, 10)
        )
        world.until(900)
        again = with_image('b', 1, 10)
        world.submit(again, at=1000)
        world.until(1100)
        self.assertEqual(1000, again.started)
        self.assertEqual([1], again.hosts.tolist())

    def test_failed_attempt_restores_image_locations(self):
        world = run(2, POOLED)
        world.submit(with_image('a', 2, 50))
        world.until(200)
        images = world.scheduler._state.images
        before = [
            (one.present.tolist(), one.users.tolist(), one.expires.tolist())
            for one in images._pool.values()
        ]
        refused = with_image('r', 3, 50, start=1000, preemptible=False)
        world.submit(refused)
        self.assertIs(LeaseState.REJECTED, refused.state)
        images = world.scheduler._state.images
        self.assertEqual(
            [
                (
                    one.present.tolist(),
                    one.users.tolist(),
                    one.expires.tolist(),
                )
                for one in images._pool.values()
            ],
            before,
        )

    def test_distance_of_present_and_absent_copies(self):
        world = run(3, POOLED)
        world.submit(with_image('a', 1, 10))
        world.until(120)
        world.submit(
            with_image('x', 1, 500, image='x', start=500, preemptible=False),
            with_image('b', 1, 500, start=900, preemptible=False),
            at=200,
        )
        images = world.scheduler._state.images
        asked = with_image('c', 1, 10).work
        self.assertEqual([0, 2, 2], images.distance(asked, 200).tolist())
        self.assertTrue(np.array_equal(images.ready(asked), [200, 300, 300]))


class GuaranteedStartTest(unittest.TestCase):
    def test_image_of_a_reservation_arrives_just_in_time(self):
        world = run(2, EACH)
        one = with_image('r', 2, 50, start=1000, preemptible=False)
        world.submit(one)
        self.assertIs(LeaseState.SCHEDULED, one.state)
        self.assertEqual([('i', 900, 1000)], sent(world))
        world.until(2000)
        self.assertEqual((1000, 1050), (one.started, one.ended))

    def test_reservation_is_rejected_if_its_image_would_be_late(self):
        world = run(2, EACH)
        late = with_image('r', 1, 50, start=99, preemptible=False)
        just = with_image('s', 1, 50, start=100, preemptible=False)
        world.submit(late, just)
        self.assertEqual(
            (LeaseState.REJECTED, LeaseState.PREPARING),
            (late.state, just.state),
        )

    def test_images_of_reservations_are_sent_late_by_due_time(self):
        world = run(3, EACH)
        leases = [
            with_image(name, 1, 50, image=name, start=start, preemptible=False)
            for name, start in (('a', 1000), ('b', 1050), ('c', 1020))
        ]
        world.submit(*leases)
        self.assertEqual(
            [('a', 750, 850), ('c', 850, 950), ('b', 950, 1050)], sent(world)
        )
        world.until(2000)
        self.assertEqual([1000, 1050, 1020], [one.started for one in leases])

    def test_reservation_is_rejected_if_transfers_cannot_be_packed(self):
        world = run(5, EACH)
        leases = [
            with_image(name, 1, 50, image=name, start=start, preemptible=False)
            for name, start in (('a', 250), ('b', 250), ('c', 299))
        ]
        world.submit(*leases)
        self.assertEqual(
            [False, False, True],
            [one.state is LeaseState.REJECTED for one in leases],
        )
        self.assertEqual([('b', 50, 150), ('a', 150, 250)], sent(world))

    def test_best_effort_transfer_is_not_moved(self):
        world = run(5, EACH)
        queued = with_image('q', 1, 50, image='q')
        world.submit(queued)
        one, other = (
            with_image(name, 1, 50, image=name, start=290, preemptible=False)
            for name in 'ab'
        )
        world.submit(one, other)
        self.assertIs(LeaseState.SCHEDULED, one.state)
        self.assertIs(LeaseState.REJECTED, other.state)
        world.until(1000)
        self.assertEqual((100, 290), (queued.started, one.started))

    def test_immediate_lease_needs_a_transfer_that_begins_now(self):
        world = run(5, JOINED)
        first, second = (
            with_image(
                name, 1, 50, image=name, immediate=True, preemptible=False
            )
            for name in 'ab'
        )
        world.submit(first, second)
        world.until(500)
        self.assertEqual(
            (100, LeaseState.REJECTED), (first.started, second.state)
        )

    def test_deadline_includes_the_transfer(self):
        world = run(1, EACH)
        late, just = (
            with_image(name, 1, 50, image=name, deadline=deadline)
            for name, deadline in (('a', 149), ('b', 150))
        )
        world.submit(late)
        self.assertIs(LeaseState.REJECTED, late.state)
        world.submit(just)
        world.until(500)
        self.assertEqual((100, 150), (just.started, just.ended))


class PreemptionTest(unittest.TestCase):
    def test_preempted_lease_keeps_its_transferred_image(self):
        world = run(1, EACH)
        queued = with_image('q', 1, 1000)
        world.submit(queued)
        world.until(50)
        world.submit(lease('r', 1, 60, start=100, preemptible=False), at=50)
        world.until(5000)
        self.assertEqual(160, queued.started)

    def test_restarted_lease_has_its_image_on_the_new_host_in_time(self):
        """Another transfer uses the repository only while it is not needed."""
        world = run(3, EACH, suspension=False, preemption=MostSlack())
        urgent = with_image('u', 1, 300, deadline=4000)
        world.submit(
            urgent,
            *(
                lease(name, 1, duration, preemptible=False)
                for name, duration in (('x', 600), ('y', 650))
            ),
        )
        world.submit(lease('r', 1, 1000, start=250, preemptible=False), at=200)
        # On x's host, since its own host is reserved.
        self.assertTrue(urgent.booking.loses)
        self.assertEqual(600, urgent.later.begin)
        self.assertEqual([('i', 500, 600)], sent(world))
        large = lease('l', 1, 10, image='j', image_mb=4000)
        world.submit(large, at=210)
        world.until(5000)
        self.assertEqual(
            (600, 900, 1), (urgent.started, urgent.ended, urgent.requeues)
        )
        self.assertEqual(1000, large.started)

    def test_suspended_lease_moves_with_its_image(self):
        world = run(2, EACH)
        queued = with_image('q', 1, 2000)
        world.submit(queued)
        world.until(200)
        blocked = queued.hosts.tolist()
        other = lease('r', 2, 50, start=300, preemptible=False)
        more = lease('s', 1, 2000, start=350, preemptible=False)
        world.submit(other, more, at=200)
        world.until(10_000)
        self.assertIs(LeaseState.DONE, queued.state)
        self.assertEqual(1, queued.suspends)
        if more.hosts.tolist() == blocked:
            # 1024 + 1000 MB at 100 MB/s, and 21 s to load.
            self.assertGreaterEqual(queued.suspended_s, 21)
