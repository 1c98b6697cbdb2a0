# SPDX-License-Identifier: Apache-2.0

"""Costs and predicted times of a cluster-wide context switch."""

import unittest

from secondary_scheduler.estimation.move_room import freed_room, taken_room
from secondary_scheduler.estimation.switch_costs import (
    OBJECTIVES,
    local_cost,
    memory_moved,
    plan_cost,
    plan_span,
)
from secondary_scheduler.estimation.switch_times import (
    graph_s,
    graph_times,
    pool_times,
    pools_s,
    published_seconds,
)
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
    Move,
)
from secondary_scheduler.model.operation_kinds import OperationKind

MIGRATE, SUSPEND, RESUME = (
    OperationKind.MIGRATE, OperationKind.SUSPEND, OperationKind.RESUME)
BOOT, DELETE = OperationKind.BOOT, OperationKind.DELETE


def move(kind, member, source, target, memory_mb=1024, lease='j'):
    """Return a move."""
    return Move(kind, member, lease, source, target, memory_mb)


class TestCosts(unittest.TestCase):

    def test_local_costs_are_those_of_the_paper(self):
        for kind, source, target, cost in (
                (BOOT, None, 'b', 0), (DELETE, 'a', None, 0),
                (MIGRATE, 'a', 'b', 1024), (SUSPEND, 'a', None, 1024),
                (RESUME, 'a', 'a', 1024), (RESUME, 'a', 'b', 2048)):
            with self.subTest(kind=kind, target=target):
                self.assertEqual(cost, local_cost(
                    move(kind, 'm', source, target)))

    def test_cost_of_a_move_includes_the_preceding_pools(self):
        pools = ((move(SUSPEND, 'm1', 'a', None, 512),
                  move(SUSPEND, 'm2', 'a', None, 256)),
                 (move(RESUME, 'm3', 'a', 'b', 300), ),
                 (move(BOOT, 'm4', None, 'a'),))
        self.assertEqual(512 + 256 + (512 + 600) + (512 + 600),
                         plan_cost(pools))
        self.assertEqual(512 + 600, plan_span(pools))
        self.assertEqual(512 + 256 + 600, memory_moved(pools))

    def test_objectives_of_nothing_are_zero(self):
        self.assertEqual({'cost': 0, 'span': 0, 'memory': 0, 'time': 0},
                         {name: objective(())
                          for name, objective in OBJECTIVES.items()})


class TestTimes(unittest.TestCase):

    def setUp(self):
        def member(name, host, lease, state=MemberState.RUNNING):
            return Member(name, lease, state, host, (1024,), (0,), 1024)

        members = [member('m1', 'a', 'j1'), member('m2', 'a', 'j1'),
                   member('m3', 'b', 'j2'),
                   member('m4', 'c', 'j3', MemberState.SUSPENDED)]
        self.current = Configuration(
            ('memory_mb',), {'a': (2048,), 'b': (1024,), 'c': (2048,)},
            {one.name: one for one in members})
        self.pools = (
            (move(SUSPEND, 'm1', 'a', None, lease='j1'),
             move(SUSPEND, 'm2', 'a', None, lease='j1'),
             move(MIGRATE, 'm3', 'b', 'c', lease='j2')),
            (move(RESUME, 'm4', 'c', 'b', lease='j3'),))

    def times(self, found):
        return {one.move.member: (one.start_s, one.end_s) for one in found}

    def test_members_of_a_lease_start_one_second_apart(self):
        found = self.times(pool_times(self.pools, published_seconds))
        self.assertEqual({'m1': (0, 45), 'm2': (1, 46), 'm3': (0, 13),
                          'm4': (46, 136)}, found)
        self.assertEqual(136, pools_s(self.pools))

    def test_move_waits_only_for_the_room_that_it_needs(self):
        found = self.times(graph_times(self.current, self.pools,
                                       published_seconds))
        self.assertEqual((13, 103), found['m4'])
        self.assertEqual(103, graph_s(self.current, self.pools))

    def test_move_waits_for_the_departures_that_end_first(self):
        pools = (self.pools[0][:2], (move(MIGRATE, 'm3', 'b', 'a'),))
        found = self.times(graph_times(self.current, pools,
                                       published_seconds))
        self.assertEqual((45, 58), found['m3'])

    def test_published_durations_grow_with_memory_except_for_boots(self):
        self.assertEqual(
            [6, 1, 26, 90, 90, 180],
            [published_seconds(move(kind, 'm', source, target, 2048))
             for kind, source, target in (
                 (BOOT, None, 'a'), (DELETE, 'a', None), (MIGRATE, 'a', 'b'),
                 (SUSPEND, 'a', None), (RESUME, 'a', 'a'),
                 (RESUME, 'a', 'b'))])


class TestRoom(unittest.TestCase):

    def test_member_that_only_passes_needs_its_floor(self):
        member = Member('m', 'j', MemberState.SUSPENDED, 'a', (4, 8), (0, 8),
                        512, floor=(1, 8))
        resume = move(RESUME, 'm', 'a', 'a')
        onward = move(MIGRATE, 'm', 'a', 'b')
        self.assertEqual((4, 0), taken_room(resume, member))
        self.assertEqual((1, 0), taken_room(resume, member, passes=True))
        self.assertEqual((4, 8), taken_room(onward, member, passes=True))
        self.assertEqual((1, 8), freed_room(onward, member, passes=True))
        self.assertEqual((4, 8), freed_room(onward, member))

    def test_remote_resume_frees_the_claim(self):
        member = Member('m', 'j', MemberState.SUSPENDED, 'a', (4, 8), (0, 8),
                        512)
        resume = move(RESUME, 'm', 'a', 'b')
        self.assertEqual(((4, 8), (0, 8)), (taken_room(resume, member),
                                            freed_room(resume, member)))
        self.assertEqual((0, 8), freed_room(move(DELETE, 'm', 'a', None),
                                            member))
        self.assertIsNone(freed_room(move(RESUME, 'm', 'a', 'a'), member))
