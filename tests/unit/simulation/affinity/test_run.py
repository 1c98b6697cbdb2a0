# SPDX-License-Identifier: Apache-2.0

"""Runs of guests on one host, against results by hand."""

import math
import unittest

from secondary_scheduler.cpu_affinity import base, interference, round_robin
from secondary_scheduler.cpu_affinity.prediction import (
    SlowdownModel,
    max_min_shares,
)
from secondary_scheduler.simulation.affinity import (
    scenarios,
    thesis_host,
    truths,
)
from secondary_scheduler.simulation.affinity.run import Algorithm, HostRun
from tests.unit.cpu_affinity import hosts

PROFILES = thesis_host.PROFILES
OPTIONS = base.AffinityOptions()


def guest(name, workload_class, arrives_s=0.0, length_s=1200.0, phases=None):
    """Return a guest of a scenario."""
    return scenarios.ScenarioGuest(name, workload_class, arrives_s, length_s,
                                   phases)


def run(guests, driver=None, topology=None, truth='t1', **values):
    """Return the outcome of a run."""
    made = driver and driver(PROFILES, OPTIONS)
    return HostRun(guests, Algorithm(made, **values),
                   truths.make_truth(truth, PROFILES, 1),
                   topology or hosts.one_socket(1), 1).run()


class TestShares(unittest.TestCase):

    def test_shares_are_max_min_fair(self):
        for uses, expected in (([1.0, 1.0], [0.5, 0.5]),
                               ([0.36, 1.0], [0.36, 0.64]),
                               ([1.0, 0.2, 1.0], [0.4, 0.2, 0.4]),
                               ([0.3, 0.2], [0.3, 0.2]), ([], [])):
            for one, other in zip(expected, max_min_shares(uses, 1.0),
                                  strict=True):
                self.assertAlmostEqual(one, other)


class TestTruths(unittest.TestCase):

    def slowdowns(self, name, classes, cpus):
        return truths.slowdowns(truths.make_truth(name, PROFILES, 3),
                                thesis_host.TOPOLOGY, classes, cpus)

    def test_measured_slowdown_of_each_pair(self):
        for name in ('t1', 't2'):
            for one in hosts.ALL:
                for other in hosts.ALL:
                    found = self.slowdowns(name, [one, other], [0, 0])
                    matrix = PROFILES.time_sharing
                    self.assertAlmostEqual(matrix.slowdown(one, other),
                                           found[0])
                    self.assertAlmostEqual(matrix.slowdown(other, one),
                                           found[1])

    def test_largest_space_entry_of_the_socket_counts(self):
        classes, cpus = ['HL', 'JA', 'HA', 'HA'], [0, 1, 2, 6]
        self.assertEqual([1.0] * 4, self.slowdowns('t1', classes, cpus))
        found = self.slowdowns('t2', classes, cpus)
        for expected, value in zip((1.68, 1.23, 1.08, 1.0), found,
                                   strict=True):
            self.assertAlmostEqual(expected, value)
        # A guest on the same CPU is counted by the other matrix.
        self.assertAlmostEqual(2.65 * 1.31, self.slowdowns(
            't2', ['HL', 'JA', 'HA'], [0, 1, 0])[0])

    def test_three_guests_have_shares_times_residuals(self):
        # Shares of BS: 1/3 of three, 1/2 of a pair of BS; residuals are
        # 2.00 / 2 twice.
        self.assertAlmostEqual(3.0, self.slowdowns(
            't2', ['BS'] * 3, [0] * 3)[0])
        # LS uses 0.36 and gets it; residuals of HS are 1.44.
        self.assertAlmostEqual(0.36 / (1 / 3) * (1.44 * 0.36 / 0.36) ** 2,
                               self.slowdowns('t2', ['LS', 'HS', 'HS'],
                                              [0] * 3)[0])

    def test_errors_are_those_of_the_seed_and_at_least_1(self):
        one, again, other = (truths.wrong_profiles(PROFILES, seed)
                             for seed in (1, 1, 2))
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)
        ratios = [math.log(wrong / right) for rows, truth in zip(
            one.time_sharing.rows, PROFILES.time_sharing.rows, strict=True)
            for wrong, right in zip(rows, truth, strict=True)
            if wrong > 1.0]
        deviation = (sum(value ** 2 for value in ratios) / len(ratios)) ** 0.5
        self.assertTrue(0.1 < deviation < 0.3, deviation)
        self.assertEqual(1.0, min(value for rows in one.space_sharing.rows
                                  for value in rows))

    def test_unknown_class_is_predicted_as_the_worst(self):
        model = SlowdownModel(PROFILES)
        self.assertEqual('', model.class_name(None))
        self.assertEqual('', model.class_name('new'))
        self.assertEqual('LS', model.class_name('LS'))
        # Beside Hadoop, the noisiest class.
        self.assertAlmostEqual(2.65, model.on_cpu(('', 'HL'))['HL'])


