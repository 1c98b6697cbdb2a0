# SPDX-License-Identifier: Apache-2.0

import unittest

from secondary_scheduler.agent.floors import Floors, Reason


class FloorsTest(unittest.TestCase):
    def test_floor_lasts_as_long_as_one_reason(self):
        now = [0.0]
        floors = Floors(lambda: now[0])
        floors.add('a', Reason.ENTRY)
        now[0] = 3.0
        floors.add('a', Reason.OPERATION)
        floors.operate('a', 10)
        floors.drop('a', Reason.ENTRY)
        floors.expire(['a'])
        self.assertTrue(floors.floored('a') and floors.operated('a'))
        now[0] = 14.0
        floors.expire(['a'])
        self.assertFalse(floors.floored('a') or floors.operated('a'))
        floors.add('a', Reason.POLICY)
        floors.expire([])
        self.assertFalse(floors.floored('a'))

    def test_guest_waits_for_its_lease_for_a_limited_time(self):
        now, changes = [0.0], []
        floors = Floors(lambda: now[0], changed=lambda: changes.append(1))
        floors.await_lease('a', 10.0)       # it does not run here yet
        floors.expire([])
        self.assertEqual({Reason.LEASE}, floors.reasons('a'))
        now[0] = 10.0
        self.assertFalse(floors.floored('a'))
        floors.await_lease('a', 5.0)
        floors.await_lease('a', 0)
        self.assertFalse(floors.floored('a'))
        self.assertEqual(3, len(changes))

    def test_number_of_waiting_guests_is_bounded(self):
        floors = Floors(lambda: 0.0)
        for number in range(1001):
            floors.await_lease(str(number), 5.0)
        self.assertTrue(floors.floored('999'))
        self.assertFalse(floors.floored('1000'))
        floors.await_lease('0', 0)
        self.assertFalse(floors.floored('0'))
