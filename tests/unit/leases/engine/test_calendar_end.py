# SPDX-License-Identifier: Apache-2.0

"""Leases at the end of the calendar: responses of the service stay valid.

``services.Api`` checks each response by the schema.
"""

import unittest

from secondary_scheduler.reading import times
from tests.unit.leases.api import services
from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import fakes

#: Seconds from the usual time of the tests to the last one.
END = times.LAST - NOW


class CalendarEndTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.world = fakes.World(self)
        self.api = services.Api(self.world.service)

    def show(self):
        """Request all responses with times; return the slots."""
        leases = self.api.good('GET', '/leases')['leases']
        for one in leases:
            self.api.good('GET', f'/leases/{one["id"]}/events')
        return self.api.good('GET', '/timeline')['slots']

    def test_lease_runs_to_the_last_second(self):
        self.world.clock.now = float(times.LAST - 90)
        preempted = self.world.ask(12, duration=40)
        last = self.world.ask(12, start=times.LAST - 30, duration=30,
                              preemptible=False)
        ends = set()
        self.world.until(END + 120, lambda: ends.update(
            one['end'] for one in self.show()))
        self.assertEqual('2099-12-31T23:59:59Z', max(ends))
        self.assertIn('2099-12-31T23:59:29Z', ends)
        self.assertEqual('done', self.world.state(last))
        self.assertIn('suspending', self.world.kinds(preempted))
        self.assertEqual('done', self.world.state(preempted))

    def test_queue_beyond_the_calendar_is_shown(self):
        self.world.clock.now = float(
            times.parse_time('2089-01-01T00:00:00Z'))
        waiting = [self.world.ask(12, duration=times.LONGEST)
                   for _ in range(6)]
        quote = self.world.quote(12, duration=times.LONGEST)
        self.world.until(self.world.clock.now - NOW + 20)
        self.assertEqual('active', self.world.state(waiting[0]))
        self.assertEqual('2099-12-31T23:59:59Z', max(
            one['end'] for one in self.show()))
        self.api.good('GET', f'/quotes/{quote}')
