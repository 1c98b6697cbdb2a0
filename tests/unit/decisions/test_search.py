# SPDX-License-Identifier: Apache-2.0

"""Guided search: worked example of the thesis, and time limits."""

import unittest

from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.branches import Action, BranchVerdict
from secondary_scheduler.decisions.violations import Violation
from secondary_scheduler.plans.operations import OperationKind
from tests.unit.decisions import worked_example

MIG, SUSP, STOP = Action
RESOURCE, TIME, OK = BranchVerdict


class TestWorkedExample(unittest.TestCase):

    def test_trace_equals_the_table_of_the_thesis(self):
        self.assertEqual([
            ((('L5', MIG),), RESOURCE),
            ((('L1', SUSP), ('L5', MIG)), OK),
            ((('L4', MIG),), RESOURCE),
            ((('L2', SUSP), ('L4', MIG)), TIME),
            ((('L2', STOP), ('L4', MIG)), OK),
            ((('L3', MIG),), TIME),
            ((('L3', SUSP),), TIME),
            ((('L3', STOP),), OK)], worked_example.searched().trace)

    def test_chosen_actions_and_targets(self):
        search = worked_example.searched()
        self.assertEqual(
            (('L1', SUSP), ('L5', MIG), ('L2', STOP), ('L4', MIG),
             ('L3', STOP)), search.chosen)
        moved = [(step.old.uuid, step.old.host) for step in search.draft.steps
                 if step.kind is OperationKind.MIGRATE]
        self.assertEqual([('VM18', 'N1'), ('VM20', 'N6'), ('VM21', 'N3'),
                          ('VM15', 'N6')], moved)
        self.assertEqual([], search.failing())
        self.assertEqual(set(), search.lost)

    def test_search_with_stops_counted(self):
        search = worked_example.searched(count_stops=True)
        self.assertEqual((('L1', SUSP), ('L5', MIG), ('L4', STOP),
                          ('L3', STOP)), search.chosen)
        self.assertEqual(((('L2', STOP), ('L4', MIG)), TIME),
                         search.trace[4])

    def test_search_with_swapped_coefficients(self):
        search = worked_example.searched(migrate_base=3.75,
                                         migrate_each=0.85)
        self.assertEqual(((('L3', MIG),), OK), search.trace[5])
        self.assertEqual((('L1', SUSP), ('L5', MIG), ('L2', STOP),
                          ('L4', MIG), ('L3', MIG)), search.chosen)


class TestTime(unittest.TestCase):

    def test_search_ends_before_chosen_actions_are_late(self):
        """All leases are stopped as soon as the chosen actions would be late.

        The suspends of L1 take all of the 9 s, so no second is left for L4.
        """
        ticks = []

        def elapsed():
            return float(bool(search.chosen)) if ticks else 0.0

        driver = worked_example.decision()
        driver.elapsed = elapsed
        world = worked_example.cluster()
        found = [Violation(one.name, policy, 9.0)
                 for one in world.hosts.values() for policy in one.policies
                 if policy.violated]
        search = driver.search(world, found, Budget())
        ticks.append(True)
        search.run()
        self.assertEqual(
            (('L1', SUSP), ('L5', MIG), ('L4', STOP), ('L3', STOP)),
            search.chosen)
        self.assertEqual(2, len(search.trace))
        self.assertEqual([], search.failing())

    def test_elapsed_time_shortens_deadlines(self):
        # With 5 of 9 s left suspends are late, a single migration is not.
        search = worked_example.searched(elapsed=lambda: 4.0)
        self.assertEqual(((('L1', SUSP), ('L5', MIG)), TIME),
                         search.trace[1])
        self.assertEqual(((('L1', STOP), ('L5', MIG)), OK),
                         search.trace[2])
