# SPDX-License-Identifier: Apache-2.0

"""Placement constraints, against definitions of their own."""

import itertools
import unittest

from hypothesis import given
from hypothesis import strategies as st

from secondary_scheduler.model import constraints
from secondary_scheduler.model.constraints import (
    Among,
    Ban,
    Fence,
    Gather,
    Lonely,
    Occupancy,
    PlacementRules,
    Quarantine,
    Root,
    Split,
    Spread,
)

HOSTS = ('h1', 'h2', 'h3')
MEMBERS = ('a', 'b', 'c', 'd')
AB = frozenset('ab')


def pairs(members):
    return itertools.combinations(sorted(members), 2)


#: Second definitions: whether a state, the set of hosts of each member, is
#: broken.
BROKEN = {
    Spread: lambda one, state: any(
        state[x] & state[y] for x, y in pairs(one.members)),
    Gather: lambda one, state: any(
        x != y for first, second in pairs(one.members)
        for x in state[first] for y in state[second]),
    Ban: lambda one, state: any(state[x] & one.hosts for x in one.members),
    Fence: lambda one, state: any(state[x] - one.hosts for x in one.members),
    Among: lambda one, state: not any(
        all(state[x] <= group for x in one.members)
        for group in one.groups) and any(state[x] for x in one.members),
    Lonely: lambda one, state: any(
        state[x] & state[y] for x in one.members
        for y in state.keys() - one.members),
    Split: lambda one, state: any(
        state[x] & state[y] for first, second in itertools.combinations(
            one.groups, 2) for x in first for y in second),
    Root: lambda one, state: False,
    Quarantine: lambda one, state: False,
}

members = st.frozensets(st.sampled_from(MEMBERS), min_size=1)
hosts = st.frozensets(st.sampled_from(HOSTS), min_size=1)
states = st.fixed_dictionaries({
    one: st.sets(st.sampled_from(HOSTS), max_size=2) for one in MEMBERS})


@st.composite
def disjoint(draw, names):
    """Draw disjoint groups; some names are in none."""
    numbers = draw(st.tuples(*(st.integers(0, 2) for _name in names)))
    return tuple(frozenset(
        name for name, number in zip(names, numbers, strict=True)
        if number == group) for group in (1, 2) if group in numbers)


any_constraint = st.one_of(
    st.builds(Spread, members), st.builds(Gather, members),
    st.builds(Ban, members, hosts), st.builds(Fence, members, hosts),
    st.builds(Among, members, disjoint(HOSTS)), st.builds(Lonely, members),
    st.builds(Split, disjoint(MEMBERS)), st.builds(Root, members),
    st.builds(Quarantine, hosts))


def after(state, member, target):
    return {**state, member: state[member] | {target}}


class TestStates(unittest.TestCase):

    def test_every_kind_has_a_second_definition(self):
        self.assertEqual(BROKEN.keys(), set(constraints.KINDS.values()))

    @given(any_constraint, states)
    def test_broken_agrees_with_second_definition(self, one, state):
        self.assertEqual(BROKEN[type(one)](one, state),
                         bool(one.broken(state)))

    @given(any_constraint, states)
    def test_missing_members_are_on_no_host(self, one, state):
        self.assertEqual(one.broken(state), one.broken({
            name: hosts for name, hosts in state.items() if hosts}))

    @given(any_constraint, states, st.sampled_from(MEMBERS))
    def test_departure_breaks_nothing(self, one, state, member):
        for host in state[member]:
            left = {**state, member: state[member] - {host}}
            self.assertLessEqual(one.broken(left), one.broken(state))

    def test_violations_name_members_and_hosts(self):
        state = {'a': ['h1'], 'b': ['h1'], 'c': ['h2'], 'd': ['h1', 'h3']}
        for one, *messages in (
                (Spread(AB), 'a shares host h1', 'b shares host h1'),
                (Gather(frozenset('abc')), 'a member is on host h1',
                 'a member is on host h2'),
                (Ban(AB, frozenset({'h1'})), 'a is on host h1',
                 'b is on host h1'),
                (Fence(frozenset('ac'), frozenset({'h1'})),
                 'c is on host h2'),
                (Among(frozenset('acd'), (
                    frozenset({'h1'}), frozenset({'h2'}))),
                 'a member is in group 0', 'a member is in group 1',
                 'd is on host h3, outside of all groups'),
                (Lonely(AB), 'a is on host h1', 'b is on host h1',
                 'd is on host h1'),
                (Split((frozenset('ac'), frozenset('d'))),
                 'a is on host h1', 'd is on host h1')):
            with self.subTest(str(one)):
                self.assertEqual(set(messages), one.broken(state))


