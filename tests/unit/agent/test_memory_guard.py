# SPDX-License-Identifier: Apache-2.0

import os
import unittest
from unittest import mock

from oslo_config import cfg, fixture

from secondary_scheduler.agent import memory_guard
from secondary_scheduler.agent.domains import Primary, Secondary
from secondary_scheduler.agent.floors import Floors, Reason
from secondary_scheduler.agent.memory_guard import Level
from secondary_scheduler.conf import agent as agent_conf
from tests.unit.agent import fakes

MIB = 1 << 20
PAGE = os.sysconf('SC_PAGE_SIZE')


def secondary(n, priority=5):
    return Secondary(f'u{n}', f'i{n}', priority, 1, n, 100 + n, n)


class Base(unittest.TestCase):

    def setUp(self):
        self.host = fakes.Host(self)
        self.now = 100.0

    def process(self, pid, started, used):
        """Make a process that uses some bytes; ``started`` in ticks."""
        self.host.process(pid, started, 'u', 'i')
        self.host.write(f'proc/{pid}/statm', f'9 {used // PAGE} 1 1 0 1 0')

    def end(self, pid):
        os.remove(self.host.path('proc', str(pid), 'stat'))


class TestDemand(Base):

    def read(self, *primaries):
        self.host.write('proc/uptime', '1000.0 0.0')
        return memory_guard.Demand(lambda: primaries, self.host.proc).read()

    def test_untouched_memory_of_new_primaries(self):
        tick = os.sysconf('SC_CLK_TCK')
        self.process(1, 950 * tick, 100 * MIB)
        self.process(2, 930 * tick, 100 * MIB)
        self.process(3, 990 * tick, 300 * MIB)
        young = Primary('i', 256 * MIB, 1, 950 * tick)
        old = Primary('i', 256 * MIB, 2, 930 * tick)
        full = Primary('i', 256 * MIB, 3, 990 * tick)
        gone = Primary('i', 256 * MIB, 4, 990 * tick)
        self.assertEqual(156 * MIB, self.read(young, old, full, gone))

    def test_unknown_age_is_no_demand(self):
        self.assertEqual(0, self.read(Primary('i', MIB, 9, 9)))


class TestPolicy(unittest.TestCase):

    def policy(self, value):
        config = fixture.Config(cfg.ConfigOpts())
        config.setUp()
        self.addCleanup(config.cleanUp)
        agent_conf.register_opts(config.conf)
        config.conf([])
        config.config(group='secondary_agent', memory_headroom_mb=value)
        return [one.text for one in
                memory_guard.policy(config.conf, 'h1', 1000 * MIB)]

    def test_policy_limits_memory_outside_the_headroom(self):
        self.assertEqual(['mem <= 95% for 60s on host:h1'], self.policy(None))
        self.assertEqual(['mem <= 87.5% for 60s on host:h1'],
                         self.policy(125))
        self.assertEqual(['mem <= 0% for 60s on host:h1'], self.policy(2000))
        self.assertEqual([], self.policy(0))


