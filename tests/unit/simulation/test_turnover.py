# SPDX-License-Identifier: Apache-2.0

"""Arrival, work and departure of instances."""

import dataclasses
import io
import json
import unittest

import numpy as np

from secondary_scheduler.plans.operations import OperationKind
from secondary_scheduler.simulation import profiles
from secondary_scheduler.simulation.engine import Simulation, Workload
from secondary_scheduler.simulation.record import Recorder
from secondary_scheduler.simulation.turnover import Arrivals
from secondary_scheduler.simulation.world import Shape, Status


def arrivals(times, cores=2.0, memory_mb=10.0, work=60.0):
    count = len(times)
    return Arrivals(np.array(times, dtype=float), np.zeros(count, dtype=int),
                    np.full(count, cores), np.full(count, memory_mb),
                    np.full(count, work), front=2)


def run(arriving, seconds=600, profile=profiles.OURS, places=3, load=10.0,
        **shape):
    """Run arrivals on two hosts of four cores.

    :returns: the simulation, its tally and its events.
    """
    log = io.StringIO()
    values = {'memory_mb': 25, 'boot': 5.0} | shape
    shape = Shape(1, 2, 4, (1,) * places, **values)
    record = Recorder(shape, ['run'], log)
    one = Simulation(Workload(
        shape, ('cpu <= 90% for 20s',), np.full((2 * seconds, 2), load),
        ((1, 2),), arrivals=arriving), profile, record)
    one.run()
    return one, record.tally, [json.loads(line)
                               for line in log.getvalue().splitlines()]


class TestTurnover(unittest.TestCase):

    def test_all_instances_finish_and_leave(self):
        for profile in profiles.PROFILES.values():
            with self.subTest(profile.name):
                one, tally, events = run(arrivals([0, 0, 0, 9.5, 50]),
                                         profile=profile)
                done = [event['instance'] for event in events
                        if event['event'] == 'result']
                self.assertEqual({f'{number:05}' for number in range(5)},
                                 set(done))
                self.assertEqual(5, len(done))
                self.assertTrue((one.world.status == Status.ABSENT).all())
                self.assertEqual(0, tally.lost[0])
                self.assertAlmostEqual(5 * 60, tally.kept[0], delta=5)

    def test_suspended_instance_returns_to_a_host_with_full_memory(self):
        for profile in (profiles.OURS, dataclasses.replace(
                profiles.OURS, spreads=False)):
            with self.subTest(spreads=profile.spreads):
                shape = Shape(1, 2, 4, (1,) * 2, memory_mb=25)
                one = Simulation(Workload(
                    shape, ('cpu <= 90% for 20s',), np.full((120, 2), 10.0),
                    ((1, 2),)), profile, Recorder(shape, ['run']))
                one.world.memory_mb[:] = 25
                one.world.status[:] = Status.SUSPENDED
                one.world.host[:] = 0, 1
                one.run()
                self.assertEqual([Status.RUNNING] * 2,
                                 one.world.status.tolist())

    def test_no_instance_starts_before_its_arrival(self):
        begun = {event['instance']: event['started'] for event in run(
            arrivals([0, 30, 200]))[2] if event['event'] == 'operation'}
        self.assertGreaterEqual(begun['00001'], 30)
        self.assertGreaterEqual(begun['00002'], 200)

    def test_instance_without_a_place_waits_in_order(self):
        _one, tally, events = run(arrivals([0] * 6), places=1, seconds=900)
        begun = [event['instance'] for event in events
                 if event['event'] == 'operation']
        self.assertEqual([f'{number:05}' for number in range(6)], begun)
        self.assertEqual(6, tally.counts[0]['result'])

    def test_memory_bounds_the_instances_of_a_host(self):
        for profile in (profiles.OURS, profiles.ORACLE):
            with self.subTest(profile.name):
                events = run(arrivals([0] * 6, work=300.0), places=6,
                             profile=profile)[2]
                most = max(len(event['vm']) for event in events
                           if event['event'] == 'sample')
                self.assertEqual(2, most)

    def test_no_instance_uses_more_than_its_cores(self):
        events = run(arrivals([0], cores=1.0))[2]
        used = [share for event in events if event['event'] == 'sample'
                for share in event['vm'].values()]
        self.assertAlmostEqual(25.0, max(used))

    def test_departure_during_an_operation_leaves_no_burden(self):
        one, tally, _events = run(arrivals([0], work=1e6), seconds=60)
        world, place = one.world, 0
        self.assertEqual(Status.RUNNING, world.status[place])
        source = int(world.host[place])
        one.operations.order(OperationKind.SUSPEND, [place], 60.0, 'local')
        self.assertTrue(world.busy[place])
        one.operations.depart(place, 61.0)
        self.assertFalse(world.busy.any())
        self.assertEqual({}, one.operations.flights)
        self.assertEqual(0, one.operations.burden[0, source])
        self.assertEqual(1, tally.counts[0]['failed'])