class TestArrivals(unittest.TestCase):

    @given(any_constraint, states, st.sampled_from(MEMBERS),
           st.sampled_from(HOSTS))
    def test_arrival_is_admitted_if_it_breaks_nothing_more(
            self, one, state, member, target):
        if target in state[member]:
            return
        further = one.broken(after(state, member, target)) - one.broken(state)
        self.assertEqual(not further, one.admits(
            member, target, Occupancy(state)))

    @given(any_constraint, states, st.sampled_from(MEMBERS),
           st.sampled_from(HOSTS))
    def test_unbroken_constraint_admits_what_keeps_it(
            self, one, state, member, target):
        if target in state[member] or BROKEN[type(one)](one, state):
            return
        self.assertEqual(
            not BROKEN[type(one)](one, after(state, member, target)),
            one.admits(member, target, Occupancy(state)))

    @given(st.lists(any_constraint, max_size=6), states,
           st.sampled_from(MEMBERS), st.sampled_from(HOSTS))
    def test_rules_ask_every_constraint(self, several, state, member, target):
        if target in state[member]:
            return
        source = min(state[member], default=None)
        placed = Occupancy(state)
        expected = {one for one in several if not (
            one.permits(member, source, target)
            and one.admits(member, target, placed))}
        rules = PlacementRules(several)
        blocking = rules.blocking(member, source, target, placed)
        self.assertEqual(expected, set(blocking))
        self.assertEqual(len(expected), len(blocking))
        self.assertEqual(not expected, rules.admits(
            member, source, target, placed))

    def test_broken_constraint_blocks_only_what_breaks_it_further(self):
        placed = Occupancy({'a': ['h1'], 'b': ['h1'], 'c': ['h2'], 'd': []})
        spread = PlacementRules([Spread(frozenset('abcd'))])
        self.assertTrue(spread.admits('a', 'h1', 'h3', placed))
        self.assertFalse(spread.admits('a', 'h1', 'h2', placed))
        self.assertFalse(spread.admits('d', None, 'h1', placed))
        gather = PlacementRules([Gather(frozenset('abc'))])
        self.assertTrue(gather.admits('c', 'h2', 'h1', placed))
        self.assertFalse(gather.admits('c', 'h2', 'h3', placed))
        among = PlacementRules([Among(frozenset('abc'), tuple(
            frozenset({one}) for one in HOSTS))])
        self.assertTrue(among.admits('c', 'h2', 'h1', placed))
        self.assertFalse(among.admits('c', 'h2', 'h3', placed))

    def test_member_resumes_on_its_own_host(self):
        placed = Occupancy({'a': ['h1'], 'b': ['h1']})
        rules = PlacementRules([Spread(AB), Quarantine(frozenset({'h1'})),
                                Root(AB)])
        self.assertTrue(rules.admits('a', 'h1', 'h1', placed))

    def test_root_stays_and_quarantine_closes(self):
        for one, member, source, target, permitted in (
                (Root(AB), 'a', 'h1', 'h2', False),
                (Root(AB), 'a', None, 'h2', True),
                (Root(AB), 'a', 'h1', 'h1', True),
                (Root(AB), 'a', 'h1', None, True),
                (Root(AB), 'c', 'h1', 'h2', True),
                (Quarantine(frozenset({'h1'})), 'a', 'h1', 'h2', False),
                (Quarantine(frozenset({'h1'})), 'a', 'h2', 'h1', False),
                (Quarantine(frozenset({'h1'})), 'a', None, 'h1', False),
                (Quarantine(frozenset({'h1'})), 'a', 'h1', None, True),
                (Quarantine(frozenset({'h1'})), 'a', 'h1', 'h1', True),
                (Quarantine(frozenset({'h1'})), 'a', 'h2', 'h3', True)):
            with self.subTest(one=str(one), source=source, target=target):
                self.assertEqual(permitted,
                                 one.permits(member, source, target))


class TestOccupancy(unittest.TestCase):

    def test_member_enters_and_leaves(self):
        placed = Occupancy({'a': ['h1']})
        placed.enter('a', 'h2')
        self.assertEqual({'h1', 'h2'}, placed.hosts['a'])
        placed.leave('a', 'h1')
        self.assertEqual(({'h2'}, set(), {'a'}), (
            placed.hosts['a'], placed.members['h1'], placed.members['h2']))
