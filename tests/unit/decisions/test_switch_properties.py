# SPDX-License-Identifier: Apache-2.0

"""Properties of every cluster-wide context switch."""

import dataclasses
import unittest

from hypothesis import given

from secondary_scheduler.decisions.sequencing import sequence
from secondary_scheduler.estimation.switch_times import graph_times, pool_times
from secondary_scheduler.model.configuration import natural_key
from secondary_scheduler.model.operation_kinds import OperationKind
from tests.unit.decisions import switch_worlds as worlds


class TestSwitch(unittest.TestCase):

    def check(self, current, target):
        """Replay a switch, and return it."""
        switch = sequence(current, target)
        replay = worlds.Replay(current)
        for pool in switch.pools:
            self.assertTrue(pool)
            self.assertEqual([], replay.errors(pool))
            replay.run(pool)
        kept = set()
        for name, wanted in target.members.items():
            there = switch.reached.members[name]
            if (there.state, there.host) != (wanted.state, wanted.host):
                kept.add(name)
            if current.members[name].host is not None or there.host:
                self.assertEqual((there.state, there.host),
                                 replay.state[name])
        self.assertEqual(kept, set(switch.kept))
        self.assertTrue(worlds.is_whole(switch.reached))
        return switch

    @given(worlds.switches(in_place=False))
    def test_every_switch_ends_in_its_target(self, switched):
        current, target = switched
        switch = self.check(current, target)
        self.assertEqual((), switch.kept)

    @given(worlds.switches(in_place=True))
    def test_every_switch_ends_in_its_target_but_for_members_that_stay(
            self, switched):
        self.check(*switched)

    @given(worlds.switches(fixed=0.1, closed=0.1))
    def test_fixed_members_and_closed_hosts_are_left_alone(self, switched):
        self.check(*switched)

    @given(worlds.switches())
    def test_members_of_a_lease_move_together_in_natural_order(
            self, switched):
        switch = sequence(*switched)
        for kind in (OperationKind.SUSPEND, OperationKind.RESUME):
            for found in worlds.positions_in_pools(switch, kind).values():
                self.assertEqual(1, len({number for number, _ in found}))
                names = [name for _, name in found]
                self.assertEqual(sorted(names, key=natural_key), names)

    @given(worlds.switches())
    def test_short_plans_have_no_needless_bypass(self, switched):
        current, target = switched
        switch = sequence(current, target)
        if len(switch.moves) <= 6 and any(
                move.bypass for move in switch.moves):
            self.assertFalse(worlds.has_serial_order(current, switch.reached))

    @given(worlds.switches())
    def test_the_same_switch_is_found_again(self, switched):
        current, target = switched
        turned = dataclasses.replace(current, members=dict(
            reversed(current.members.items())))
        self.assertEqual(sequence(current, target)[::2],
                         sequence(turned, target)[::2])

    @given(worlds.switches())
    def test_graph_never_ends_later_than_the_pools(self, switched):
        current, target = switched
        pools = sequence(current, target).pools

        def seconds(move):
            return 1 + len(move.member) + move.memory_mb / 100

        ends = {}
        for one in pool_times(pools, seconds):
            ends[one.move] = one.end_s
        graph = graph_times(current, pools, seconds)
        self.assertEqual(len(ends), len(graph))
        for one in graph:
            self.assertLessEqual(one.end_s, ends[one.move])

    @given(worlds.switches())
    def test_graph_has_room_at_every_start(self, switched):
        current, target = switched
        graph = graph_times(current, sequence(current, target).pools,
                            lambda move: 1 + move.memory_mb / 100)
        replay = worlds.Replay(current)
        ended = set()
        for begin in sorted({one.start_s for one in graph}):
            for one in sorted(graph, key=lambda one: one.end_s):
                if one.end_s <= begin and one not in ended:
                    ended.add(one)
                    replay.run([one.move])
            ongoing = [one.move for one in graph
                       if one.start_s <= begin < one.end_s]
            self.assertEqual([], replay.errors(ongoing))

    @given(worlds.ruled_switches())
    def test_placement_constraints_hold_at_every_instant(self, switched):
        current, target = switched
        replay = worlds.Replay(current)
        for pool in self.check(current, target).pools:
            before = {name: {host} for name, (_, host)
                      in replay.state.items() if host is not None}
            during = {name: set(hosts) for name, hosts in before.items()}
            for move in pool:
                if move.target is not None:
                    during.setdefault(move.member, set()).add(move.target)
            for rule in current.constraints:
                self.assertLessEqual(rule.broken(during),
                                     rule.broken(before))
                self.assertTrue(all(
                    rule.permits(move.member, move.source, move.target)
                    for move in pool
                    if move.kind is not OperationKind.SUSPEND
                    and move.kind is not OperationKind.DELETE))
            replay.run(pool)