class TestGuard(Base):

    def setUp(self):
        super().setUp()
        self.available = 500
        self.coming = 0
        self.guests = [secondary(1), secondary(2, 3), secondary(3, 3)]
        for guest, held in zip(self.guests, (50, 60, 90), strict=True):
            self.process(guest.pid, guest.started, held * MIB)
        self.actuator = mock.Mock()
        self.floors = Floors(lambda: self.now)
        self.floored, self.killed, self.lost = [], [], []
        self.kills = True
        self.options = memory_guard.GuardOptions(
            5.0, True, lambda total: total // 10)
        self.guard = memory_guard.MemoryGuard(
            self.memory, mock.Mock(read=lambda: self.coming * MIB),
            lambda: self.guests, self.actuator, self.floors,
            lambda guest: self.floored.append(guest.uuid), self.kill,
            lambda guest, reason: self.lost.append(guest.uuid),
            lambda: self.options, self.host.proc, lambda: self.now)

    def memory(self):
        if self.available is None:
            raise OSError('no')
        return 1000 * MIB, self.available * MIB

    def kill(self, guest, reason):
        self.killed.append(guest.uuid)
        return self.kills

    def step(self, available, seconds=0.1):
        self.available = available
        self.now += seconds
        return self.guard.step()

    def pressed(self):
        return [call.args[0].uuid
                for call in self.actuator.press_memory.call_args_list]

    def test_steps_are_more_frequent_when_memory_is_short(self):
        self.assertEqual(1.0, self.step(200))
        self.assertEqual(0.1, self.step(199))
        self.assertEqual(0.1, self.step(30))
        self.assertEqual(0.02, self.step(20))
        self.coming = 1
        self.assertEqual(0.1, self.step(900))
        self.assertEqual(0.02, self.step(99))

    def test_steps_escalate_with_the_shortage(self):
        self.step(100)
        self.assertIs(Level.CALM, self.guard.level)
        self.assertEqual(([], [], []),
                         (self.pressed(), self.floored, self.killed))
        self.step(99)
        self.assertIs(Level.SHORT, self.guard.level)
        self.assertEqual((['u1', 'u2', 'u3'], [], []),
                         (self.pressed(), self.floored, self.killed))
        self.step(49)
        self.step(49)
        self.assertIs(Level.SCARCE, self.guard.level)
        self.assertEqual((['u1', 'u2', 'u3'], []),
                         (self.floored, self.killed))
        self.assertEqual({Reason.MEMORY}, self.floors.reasons('u1'))
        self.step(24)
        self.assertIs(Level.CRITICAL, self.guard.level)
        # The larger one of the two with the lowest priority.
        self.assertEqual(['u3'], self.killed)
        self.assertEqual(1, self.guard.kills)

    def test_next_guest_is_killed_only_if_memory_does_not_suffice(self):
        self.step(20)
        self.step(20)
        self.assertEqual(['u3'], self.killed)
        self.step(20, 0.2)
        self.assertEqual(['u3'], self.killed)
        self.host.zombie(103, 3, threads=2)
        self.guests.pop()
        self.step(20, 0.02)
        self.assertEqual(['u3'], self.killed)
        # Its memory is free, and others have taken it.
        self.host.zombie(103, 3, threads=1)
        self.step(20, 0.02)
        self.assertEqual(['u3', 'u2'], self.killed)
        self.step(20, 0.4)
        self.assertEqual(['u3', 'u2'], self.killed)
        self.step(20, 0.2)  # it does not exit
        self.assertEqual(['u3', 'u2', 'u1'], self.killed)

    def test_guest_is_not_killed_twice(self):
        for _ in range(4):
            self.step(10, 0.6)
        self.assertEqual(['u3', 'u2', 'u1'], self.killed)

    def test_guest_that_cannot_be_killed_is_skipped(self):
        self.kills = False
        self.step(10)
        self.assertEqual(['u3', 'u2', 'u1'], self.killed)
        self.assertEqual(0, self.guard.kills)

    def test_guest_under_operation_is_killed_last(self):
        self.floors.operate('u3', 60.0)
        self.step(10)
        self.assertEqual(['u2'], self.killed)

    def test_operator_may_leave_kills_to_the_kernel(self):
        self.options = memory_guard.GuardOptions(
            5.0, False, lambda total: total // 10)
        self.step(0)
        self.assertEqual([], self.killed)
        self.assertEqual(3, len(self.floored))

    def test_unknown_memory_changes_nothing(self):
        self.step(10)
        self.assertEqual(1.0, self.step(None))
        self.assertIsNone(self.guard.level)
        self.assertIsNone(self.guard.seen)
        self.assertEqual(['u3'], self.killed)
        # Limits are not undone either.
        for _ in range(10):
            self.step(None, 1.0)
        self.assertEqual({Reason.MEMORY}, self.floors.reasons('u1'))

    def kernel(self, count):
        self.host.write('proc/vmstat',
                        f'nr_free_pages 3\noom_kill {count}\nswap_ra 0')

    def test_guest_killed_by_the_kernel_is_reported(self):
        self.kernel(5)
        self.step(500)
        self.guests.remove(self.guests[2])  # stopped by its owner
        self.step(500)
        self.assertEqual([], self.lost)
        self.kernel(6)
        self.step(500, 1.0)
        self.guests.remove(self.guests[1])  # killed a second ago
        self.step(500, 0.9)
        self.assertEqual(['u2'], self.lost)
        self.assertEqual(1, self.guard.kills)
        self.guests.clear()
        self.step(500, 3.0)
        self.assertEqual(['u2'], self.lost)

    def test_guest_killed_by_the_agent_is_not_reported_twice(self):
        self.kernel(5)
        self.step(10)
        self.kernel(6)
        self.guests.pop()
        self.step(500)
        self.assertEqual((['u3'], []), (self.killed, self.lost))

    def test_kill_by_the_kernel_delays_one_by_the_agent(self):
        self.kernel(5)
        self.step(500)
        self.kernel(6)
        self.step(10)
        self.step(10, 0.4)
        self.assertEqual([], self.killed)
        self.step(10, 0.6)
        self.assertEqual(['u3'], self.killed)

    def test_kernel_without_oom_counter(self):
        self.host.write('proc/vmstat', 'nr_free_pages 3')
        for _ in range(3):
            self.step(500, 2.0)
            self.guests.pop()
        self.assertEqual([], self.lost)

    def test_guard_is_inactive_without_headroom(self):
        self.options = memory_guard.GuardOptions(5.0, True, lambda total: 0)
        self.coming = 5
        self.assertEqual(1.0, self.step(0))
        self.assertIs(Level.CALM, self.guard.level)
        self.assertEqual([], self.killed)

    def test_limits_are_undone_after_a_calm_time(self):
        self.step(40)
        self.assertTrue(self.guard.pressing)
        self.step(100)
        self.step(300, 4.0)
        self.assertTrue(self.guard.pressing)
        self.step(99)
        self.step(300)
        self.step(300, 4.9)
        self.assertEqual({Reason.MEMORY}, self.floors.reasons('u2'))
        self.actuator.relax_memory.assert_not_called()
        self.step(300)
        self.assertFalse(self.guard.pressing)
        self.assertEqual(frozenset(), self.floors.reasons('u2'))
        self.assertEqual(3, self.actuator.relax_memory.call_count)
