# SPDX-License-Identifier: Apache-2.0

"""Cluster with jobs in progress."""

import unittest

from secondary_scheduler.model.configuration import MemberState, Move
from secondary_scheduler.model.operation_kinds import OperationKind
from secondary_scheduler.simulation.switches.profiles import THESIS
from secondary_scheduler.simulation.switches.world import JobWorld, Timed
from tests.unit.simulation.switches.test_jobs import job


def move(kind, member, source, target, lease='job'):
    """Return a move of a member of 512 MB."""
    return Move(kind, member, lease, source, target, 512)


def boots(hosts, lease='job'):
    """Return boots of the members of a job on hosts."""
    return [Timed(move(OperationKind.BOOT, f'{lease}-{number}', None, host,
                       lease), 0, 6)
            for number, host in enumerate(hosts, 1)]


class TestJobWorld(unittest.TestCase):

    def begin(self, hosts, claims=0, **options):
        """Return a world in which a job has just been booted."""
        world = JobWorld([job(**options)], claims, False)
        for one in boots(hosts):
            world.begin(one)
        world.advance(6)
        for one in boots(hosts):
            world.end(one)
        return world

    def carry_out(self, world, *moves, seconds=10):
        """Carry out moves at the same time."""
        flights = [Timed(one, world.now, world.now + seconds)
                   for one in moves]
        for one in flights:
            world.begin(one)
        world.advance(world.now + seconds)
        for one in flights:
            world.end(one)

    def test_job_starts_when_all_members_run(self):
        world = JobWorld([job()], 0, False)
        some = boots([f'host{number}' for number in range(1, 10)])
        for one in some[:-1]:
            world.begin(one)
            world.end(one)
        self.assertEqual((0, {}), (world.wanted(), world.rates()))
        self.assertEqual(['job'], world.mixed())
        world.begin(some[-1])
        world.end(some[-1])
        self.assertEqual((3, {'job': 1.0}), (world.wanted(), world.rates()))
        self.assertEqual([], world.mixed())

    def test_busy_members_share_the_units_of_a_host(self):
        world = self.begin(['host1'] * 4 + ['host2'] * 5)
        self.assertEqual({'job': 2 / 3}, world.rates())
        self.assertAlmostEqual(6 + 30 / (2 / 3), world.next_change())
        self.assertAlmostEqual(2.0, world.used())

    def test_job_ends_after_its_length_on_hosts_of_its_own(self):
        world = self.begin([f'host{number}' for number in range(1, 10)])
        while world.queue:
            world.advance(world.next_change())
        self.assertAlmostEqual(96, world.now)
        self.assertFalse(world.finished)
        self.carry_out(world, *(move(OperationKind.DELETE, f'job-{number}',
                                     f'host{number}', None)
                                for number in range(1, 10)))
        self.assertTrue(world.finished)
        self.assertEqual(0, world.work_lost)

    def test_suspended_member_wants_what_it_wanted_before(self):
        world = self.begin([f'host{number}' for number in range(1, 10)])
        world.advance(16)
        self.carry_out(world, *(move(OperationKind.SUSPEND, f'job-{number}',
                                     f'host{number}', None)
                                for number in range(1, 10)))
        self.assertEqual(10, world.jobs['job'].progress_s)
        found = world.observe()
        self.assertEqual([1, 1, 1] + [0] * 6, [
            one.demand[0] for one in found.members.values()])
        for number, one in enumerate(found.members.values(), 1):
            self.assertEqual((MemberState.SUSPENDED, f'host{number}', (0, 0)),
                             (one.state, one.host, one.claim))

    def test_member_that_migrates_runs_on_its_source_until_the_end(self):
        world = self.begin(['host1'] * 4 + ['host2'] * 5)
        flight = Timed(move(OperationKind.MIGRATE, 'job-1', 'host1',
                            'host3'), 6, 13)
        world.begin(flight)
        self.assertEqual({'job': 2 / 3}, world.rates())
        world.advance(13)
        world.end(flight)
        self.assertEqual({'job': 1.0}, world.rates())

    def test_suspension_slows_neighbours(self):
        world = JobWorld([job(), job(name='other')], 0, False)
        for one in [*boots(['host1', 'host2', 'host3'] * 3),
                    *boots(['host4', 'host5', 'host6'] * 3, 'other')]:
            world.begin(one)
            world.end(one)
        world.begin(Timed(move(OperationKind.SUSPEND, 'other-9', 'host1',
                               None, 'other'), 0, 10))
        self.assertAlmostEqual(1 / 1.3, world.rates()['job'])
        self.assertNotIn('other', world.rates())

    def test_deleted_member_of_a_job_in_progress_loses_its_work(self):
        world = self.begin([f'host{number}' for number in range(1, 10)])
        world.advance(16)
        self.carry_out(world, move(OperationKind.DELETE, 'job-1', 'host1',
                                   None))
        self.assertEqual(30, world.work_lost)

    def test_claims_are_held_in_dimensions_of_their_own(self):
        world = self.begin([f'host{number}' for number in range(1, 10)],
                           claims=2)
        found = world.observe()
        self.assertEqual((2, 3584, 4, 7168), found.capacity['host1'])
        one = found.members['job-1']
        self.assertEqual(((1, 512, 1, 512), (0, 0, 1, 512)),
                         (one.demand, one.claim))


class TestSwitchProfile(unittest.TestCase):

    def test_moves_take_the_published_times(self):
        for kind, source, target, seconds in (
                (OperationKind.BOOT, None, 'a', 6),
                (OperationKind.DELETE, 'a', None, 1),
                (OperationKind.MIGRATE, 'a', 'b', 6.5),
                (OperationKind.SUSPEND, 'a', None, 22.5),
                (OperationKind.RESUME, 'a', 'a', 22.5),
                (OperationKind.RESUME, 'a', 'b', 45)):
            with self.subTest(kind=kind, target=target):
                self.assertEqual(seconds, THESIS.seconds(
                    move(kind, 'job-1', source, target)))
