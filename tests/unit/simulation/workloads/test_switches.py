# SPDX-License-Identifier: Apache-2.0

"""Random clusters to reconfigure."""

from collections import Counter
import unittest

from secondary_scheduler.model.configuration import MemberState
from secondary_scheduler.simulation.workloads import switches


class TestDraw(unittest.TestCase):

    def test_same_seed_draws_the_same_configuration(self):
        self.assertEqual(switches.draw(3, 200), switches.draw(3, 200))
        self.assertNotEqual(switches.draw(3, 200), switches.draw(4, 200))

    def test_jobs_have_9_or_18_members_and_the_last_is_cut(self):
        found, queue = switches.draw(1, 490)
        self.assertEqual(490, len(found.members))
        sizes = [len(found.leases[lease]) for lease in queue]
        self.assertEqual({9, 18}, set(sizes[:-1]))
        self.assertEqual(490 - sum(sizes[:-1]), sizes[-1])

    def test_members_of_a_job_share_a_state(self):
        found, _queue = switches.draw(1, 486)
        for several in found.leases.values():
            self.assertEqual(1, len({one.state for one in several}))

    def test_only_waiting_members_have_no_host(self):
        found, _queue = switches.draw(2, 486)
        for one in found.members.values():
            self.assertEqual(one.state is MemberState.WAITING,
                             one.host is None)

    def test_memory_of_hosts_has_room_for_running_members(self):
        for seed in range(5):
            found, _queue = switches.draw(seed, 760, mix=(3, 1, 1))
            for _units, memory_mb in found.used().values():
                self.assertLessEqual(memory_mb, 4096)

    def test_member_for_which_no_host_has_room_is_small(self):
        found, _queue = switches.draw(1, 18, hosts=1, mix=(1, 0, 0))
        memory = [one.memory_mb for one in found.members.values()]
        self.assertGreater(sum(memory), 4096)
        self.assertEqual(256, memory[-1])

    def test_shares_follow_mix_and_busy(self):
        found, _queue = switches.draw(1, 30_000, hosts=5000,
                                      capacity=(5, 10_240), mix=(3, 1, 1),
                                      busy=0.9)
        states = Counter(one.state for one in found.members.values())
        self.assertAlmostEqual(0.6, states['running'] / 30_000, delta=0.03)
        self.assertAlmostEqual(0.2, states['waiting'] / 30_000, delta=0.03)
        units = sum(one.demand[0] for one in found.members.values())
        self.assertAlmostEqual(0.9, units / 30_000, delta=0.01)
