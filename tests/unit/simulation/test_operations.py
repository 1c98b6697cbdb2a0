"""What operations do to the world, and how long they take."""

import dataclasses
import unittest
from unittest import mock

import numpy as np

from secondary_scheduler.policies import language
from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.engine import (
    SIMULATED,
    Simulation,
    Workload,
)
from secondary_scheduler.simulation.experiments import changes
from secondary_scheduler.simulation.experiments.base import Context
from secondary_scheduler.simulation.record import Recorder
from secondary_scheduler.simulation.world import Shape, Status


def simulation(profile, leases, seconds, *policies, **values):
    """Return a run of two idle hosts, and its tally."""
    shape = Shape(1, 2, 2, leases)
    record = Recorder(shape, ['run'])
    one = Simulation(Workload(
        shape, policies or ('slots <= 2 for 10s',),
        np.zeros((2 * seconds, 2)), ((1, 2),), **values), profile, record)
    return one, record.tally


class TestDurations(unittest.TestCase):

    def ends(self, **knobs):
        profile = dataclasses.replace(profiles.THESIS, noise=0.0,
                                      throttles_boot=False, **knobs)
        one, tally = simulation(profile, (1, 1), 40, placed=True)
        one.run()
        return [seen.end - seen.begin for seen, _estimate
                in tally.durations[0]]

    def test_the_kth_of_n_ends_at_a_plus_b_k(self):
        self.assertEqual([22.0, 23.0], self.ends())

    def test_congestion_slows_both(self):
        self.assertEqual([23.0, 23.0], self.ends(congestion=True))


class TestPolicies(unittest.TestCase):

    def test_what_is_not_simulated_is_refused(self):
        for resource in language.MODELLED:
            policy = language.EXAMPLES[resource].partition(' on ')[0]
            if resource in SIMULATED:
                simulation(profiles.OURS, (1,), 1, policy)
                continue
            with self.subTest(resource), self.assertRaisesRegex(
                    ValueError, f"'{resource} .*, net_out, slots or cores"):
                simulation(profiles.OURS, (1,), 1, policy)


class TestFailures(unittest.TestCase):

    def test_a_failed_start_is_tried_again(self):
        profile = dataclasses.replace(profiles.THESIS, failures=0.5,
                                      backoff_s=0.0)
        one, tally = simulation(profile, (1, 1), 400)
        one.run()
        self.assertTrue(tally.counts[0]['failed'])
        self.assertTrue((one.world.status == Status.RUNNING).all())

    def test_a_lease_that_fails_to_start_is_cleaned_up(self):
        one, tally = simulation(dataclasses.replace(
            profiles.OURS, failures=0.4), (3,), 900)
        halves = 0

        def look(_second):
            nonlocal halves
            running = one.world.status == Status.RUNNING
            halves += bool(running.any() and not running.all()
                           and not one.operations.flights)
        one.run(look)
        self.assertTrue(tally.counts[0]['failed'])
        self.assertTrue((one.world.status == Status.RUNNING).all())
        self.assertEqual(0, halves)

    def test_after_a_kill_the_whole_lease_waits(self):
        one, tally = simulation(profiles.THESIS, (2,), 60, placed=True)
        one.run()
        one.operations.kill(0, 60.0)
        self.assertEqual({Status.STOPPED}, set(one.world.status.tolist()))
        self.assertEqual((1, 120.0), (tally.counts[0]['kill'],
                                      one.world.hold_until[0]))
        self.assertGreater(tally.lost[0], 0)


class TestClearing(unittest.TestCase):

    def clear(self, profile, timelimit):
        with mock.patch.multiple(changes, CLEARED=(6,),
                                 TIMELIMITS=(timelimit,)):
            return {name.split('_6_')[0]: value for name, (value,) in
                    changes.clearing(Context(profile, (1,))).items()}

    def test_thesis_stops_only_where_time_is_short(self):
        short = self.clear(profiles.THESIS, 5)
        self.assertEqual((0, 0), (short['suspends'], short['migrations']))
        self.assertGreater(short['stops'], 0)
        long = self.clear(profiles.THESIS, 50)
        self.assertEqual(0, long['stops'] + long['work_lost_core_s'])
        self.assertGreater(long['migrations'], 0)

    def test_ours_loses_nothing_however_short_the_time(self):
        found = self.clear(profiles.OURS, 5)
        self.assertEqual(0, found['stops'] + found['kills']
                         + found['invalidations'] + found['work_lost_core_s'])
        self.assertLessEqual(found['clear_s'], 5)
