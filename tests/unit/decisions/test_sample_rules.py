# SPDX-License-Identifier: Apache-2.0

"""Placement constraints while leases are selected and packed."""

import dataclasses
import unittest

from hypothesis import given

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.optimiser import optimise
from secondary_scheduler.decisions.packing import (
    first_fit,
    first_fit_target,
    sticky_target,
)
from secondary_scheduler.decisions.sample_rules import SampleRules
from secondary_scheduler.decisions.selection import (
    QueuedLease,
    SelectionOptions,
    select,
)
from secondary_scheduler.decisions.steady_selection import select_steadily
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    MemberState,
)
from secondary_scheduler.model.constraints import (
    Among,
    Ban,
    Fence,
    Gather,
    Lonely,
    Quarantine,
    Root,
    Split,
    Spread,
)
from tests.unit.decisions import switch_worlds

RUNNING, SUSPENDED, WAITING, _ENDED = MemberState
STATIC = (Ban, Fence, Quarantine, Root)


def member(name, host=None, size=1, **values):
    state = WAITING if host is None else RUNNING
    return Member(name, name[0], values.pop('state', state), host, (size,),
                  (0,), size, **values)


def cluster(*members, constraints=(), hosts='xyz', size=4, **values):
    return Configuration(
        ('units',), dict.fromkeys(hosts, (size,)),
        {one.name: one for one in members}, constraints=tuple(constraints),
        **values)


def named(*names):
    return frozenset(names)


def run(current, lease='a', near=False):
    """Place the members of a lease by first fit."""
    rules = SampleRules(current)
    return first_fit(current, current.leases[lease], FreeRoom.of(
        current, [one for one in current.members.values()
                  if one.lease != lease]), rules, near)


class TestFirstFit(unittest.TestCase):

    def test_forbidden_host_is_skipped(self):
        for rule, there, expected in (
                (Ban(named('a1'), named('x', 'y')), (), 'z'),
                (Fence(named('a1'), named('y', 'z')), (), 'y'),
                (Quarantine(named('x')), (), 'y'),
                (Spread(named('a1', 'b1')), [member('b1', 'x')], 'y'),
                (Gather(named('a1', 'b1')), [member('b1', 'y')], 'y'),
                (Split((named('a1'), named('b1'))), [member('b1', 'x')],
                 'y'),
                (Lonely(named('a1')), [member('b1', 'x')], 'y'),
                (Lonely(named('b1')), [member('b1', 'x')], 'y'),
                (Among(named('a1', 'b1'), (named('x'), named('y', 'z'))),
                 [member('b1', 'z')], 'y')):
            with self.subTest(rule.kind):
                self.assertEqual({'a1': expected}, run(cluster(
                    member('a1'), *there, constraints=[rule])))

    def test_suspended_peers_count(self):
        self.assertEqual({'a1': 'y'}, run(cluster(
            member('a1'), member('b1', 'x', state=SUSPENDED),
            constraints=[Spread(named('a1', 'b1'))])))

    def test_rooted_member_stays(self):
        for rule in (Root(named('a1')), Quarantine(named('y'))):
            self.assertEqual({'a1': 'y'}, run(cluster(
                member('a1', 'y'), constraints=[rule])))

    def test_gathered_members_find_a_host_for_all(self):
        self.assertEqual({'a1': 'z', 'a2': 'z', 'a3': 'z'}, run(cluster(
            member('a1'), member('a2'), member('a3'), member('b1', 'x', 2),
            member('c1', 'y', 3),
            constraints=[Gather(named('a1', 'a2', 'a3'))])))

    def test_small_group_of_hosts_is_given_up(self):
        groups = (named('w', 'x'), named('y', 'z'))
        self.assertEqual({'a1': 'y', 'a2': 'y', 'a3': 'z'}, run(cluster(
            member('a1', None, 2), member('a2', None, 2),
            member('a3', None, 2), member('b1', 'w', 2), member('b2', 'x', 2),
            constraints=[Among(named('a1', 'a2', 'a3'), groups)],
            hosts='wxyz')))

    def test_peers_that_may_move_do_not_reject_a_lease(self):
        current = cluster(
            member('a1', None, 3), member('b1', 'x'), member('b2', 'y', 2),
            constraints=[Spread(named('a1', 'b1'))], hosts='xy')
        self.assertEqual({'a1': 'x'}, run(current))

    def test_static_constraint_rejects_a_lease(self):
        current = cluster(
            member('a1', None, 3), member('b1', 'y', 2),
            constraints=[Ban(named('a1'), named('x'))], hosts='xy')
        self.assertIsNone(run(current))

    def test_failed_packing_leaves_the_rules_unchanged(self):
        current = cluster(
            member('a1'), member('a2', None, 5), member('b1'),
            constraints=[Spread(named('a1', 'b1'))])
        rules = SampleRules(current)
        self.assertIsNone(first_fit(
            current, current.leases['a'], FreeRoom.of(current), rules))
        self.assertEqual({'b1': 'x'}, first_fit(
            current, current.leases['b'], FreeRoom.of(current), rules))

    def test_targets_keep_constraints(self):
        current = cluster(
            member('a1'), member('a2'), member('b1', 'x'),
            constraints=[Spread(named('a1', 'a2', 'b1'))])
        for pack in first_fit_target, sticky_target:
            target = pack(current, {'a': RUNNING})
            self.assertEqual({'y', 'z'}, {
                target.members[name].host for name in ('a1', 'a2')})


