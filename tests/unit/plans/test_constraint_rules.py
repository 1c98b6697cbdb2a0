# SPDX-License-Identifier: Apache-2.0

"""Rules of an operator, which become placement constraints."""

import unittest

from secondary_scheduler.model.constraints import (
    KINDS,
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
from secondary_scheduler.plans.constraint_rules import (
    KnownNames,
    RuleResolver,
    read_rule,
)
from secondary_scheduler.reading.fields import DocumentError, Fields

KNOWN = KnownNames({'a', 'b', 'c'}, {'p:l': ['a', 'b']}, {'h1', 'h2'})
AB, H1, H2 = frozenset('ab'), frozenset({'h1'}), frozenset({'h2'})
LEASE = {'leases': ['p:l']}


def read(entry):
    return read_rule(2, Fields(entry, 'entry 2'))


def resolve(entry):
    resolver = RuleResolver(KNOWN)
    return resolver.resolve([read(entry)]), resolver.problems


class ReadTest(unittest.TestCase):
    def test_error_names_entry_and_field_and_what_is_expected(self):
        for entry, text in (
                ({}, 'entry 2: expected one of spread, gather, ban'),
                ({'spreads': {}}, 'entry 2.spreads: is not known; expected'),
                ({'root': LEASE, 'ban': {}}, 'entry 2.'),
                ({'spread': {}}, 'entry 2.spread.instances: expected a list'),
                ({'root': {'leases': 'p'}}, 'root.leases: expected a list'),
                ({'ban': LEASE}, 'ban.hosts: is missing'),
                ({'fence': {**LEASE, 'hosts': []}}, 'at least one host name'),
                ({'ban': {**LEASE, 'hosts': [['x']]}}, 'hosts.0.: expected a'),
                ({'lonely': {**LEASE, 'x': 1}}, 'lonely.x: is not known'),
                ({'quarantine': {**LEASE, 'hosts': ['h1']}}, 'leases: is not'),
                ({'among': {**LEASE, 'groups': []}}, 'groups: expected at'),
                ({'among': {**LEASE, 'groups': ['x']}}, 'groups.0.: expected'),
                ({'among': {**LEASE, 'groups': [['x'], ['x']]}},
                 r'groups\[1\]: expected hosts that are in no other group'),
                ({'split': {'groups': [LEASE]}}, 'groups: expected at least'),
                ({'split': {'groups': [LEASE, {}]}}, 'groups.1..instances'),
                ({'split': {'groups': [LEASE, {'hosts': ['x']}]}}, 'split.gr'),
        ):
            with self.subTest(entry), self.assertRaisesRegex(
                    DocumentError, text):
                read(entry)


class ResolveTest(unittest.TestCase):
    def test_every_kind_becomes_a_constraint(self):
        hosts = {'hosts': ['h1']}
        cases = {
            'spread': (LEASE, Spread(AB)), 'gather': (LEASE, Gather(AB)),
            'lonely': (LEASE, Lonely(AB)), 'root': (LEASE, Root(AB)),
            'ban': ({**LEASE, **hosts}, Ban(AB, H1)),
            'fence': ({'instances': ['a', 'b'], **hosts}, Fence(AB, H1)),
            'among': ({**LEASE, 'groups': [['h1'], ['h2']]},
                      Among(AB, (H1, H2))),
            'split': ({'groups': [LEASE, {'instances': ['c']}]},
                      Split((AB, frozenset('c')))),
            'quarantine': (hosts, Quarantine(H1))}
        self.assertEqual(KINDS.keys(), cases.keys())
        for kind, (fields, constraint) in cases.items():
            with self.subTest(kind):
                self.assertEqual(((constraint,), []), resolve({kind: fields}))

    def test_unknown_names_are_left_out_and_reported(self):
        self.assertEqual(
            ((Ban(AB, H1),), ['entry 2, ban: instance x is not known',
                              'entry 2, ban: lease p:m has no instances',
                              'entry 2, ban: host h9 is not known']),
            resolve({'ban': {'instances': ['x'], 'leases': ['p:m', 'p:l'],
                             'hosts': ['h9', 'h1']}}))

    def test_members_without_a_known_host_stay(self):
        for kind, fields in (('fence', {'hosts': ['h9']}),
                             ('among', {'groups': [['h9']]})):
            found, problems = resolve({kind: {**LEASE, **fields}})
            self.assertEqual((Root(AB),), found)
            self.assertEqual(1, len(problems))

    def test_rule_that_concerns_nothing_makes_no_constraint(self):
        for kind, fields in (
                ('spread', {'leases': ['p:m']}),
                ('ban', {**LEASE, 'hosts': ['h9']}),
                ('quarantine', {'hosts': ['h9']}),
                ('split', {'groups': [LEASE, {'instances': ['x']}]})):
            with self.subTest(kind):
                found, problems = resolve({kind: fields})
                self.assertEqual((), found)
                self.assertEqual(1, len(problems))

    def test_instance_in_two_groups_counts_in_the_first(self):
        self.assertEqual(
            ((Split((AB, frozenset('c'))),), [
                'entry 2, split: instance a is in two groups, and counts in '
                'the first']),
            resolve({'split': {'groups': [
                LEASE, {'instances': ['a', 'c']}]}}))
