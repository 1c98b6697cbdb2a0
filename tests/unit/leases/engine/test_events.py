# SPDX-License-Identifier: Apache-2.0

"""Events of leases."""

import unittest

from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import fakes


class EventsTest(unittest.TestCase):

    def test_events_are_in_the_order_of_time(self):
        world = fakes.World(self)
        lease = world.ask(1, duration=30, start=NOW + 30)
        world.until(80)
        events = world.store.events(lease)
        self.assertEqual(sorted(one.time for one in events),
                         [one.time for one in events])
        running = dict(world.events(lease))['running']
        self.assertRegex(running, r' \d+\.\d s before its start$')


if __name__ == '__main__':
    unittest.main()