class TestOptimiser(unittest.TestCase):

    def test_peer_of_another_lease_makes_room_for_a_confined_member(self):
        current = cluster(
            member('a1', None, 3), member('b1', 'x', 2), member('c1', 'y', 2),
            constraints=[Fence(named('a1'), named('x')),
                         Spread(named('b1', 'c1'))])
        found = optimise(current, current.with_members([dataclasses.replace(
            current.members['a1'], state=RUNNING, host='x')]),
            'cost', Budget(10_000))
        self.assertEqual(((), {'a1': 'x', 'b1': 'z', 'c1': 'y'}), (
            found.left, {name: one.host
                         for name, one in found.target.members.items()}))


def selections(current):
    """Return the configurations of both selections."""
    queue = [QueuedLease(lease) for lease in sorted(current.leases)]
    return [select(current, queue).sample,
            select_steadily(current, queue, SelectionOptions()).sample]


class TestSelections(unittest.TestCase):

    def test_selected_leases_respect_those_that_run(self):
        current = cluster(
            member('a1'), member('a2'), member('b1', 'x'), member('c1', 'y'),
            constraints=[Spread(named('a1', 'b1')),
                         Ban(named('a2'), named('x', 'y'))])
        for sample in selections(current):
            self.assertIs(RUNNING, sample.members['a1'].state)
            self.assertNotEqual('x', sample.members['a1'].host)
            self.assertEqual('z', sample.members['a2'].host)

    def test_lease_without_a_permitted_host_does_not_displace(self):
        current = cluster(
            member('a1', None, 4), member('b1', 'y', 4),
            constraints=[Fence(named('a1'), named('q'))], hosts='y')
        for sample in selections(current):
            self.assertIs(RUNNING, sample.members['b1'].state)

    @given(switch_worlds.ruled_switches())
    def test_no_selection_breaks_a_static_constraint(self, switch):
        current, _target = switch
        before = broken(current)
        for sample in selections(current):
            self.assertEqual(set(), broken(sample) - before)

    @given(switch_worlds.ruled_switches())
    def test_rooted_members_keep_their_host(self, switch):
        current, _target = switch
        rooted = set().union(*(one.named for one in current.constraints
                               if isinstance(one, Root)))
        for sample in selections(current):
            for name in rooted:
                if current.members[name].host is not None:
                    self.assertEqual(current.members[name].host,
                                     sample.members[name].host)


def broken(configuration):
    """Return what members break static constraints."""
    hosts = {name: (one.host,) for name, one in configuration.members.items()
             if one.host is not None}
    return {found for one in configuration.constraints
            if isinstance(one, STATIC) for found in one.broken(hosts)}
