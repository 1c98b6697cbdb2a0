# SPDX-License-Identifier: Apache-2.0

"""Primary beside secondaries, against results by hand."""

import unittest

from secondary_scheduler.simulation.affinity import primary, thesis_host
from tests.unit.cpu_affinity import hosts


def run(classes, load, topology=thesis_host.TOPOLOGY, **values):
    """Return the result without a driver."""
    return primary.PrimaryRun(thesis_host.PROFILES, topology, classes, load,
                              1, **values).run(None)


class TestPrimaryRun(unittest.TestCase):

    def test_primary_alone_loses_nothing(self):
        self.assertEqual((0.0, 0.0), run([], 0.5))

    def test_guests_alone_have_their_share(self):
        # BS neither does harm nor suffers in a cache; with a threshold of
        # 50 % of 12 CPUs four of them can use all of theirs.
        self.assertAlmostEqual(4 * primary.RUN_S, run(
            ['BS'] * 4, 0.0, threshold=0.5).work, delta=1)
        self.assertAlmostEqual(2 * primary.RUN_S, run(
            ['BS'] * 4, 0.0, threshold=1 / 6).work,
            delta=0.05 * 2 * primary.RUN_S)

    def test_secondaries_get_what_the_primary_leaves(self):
        self.assertAlmostEqual((10.8 - 4 * 0.5) * primary.RUN_S, run(
            ['BS'] * 12, 0.5).work, delta=0.1 * 8.8 * primary.RUN_S)
        self.assertEqual(0.0, run(['BS'] * 12, 1.0, threshold=0.3).work)

    def test_noise_of_the_cache_costs_its_measured_slowdown(self):
        # All CPUs are in one cache, and Hadoop uses 0.76 of five.
        found = run(['HA'] * 5, 1.0, hosts.one_socket(12), threshold=1.0)
        self.assertAlmostEqual(1 - 1 / 1.68, found.loss, delta=0.01)

    def test_weight_protects_on_a_shared_cpu(self):
        # No CPU is idle: each of four threads takes that of a guest.
        light, heavy = (run(['BS'] * 4, 1.0, hosts.one_socket(4),
                            threshold=2.0, weight=weight).loss
                        for weight in (0.01, 1.0))
        # Beside BS, high LAMP has 2.20 on its CPU and 1.04 in its cache.
        self.assertAlmostEqual(1 - 1 / (2.2 * 1.04), heavy, delta=0.01)
        self.assertAlmostEqual(1 - 1 / (1.012 * 1.04), light, delta=0.01)

    def test_small_host_has_fewer_threads(self):
        found = run(['BS'], 1.0, hosts.one_socket(1), threshold=2.0)
        self.assertAlmostEqual(1 - 1 / 1.012, found.loss)
        self.assertEqual(0.0, found.work)

    def test_same_seed_gives_the_same_result(self):
        self.assertEqual(run(hosts.ALL, 0.4), run(hosts.ALL, 0.4))
