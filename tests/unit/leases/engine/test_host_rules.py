# SPDX-License-Identifier: Apache-2.0

"""First hosts of leases, by placement constraints."""

import random
import unittest

import hypothesis
from hypothesis import strategies as st

from secondary_scheduler.plans.constraint_rules import (
    KnownNames,
    RuleResolver,
    read_rule,
)
from secondary_scheduler.reading.fields import Fields
from tests.unit.leases.engine import base, fakes

#: Examples; one takes a second.
MOST = max(10, hypothesis.settings().max_examples // 100)
HOSTS = ('h1', 'h2', 'h3', 'h4')


class Rules:
    """The rules of a constraints file, for a cloud in memory.

    ``broken`` has the violations of servers that have a host.
    """

    def __init__(self, world, *entries):
        self.world = world
        self.broken = []
        self.write(*entries)
        world.nova.constrain = self.constrain

    def write(self, *entries):
        self.rules = [read_rule(number, Fields(entry, 'entry'))
                      for number, entry in enumerate(entries, 1)]

    def constrain(self, planned):
        leases = {}
        for one in (*self.world.nova.servers.values(), *planned):
            name = getattr(one, 'uuid', None) or one.name
            leases.setdefault(f'{one.project}:{one.lease}', []).append(name)
        names = [name for several in leases.values() for name in several]
        self.found = RuleResolver(KnownNames(
            names, leases, self.world.nova.hosts)).resolve(self.rules)
        return self.found

    def check(self):
        """Judge the hosts of all servers by the definition of ``broken``."""
        hosts = {key: {one.host}
                 for key, one in self.world.nova.servers.items()}
        for one in self.constrain(()):
            self.broken += one.broken(hosts)


class HostRulesTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.world = fakes.World(self, base.OPTIONS, hosts=HOSTS)
        self.rules = Rules(self.world)

    def named(self, *leases):
        return {'leases': [f'p1:{one}' for one in leases]}

    def run_for(self, seconds=40):
        self.world.until(seconds, self.rules.check)
        self.assertEqual([], self.rules.broken)

    def hosts(self, lease):
        return sorted(one.host for one in self.world.nova.of(lease).values())

    def test_without_constraints_one_host_takes_all(self):
        lease = self.world.ask(4, duration=600)
        self.run_for()
        self.assertEqual(['h1'] * 4, self.hosts(lease))

    def test_fence_and_ban_keep_a_lease_off_hosts(self):
        one, other = (self.world.ask(2, duration=600) for _ in range(2))
        self.rules.write(
            {'fence': {**self.named(one), 'hosts': ['h3', 'h4']}},
            {'ban': {**self.named(other), 'hosts': ['h1', 'h3', 'h4']}})
        self.run_for()
        self.assertEqual((['h3'] * 2, ['h2'] * 2),
                         (self.hosts(one), self.hosts(other)))

    def test_nothing_boots_on_hosts_in_quarantine(self):
        self.rules.write({'quarantine': {'hosts': ['h1', 'h2', 'h3']}})
        lease = self.world.ask(2, duration=600)
        self.run_for()
        self.assertEqual(['h4'] * 2, self.hosts(lease))

    def test_spread_takes_one_host_for_each_server(self):
        lease = self.world.ask(4, duration=600)
        larger = self.world.ask(5, duration=600)
        self.rules.write({'spread': self.named(lease)},
                         {'spread': self.named(larger)})
        self.run_for()
        self.assertEqual(list(HOSTS), self.hosts(lease))
        self.assertEqual(('queued', []), (
            self.world.state(larger), self.hosts(larger)))

    def test_gather_takes_a_host_with_room_for_all(self):
        first = self.world.ask(2, duration=600)
        lease = self.world.ask(3, duration=600)
        self.rules.write({'gather': self.named(lease)},
                         {'fence': {**self.named(first), 'hosts': ['h1']}})
        self.run_for()
        self.assertEqual(1, len(set(self.hosts(lease))))
        self.assertEqual(3, len(self.hosts(lease)))

    def test_among_takes_one_group_of_hosts(self):
        lease = self.world.ask(6, duration=600)
        self.rules.write({'among': {
            **self.named(lease), 'groups': [['h1'], ['h2', 'h4'], ['h3']]}})
        self.run_for()
        self.assertEqual({'h2', 'h4'}, set(self.hosts(lease)))

    def test_split_and_lonely_hold_between_leases_of_one_pass(self):
        one, two, three = (self.world.ask(2, duration=600) for _ in range(3))
        self.rules.write(
            {'split': {'groups': [self.named(one), self.named(two)]}},
            {'lonely': self.named(three)})
        self.run_for(60)
        taken = [set(self.hosts(lease)) for lease in (one, two, three)]
        self.assertEqual([1, 1, 1], list(map(len, taken)))
        self.assertEqual(3, len(set().union(*taken)))

    def test_lease_waits_until_a_host_is_permitted(self):
        lease = self.world.ask(1, duration=600)
        self.rules.write({'fence': {**self.named(lease), 'hosts': ['h2']}},
                         {'quarantine': {'hosts': ['h2']}})
        self.run_for(60)
        self.assertEqual(('queued', []), (
            self.world.state(lease), self.hosts(lease)))
        self.rules.write({'fence': {**self.named(lease), 'hosts': ['h2']}})
        self.run_for(100)
        self.assertEqual(['h2'], self.hosts(lease))

    def test_reservation_moves_if_a_constraint_is_added(self):
        lease = self.world.ask(2, duration=600, start=fakes.NOW + 100)
        self.run_for(20)
        self.assertEqual({'h1': 2}, self.world.plan(lease)[0][3])
        self.rules.write({'ban': {**self.named(lease), 'hosts': ['h1']}})
        self.run_for(120)
        self.assertEqual(['h2'] * 2, self.hosts(lease))
        self.assertEqual('active', self.world.state(lease))

    def test_server_boots_elsewhere_if_a_constraint_comes_last(self):
        """Move servers of a lease that has begun, before they exist."""
        self.world.nova.refuses = set(HOSTS)
        lease = self.world.ask(2, duration=600)
        self.world.until(2)
        self.world.nova.refuses = set()
        self.rules.write({'ban': {**self.named(lease), 'hosts': ['h1']}})
        self.run_for(60)
        self.assertEqual(2, len(self.hosts(lease)))
        self.assertNotIn('h1', self.hosts(lease))

    @hypothesis.settings(max_examples=MOST, deadline=None)
    @hypothesis.given(st.integers(0, 2 ** 32))
    def test_first_boots_break_no_constraint(self, seed):
        self.setUp()
        draw = random.Random(seed)
        leases = [self.world.ask(draw.randint(1, 3), **draw.choice((
            {'duration': 30}, {'duration': 60}, {'duration': 40, 'start':
             fakes.NOW + draw.randint(15, 60)}))) for _ in range(6)]

        def some():
            return self.named(*draw.sample(leases, draw.randint(1, 2)))

        def few():
            return draw.sample(HOSTS, draw.randint(1, 2))

        pairs = draw.sample(leases, 2)
        entries = [draw.choice((
            {'spread': some()}, {'gather': some()}, {'lonely': some()},
            {'fence': {**some(), 'hosts': few()}},
            {'ban': {**some(), 'hosts': few()}},
            {'among': {**some(), 'groups': [['h1', 'h2'], ['h3', 'h4']]}},
            {'split': {'groups': [self.named(one) for one in pairs]}},
            )) for _ in range(3)]
        self.rules.write(*entries)
        self.world.until(50, self.rules.check)
        self.rules.write(*entries[1:])
        self.run_for(100)
