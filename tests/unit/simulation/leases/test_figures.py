# SPDX-License-Identifier: Apache-2.0

"""Figures of a run of leases."""

import unittest

from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.simulation.leases import figures as lease_figures
from secondary_scheduler.simulation.leases.run import LeaseSimulation
from secondary_scheduler.simulation.workloads.requests import TraceRequest
from tests.unit.leases.scheduling.builders import site, terms


class FiguresTest(unittest.TestCase):
    def test_utilization_includes_suspending_and_resuming(self):
        """A lease of 200 s is suspended and resumed, in 21 s each."""
        outcomes = LeaseSimulation(
            site(1),
            Settings(),
            [
                TraceRequest('a', 0, terms(1, 200), 200),
                TraceRequest(
                    'b', 0, terms(1, 50, start=100, preemptible=False), 50
                ),
            ],
        ).run()
        self.assertEqual(
            [((0, 100), (150, 150 + 21 + 121)), ((100, 150),)],
            [one.held for one in outcomes],
        )
        self.assertEqual(100, lease_figures.utilization(outcomes, 1, 0, 292))
        self.assertEqual(25, lease_figures.utilization(outcomes, 2, 282, 302))

    def test_slowdown_is_relative_to_machines_without_vms(self):
        asked = TraceRequest('a', 0, terms(1, 200), 100)
        (slow,) = LeaseSimulation(
            site(1), Settings(), [asked.in_vms(0.05, 20)]
        ).run()
        self.assertEqual(125, slow.lease.served)
        self.assertEqual(1.25, lease_figures.slowdown(slow))
