# SPDX-License-Identifier: Apache-2.0

"""Mapping of different node sets to hosts."""

import unittest

import numpy as np

from secondary_scheduler.leases.scheduling.lease import Lease, NodeSet, Terms
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.scheduling.builders import Run, run_times


class NodeSetTest(unittest.TestCase):
    def test_lease_with_different_node_sets_is_placed(self):
        run = Run(
            Site(('CPU', 'Memory'), np.array([[400, 1024], [100, 8192]]))
        )
        one = Lease(
            'a',
            Terms((NodeSet(2, (100, 512)), NodeSet(1, (100, 4096))), 10),
            0,
        )
        run.submit(one)
        self.assertIs(LeaseState.ACTIVE, one.state)
        self.assertEqual([0, 1], sorted(one.hosts.tolist()))

    def test_node_sets_without_memory_take_separate_hosts(self):
        """They have no memory to save, but take CPUs."""
        run = Run(2)
        one = Lease(
            'a', Terms((NodeSet(1, (100, 0)), NodeSet(1, (100, 0))), 10), 0
        )
        run.submit(one)
        self.assertIs(LeaseState.ACTIVE, one.state)
        self.assertEqual([0, 1], one.hosts.tolist())

    def test_lease_with_different_node_sets_waits_until_all_fit(self):
        run = Run(
            Site(('CPU', 'Memory'), np.array([[400, 1024], [100, 8192]])),
            Settings(suspension=False),
        )
        run.submit(Lease('x', Terms((NodeSet(1, (100, 8192)),), 70), 0))
        run.submit(Lease('y', Terms((NodeSet(1, (400, 1024)),), 50), 0))
        one = Lease(
            'a',
            Terms((NodeSet(2, (100, 512)), NodeSet(1, (100, 4096))), 10),
            0,
        )
        run.submit(one)
        run.until(200)
        self.assertEqual((70, 80), run_times(one))
