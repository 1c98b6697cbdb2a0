# SPDX-License-Identifier: Apache-2.0

import unittest
from unittest import mock

from secondary_scheduler.agent import balloon
from secondary_scheduler.agent.domains import Secondary


def secondary(n, priority=5):
    return Secondary(f'u{n}', f'i{n}', priority, 1, n, 100 + n, n)


class TestBalloon(unittest.TestCase):

    def setUp(self):
        self.memory = {'u1': 1000, 'u2': 800}
        self.error = None
        self.orders = []
        self.pressing = False
        self.guests = [secondary(1)]
        self.balloon = balloon.Balloon(
            lambda: self, lambda: self.guests, lambda: self.pressing, 60.0)

    def close(self):
        self.orders.append('close')

    def lookupByUUIDString(self, uuid):
        if self.error:
            raise self.error

        def give(target, flags):
            self.assertEqual(1, flags)
            self.memory[uuid] = target
            self.orders.append((uuid, target))
        return mock.Mock(info=lambda: [1, 1000, self.memory[uuid], 1, 0],
                         setMemoryFlags=give)

    def steps(self, count=2):
        for _ in range(count):
            self.balloon.step()
        orders, self.orders = self.orders, []
        return orders

    def test_balloon_is_filled_and_emptied(self):
        self.assertEqual([], self.steps())
        self.pressing = True
        self.assertEqual([('u1', 600)], self.steps())
        self.pressing = False
        self.assertEqual([('u1', 1000)], self.steps())

    def test_balloons_are_left_alone_by_default(self):
        self.balloon = balloon.Balloon(
            lambda: self, lambda: self.guests, lambda: True, 100.0)
        self.memory['u1'] = 500
        self.assertEqual([], self.steps())

    def test_guest_that_arrives_small_gets_all_its_memory(self):
        self.guests.append(secondary(2))
        self.assertEqual([('u2', 1000)], self.steps())

    def test_smaller_guest_is_left_alone_while_memory_is_short(self):
        self.memory['u1'] = 500
        self.pressing = True
        self.assertEqual([], self.steps())

    def test_failure_is_retried_with_a_new_connection(self):
        self.pressing, self.error = True, OSError('away')
        with self.assertLogs(balloon.LOG.logger, 'WARNING') as logs:
            self.steps()
        self.assertEqual(1, len(logs.output))
        self.error = None
        self.assertEqual([('u1', 600)], self.steps())
