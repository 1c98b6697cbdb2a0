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
