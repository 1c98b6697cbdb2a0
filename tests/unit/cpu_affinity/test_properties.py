# SPDX-License-Identifier: Apache-2.0

"""Properties of all drivers on hosts of 1 to 256 CPUs that change."""

import dataclasses
import unittest

import hypothesis
from hypothesis import strategies

from secondary_scheduler.cpu_affinity import (
    base,
    interference,
    pool,
    resource,
    round_robin,
)
from secondary_scheduler.simulation.affinity import thesis_host
from tests.unit.cpu_affinity import hosts

DRIVERS = (round_robin.RoundRobinAffinity, resource.ResourceAffinity,
           interference.InterferenceAffinity, pool.PoolAffinity)
EVENTS = ('come', 'go', 'idle', 'wake', 'share', 'dedicate', 'offline',
          'online', 'primary')
#: Decisions after which nothing moves any more on an unchanged host.
ROUNDS = 12


@dataclasses.dataclass
class Host:
    """Host that changes; CPUs of primaries are never usable."""

    data: object
    view: base.AffinityView
    dedicated: frozenset[int]

    def __post_init__(self):
        self.whole = self.view.topology
        self.first = {one.name: one.usable for one in self.view.guests}

    def change(self, event):
        """Change the host in one respect."""
        guests = list(self.view.guests)
        if event == 'come':
            name = f'at {self.view.now_s}'
            self.first[name] = self.whole.cpus
            guests.append(base.AffinityGuest(
                name, self.draw((*hosts.ALL, None)), self.whole.cpus,
                vcpus=self.draw((1, 1, 3))))
        elif event in ('go', 'idle', 'wake') and guests:
            one = guests.pop(self.draw(range(len(guests))))
            if event != 'go':
                guests.append(dataclasses.replace(
                    one, cpu_pct=100.0 * (event == 'wake')))
        elif event == 'share':
            self.view = dataclasses.replace(
                self.view, share_cpus=self.draw((0.0, 0.7, 2.0, 9.5, 300.0)))
        elif event == 'dedicate':
            self.dedicated |= {self.draw(sorted(self.whole.cpus))}
        elif event in ('offline', 'online'):
            cpus = self.whole.cpus - frozenset(self.data.draw(
                strategies.sets(strategies.sampled_from(sorted(
                    self.whole.cpus)), max_size=4))
                if event == 'offline' else ())
            if cpus:
                self.view = dataclasses.replace(
                    self.view, topology=self.whole.restrict(cpus))
        else:
            self.view = dataclasses.replace(self.view, primaries={
                cpu: base.PrimaryUse(0.5, 'HL') for cpu in [
                    self.draw(sorted(self.view.topology.cpus))]})
        usable = {one.name: (self.first[one.name] & self.view.topology.cpus)
                  - self.dedicated for one in guests}
        self.view = dataclasses.replace(
            self.view, guests=tuple(
                # The agent gives the floor to a guest that may run nowhere.
                dataclasses.replace(one, usable=usable[one.name])
                for one in guests if usable[one.name]),
            primaries={cpu: one for cpu, one in self.view.primaries.items()
                       if cpu in self.view.topology.cpus})

    def draw(self, some):
        """Draw one of some values."""
        return self.data.draw(strategies.sampled_from(some))

    def pass_time(self, seconds):
        """Return the view some seconds later."""
        self.view = dataclasses.replace(self.view,
                                        now_s=self.view.now_s + seconds)
        return self.view


class TestHistories(unittest.TestCase):

    @hypothesis.given(strategies.sampled_from(DRIVERS),
                      hosts.views(most_guests=10), strategies.data())
    def test_sets_of_a_host_that_changes(self, driver, drawn, data):
        options = base.AffinityOptions(
            most_moves=data.draw(strategies.integers(0, 3)),
            least_residence_s=data.draw(strategies.sampled_from([0.0, 60.0])))
        made = driver(thesis_host.PROFILES, options)
        host = Host(data, *drawn)
        found = None
        for event in data.draw(strategies.lists(
                strategies.sampled_from(EVENTS), max_size=5)):
            view = host.pass_time(data.draw(strategies.sampled_from(
                [1.0, 100.0])))
            after = made.decide(view, found)
            self.check_sets(host, after)
            if found is not None:
                self.check_moves(options, view, found, after)
            found = after
            host.change(event)
        for _ in range(ROUNDS):
            found = made.decide(host.pass_time(100.0), found)
            self.check_sets(host, found)
        # The host has not changed, so there is nothing to write.
        self.assertEqual(found.sets, made.decide(host.pass_time(100.0),
                                                 found).sets)

    def check_sets(self, host, found):
        """Check a decision by itself."""
        self.assertEqual({one.name for one in host.view.guests},
                         found.sets.keys())
        for guest in host.view.guests:
            sets = found.sets[guest.name]
            self.assertEqual(guest.vcpus, len(sets))
            for cpus in sets:
                self.assertTrue(cpus)
                self.assertLessEqual(cpus, guest.usable)
                self.assertFalse(cpus & host.dedicated)
                if guest.name in found.running:
                    self.assertLessEqual(cpus, found.pool)

    def check_moves(self, options, view, found, after):
        """Check how a decision follows from the one before."""
        woken = found.idle - after.idle
        if after.homes:
            for guest in view.guests:
                if guest.name in after.running:
                    # Those that woke as well.
                    homes = after.homes[guest.name]
                    self.assertEqual(guest.vcpus, len(homes))
                    for cpu, cpus in zip(homes, after.sets[guest.name],
                                         strict=True):
                        self.assertIn(cpu, cpus)
            young = {name for name in found.running if view.now_s
                     - found.changed_s[name] < options.least_residence_s}
            moved = {one.name for one in view.guests
                     if one.name in found.running - woken & after.running
                     and set(found.homes[one.name]) <= (
                         one.usable & after.pool)
                     and found.homes[one.name] != after.homes[one.name]}
            if len(after.pool) >= len(found.pool):
                self.assertLessEqual(len(moved), options.most_moves)
                self.assertFalse(moved & young)
