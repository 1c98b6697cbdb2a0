# SPDX-License-Identifier: Apache-2.0

"""Holds for servers of leases that start soon."""

import unittest

from secondary_scheduler.leases.engine import holds
from secondary_scheduler.model import vocabulary
from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import fakes


def room(hold):
    return tuple(hold.room[name] for name in vocabulary.RESOURCE_CLASSES)


class HoldingTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.world = fakes.World(self)

    def held(self):
        """Return the room that is left on the hosts that are held."""
        return {host: room(one) for host, one
                in self.world.engine.holds.items()}

    def test_hosts_are_held_from_order_lead_before_the_boot_to_its_end(self):
        # Its hosts are held for boots 10 s before its start, and from 14 s
        # before that other secondaries are rejected.
        lease = self.world.ask(2, 'large', duration=60, start=NOW + 60)
        self.world.until(36)
        self.assertEqual({}, self.held())
        self.world.until(46)
        self.assertEqual(dict.fromkeys(('h1', 'h2'), (1, 896, 9, 3)),
                         self.held())
        self.assertEqual([{lease}] * 2, [
            set(one.leases) for one in self.world.engine.holds.values()])
        self.world.until(62)
        self.assertEqual(['ACTIVE'] * 2, self.world.nova.statuses(lease))
        self.assertEqual({}, self.held())

    def test_leases_with_a_guaranteed_start_are_named(self):
        lease = self.world.ask(1, 'large', duration=60, start=NOW + 60)
        self.world.ask(1, 'large', duration=60)     # best effort
        self.world.until(4)
        named, = self.world.engine.guaranteed_leases()
        self.assertEqual(lease, named.partition(':')[2])
        self.assertTrue(named.partition(':')[0])

    def test_other_secondaries_reduce_the_room_of_a_hold(self):
        self.world.ask(3, 'large', duration=60, start=NOW + 40)
        self.world.until(4)
        self.world.nova.stray('h2', (4, 1, 1, 1), suspendable=False)
        self.world.until(28)
        self.assertEqual({'h1': (1, 896, 9, 3), 'h2': (0, 895, 8, 2),
                          'h3': (1, 896, 9, 3)}, self.held())
        # More than the host's 4 vCPUs: no claim is left out.
        self.assertEqual({'h1': 3, 'h2': 4 + 3, 'h3': 3}, {
            host: one.claims[vocabulary.VCPU] for host, one
            in self.world.engine.expected.items()})

    def test_hosts_are_held_for_a_resume(self):
        lease = self.world.ask(1, 'large', duration=600)
        self.world.until(20)
        self.world.store.change(lease, 'paused', {'hold': True})
        self.world.until(40)
        self.assertEqual({}, self.held())
        self.world.nova.latency = 20
        self.world.store.change(lease, 'unpaused', {'hold': False})
        self.world.until(44)
        self.assertEqual([(lease,)], [
            tuple(one.leases) for one in self.world.engine.holds.values()])

    def test_no_host_is_held_for_a_preempted_server(self):
        self.world.ask(1, 'large', duration=600)
        self.world.until(20)
        server, = self.world.nova.servers
        self.world.nova.change(self.world.clock.now, server,
                               status='SUSPENDED', preempted=True)
        self.world.until(24)
        self.assertEqual({}, self.held())
        self.world.nova.change(self.world.clock.now, server, preempted=False)
        self.world.until(28)
        self.assertEqual(1, len(self.held()))

    def test_earliest_leases_are_held_if_there_are_too_many_hosts(
            self):
        most, holds.MOST_HOSTS = holds.MOST_HOSTS, 2
        self.addCleanup(setattr, holds, 'MOST_HOSTS', most)
        self.world.ask(2, 'large', duration=60, start=NOW + 50)
        first = self.world.ask(1, 'large', duration=60, start=NOW + 46)
        self.world.until(32)
        self.assertEqual(2, len(self.held()))
        self.assertTrue(any(first in one.leases for one
                            in self.world.engine.holds.values()))


if __name__ == '__main__':
    unittest.main()
