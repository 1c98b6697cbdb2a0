# SPDX-License-Identifier: Apache-2.0

"""Base of tests in which operations on a cloud in memory fail."""

import dataclasses
import unittest

from tests.unit.leases.engine import fakes

GIVE_UP = 120.0
OPTIONS = dataclasses.replace(fakes.OPTIONS, give_up=GIVE_UP)


class EngineTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.world = fakes.World(self, OPTIONS)
        self.nova = self.world.nova

    def refuse(self, kind, nature, why, nodes=(0, 1)):
        """Let operations of a kind fail on some nodes."""
        self.nova.refusal = lambda order: (
            (nature, why) if order.kind is kind and order.place[1] in nodes
            else None)

    def lease(self, uuid):
        return self.world.store.get(uuid)

    def orders(self, lease):
        """Return how many passes ordered operations on a lease's servers."""
        return len({time for time, one in self.nova.ordered
                    if one.place[0] == lease})

    def assert_failed(self, uuid, *words):
        found = self.lease(uuid)
        self.assertEqual('failed', found.state)
        for word in words:
            self.assertIn(word, found.reason)
        self.assertEqual({}, self.nova.of(uuid))
        self.assertIn('failed', self.world.kinds(uuid))