class TestHostRun(unittest.TestCase):

    def test_guest_alone_has_full_performance(self):
        found = run([guest('a', 'BS', length_s=1234.0)])
        self.assertEqual((1.0, 1234.0), (found.performance,
                                         found.guests[0].ended_s))
        self.assertEqual(1260.0, found.core_s)

    def test_batch_takes_longer_and_services_are_slower(self):
        # Two guests on one CPU: BS beside HL 1.92, HL beside BS 2.20.
        found = run([guest('a', 'BS', length_s=600.0),
                     guest('b', 'HL', length_s=3000.0)])
        batch, service = found.guests
        self.assertAlmostEqual(1152.0, batch.ended_s)
        self.assertAlmostEqual(1 / 1.92, batch.performance)
        self.assertAlmostEqual(3000.0, service.ended_s)
        # Slow for 39 steps, which begin before the batch guest ends.
        self.assertAlmostEqual(3000 / (1170 * 2.2 + 1830),
                               service.performance)
        self.assertEqual(batch.performance, found.slowest)

    def test_round_robin_keeps_cores_and_releases_them(self):
        found = run([guest('a', 'BS', length_s=600.0),
                     guest('b', 'BS', length_s=1800.0)],
                    round_robin.RoundRobinAffinity, hosts.one_socket(2),
                    period_s=0.0)
        self.assertEqual(1800.0 + 600.0, found.core_s)
        self.assertEqual(2 * 1800.0, found.kept_core_s)

    def test_kernel_leaves_no_cpu_idle_beside_a_busy_one(self):
        found = run([guest(str(number), 'BS') for number in range(4)],
                    topology=hosts.one_socket(4))
        self.assertEqual(1.0, found.slowest)

    def test_kaf_8_drivers_decide_every_60_seconds(self):
        times = []

        class Recorder(interference.InterferenceAffinity):
            def decide(self, view, previous):
                times.append(view.now_s)
                return super().decide(view, previous)

        run([guest('a', 'BS', length_s=290.0)], Recorder)
        self.assertEqual([0.0, 60.0, 120.0, 180.0, 240.0], times)

    def test_new_guests_wait_for_the_next_decision(self):
        guests = [guest('a', 'LL', 0.0), guest('b', 'HL', 30.0)]
        found = run(guests, interference.InterferenceAffinity,
                    hosts.one_socket(2), period_s=60.0)
        # The second floats to the free CPU for 30 s before it joins.
        self.assertEqual(1200.0 + 30 + 30, found.core_s)
        self.assertEqual(1, run(guests, interference.InterferenceAffinity,
                                hosts.one_socket(2), period_s=0.0).core_s
                         / 1230.0)

    def test_use_of_a_guest_that_woke_is_seen_a_period_later(self):
        guests = [guest('a', 'BS', phases=frozenset({0, 1})),
                  guest('b', 'BS', phases=frozenset({1}))]
        late, at_once = (run(guests, interference.InterferenceAffinity,
                             hosts.one_socket(2), period_s=period_s)
                         for period_s in (60.0, 0.0))
        self.assertEqual(1.0, at_once.performance)
        # For one of 20 minutes both are on the first CPU.
        self.assertAlmostEqual((60 * 0.5 + 1140) / 1200,
                               late.guests[1].performance)


class TestScenarios(unittest.TestCase):

    def test_same_seed_draws_the_same_guests(self):
        for draw in (scenarios.draw_random, scenarios.draw_latency):
            first = draw(12, 1, (1800.0, 3000.0))
            self.assertEqual(first, draw(12, 1, (1800.0, 3000.0)))
            self.assertNotEqual(first, draw(12, 2, (1800.0, 3000.0)))
            self.assertEqual([30.0 * place for place in range(12)],
                             [one.arrives_s for one in first])

    def test_latency_has_mostly_low_lamp(self):
        classes = [one.workload_class for one in scenarios.draw_latency(
            24, 1, (1800.0, 3000.0))]
        self.assertEqual((1, 2, 15), tuple(
            classes.count(one) for one in ('LS', 'HL', 'LL')))
        self.assertEqual(24, len(classes))
        self.assertEqual(1, len(scenarios.draw_latency(
            1, 1, (1800.0, 3000.0))))

    def test_as_many_as_asked_are_active(self):
        guests = scenarios.draw_dynamic(24, 6, 1)
        for phase in range(6):
            self.assertEqual(6, sum(one.is_active(phase * 1200.0 + 1)
                                    for one in guests))
