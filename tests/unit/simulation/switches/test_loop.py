# SPDX-License-Identifier: Apache-2.0

"""Control loop of a cluster with jobs."""

import unittest

from secondary_scheduler.model.configuration import MemberState, Move, Switch
from secondary_scheduler.model.operation_kinds import OperationKind
from secondary_scheduler.simulation.experiments import entropy_cluster
from secondary_scheduler.simulation.switches import loop as loops
from secondary_scheduler.simulation.switches.loop import UseSample
from secondary_scheduler.simulation.switches.profiles import THESIS
from secondary_scheduler.simulation.switches.world import JobWorld
from tests.unit.simulation.switches.test_jobs import job


def run(jobs, decide, profile=THESIS):
    """Run a loop with a decision of its own."""
    found = loops.ControlLoop(JobWorld(jobs, 0, False), profile, decide)
    found.run()
    return found


def boot_and_delete(current, queue, running_s):
    """Boot each job on hosts of its own, and delete what has ended."""
    pool = []
    for number, one in enumerate(current.members.values()):
        if one.state is MemberState.WAITING:
            pool.append(Move(OperationKind.BOOT, one.name, one.lease, None,
                             f'host{1 + number % 11}', one.memory_mb))
        elif (one.lease not in queue
              and one.state is MemberState.RUNNING):
            pool.append(Move(OperationKind.DELETE, one.name, one.lease,
                             one.host, None, one.memory_mb))
    return Switch((tuple(pool),) if pool else (), current)


class TestControlLoop(unittest.TestCase):

    def test_decisions_are_a_period_apart(self):
        asked = []

        def decide(current, queue, running_s):
            asked.append((current.members['job-1'].state, dict(running_s)))
            return boot_and_delete(current, queue, running_s)

        found = run([job()], decide)
        self.assertEqual(5, len(asked))     # at 0, 30, 60, 90 and 120
        self.assertEqual({'job': 24.0}, asked[1][1])
        self.assertEqual([(0, 6), (120, 121)], [
            (one.decided_s, one.ended_s) for one in found.rounds])
        self.assertAlmostEqual(96, entropy_cluster.makespan_s(found))

    def test_no_decision_before_measurements_are_new(self):
        asked = []

        def decide(current, queue, running_s):
            asked.append(current)
            if len(asked) == 2:
                pool = tuple(Move(
                    OperationKind.SUSPEND, one.name, one.lease, one.host,
                    None, one.memory_mb) for one in current.members.values())
                return Switch((pool,), current)
            if len(asked) == 3:
                pool = tuple(Move(
                    OperationKind.RESUME, one.name, one.lease, one.host,
                    one.host, one.memory_mb)
                    for one in current.members.values())
                return Switch((pool,), current)
            return boot_and_delete(current, queue, running_s)

        found = run([job()], decide)
        # Nine suspensions of 22.5 s start 1 s apart.
        self.assertEqual([0, 30, 70.5], [
            one.decided_s for one in found.rounds[:3]])
        self.assertEqual(60.5, found.rounds[1].ended_s)
        self.assertEqual((('job', 24.0),), found.rounds[1].displaced)
        self.assertEqual(0, found.mixed)

    def test_jobs_that_never_run_are_an_error(self):
        with self.assertRaisesRegex(loops.StarvationError, 'job'):
            run([job()], lambda current, queue, running_s:
                Switch((), current))

    def test_longest_excess_is_that_of_demand_over_all_units(self):
        found = loops.ControlLoop(JobWorld([job()], 0, False), THESIS,
                                  boot_and_delete)
        found.samples = [UseSample(second, wanted, 0) for second, wanted in (
            (0, 22), (10, 29), (20, 32), (40, 22), (50, 23), (55, 3))]
        self.assertEqual(30, entropy_cluster.longest_excess(found))
