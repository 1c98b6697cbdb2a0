# SPDX-License-Identifier: Apache-2.0

"""Holds of leases, from the lease engine to schedulers."""

from secondary_scheduler.reports import hold_messages
from tests.unit.model.test_holds import HOLDS
from tests.unit.reports.broker import BrokerCase, wait_for


class HoldsTest(BrokerCase):

    def test_holds_reach_listeners_that_ask_for_them(self):
        held = []
        listener, reports = self.listen(hold=held.append)
        self.listen()   # a listener without holds
        sender = hold_messages.HoldSender(self.conf)
        self.addCleanup(sender.stop)
        self.assertTrue(sender.send(HOLDS))
        wait_for(lambda: held)
        self.assertEqual([HOLDS], held)
        self.assertEqual([], reports)
        self.assertEqual({'received': 0, 'dropped': 0}, listener.counters)
