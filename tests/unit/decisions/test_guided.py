"""The guided search: the thesis's example, its orders, and our cases."""

import unittest

from secondary_scheduler.decisions.base import Request
from secondary_scheduler.decisions.search import (
    Action,
    Verdict,
    low_actions,
    low_order,
)
from secondary_scheduler.plans import checker
from secondary_scheduler.plans.operations import Kind
from tests.unit.decisions import worked_example

MIG, SUSP, STOP = Action
RESOURCE, TIME, OK = Verdict


class TestOrders(unittest.TestCase):

    def test_low_is_the_thesis_example(self):
        self.assertEqual(
            [('L4',), ('L5',), ('L4', 'L5'), ('L6',), ('L4', 'L6'),
             ('L5', 'L6'), ('L4', 'L5', 'L6')],
            list(low_order(['L4', 'L5', 'L6'])))
        self.assertEqual([], list(low_order([])))

    def test_low_is_never_materialised(self):
        order = low_order(range(500))
        self.assertEqual([(0,), (1,), (0, 1)], [next(order)
                                                for _ in range(3)])

    def test_the_highest_of_a_subset_decides(self):
        # X2: compare the maxima, then the rest; the empty set is smallest.
        subsets = list(low_order(range(6)))
        self.assertEqual(63, len(set(subsets)))
        self.assertEqual(subsets, sorted(
            subsets, key=lambda one: one[::-1]))

    def test_the_lowest_is_stopped_first(self):
        self.assertEqual([()], list(low_actions(0)))
        self.assertEqual([(SUSP,), (STOP,)], list(low_actions(1)))
        self.assertEqual([(SUSP, SUSP), (STOP, SUSP), (SUSP, STOP),
                          (STOP, STOP)], list(low_actions(2)))
        three = list(low_actions(3))
        self.assertEqual(8, len(set(three)))
        self.assertEqual((STOP, SUSP, SUSP), three[1])
        self.assertEqual((SUSP, STOP, STOP), three[6])


class TestWorkedExample(unittest.TestCase):

    def test_every_step_of_the_table(self):
        self.assertEqual([
            ((('L5', MIG),), RESOURCE),
            ((('L1', SUSP), ('L5', MIG)), OK),
            ((('L4', MIG),), RESOURCE),
            ((('L2', SUSP), ('L4', MIG)), TIME),
            ((('L2', STOP), ('L4', MIG)), OK),
            ((('L3', MIG),), TIME),
            ((('L3', SUSP),), TIME),
            ((('L3', STOP),), OK)], worked_example.searched().trace)

    def test_the_plan(self):
        search = worked_example.searched()
        self.assertEqual(
            (('L1', SUSP), ('L5', MIG), ('L2', STOP), ('L4', MIG),
             ('L3', STOP)), search.chosen)
        moved = [(step.old.uuid, step.old.host) for step in search.draft.steps
                 if step.kind is Kind.MIGRATE]
        self.assertEqual([('VM18', 'N1'), ('VM20', 'N6'), ('VM21', 'N3'),
                          ('VM15', 'N6')], moved)
        self.assertEqual([], search.failing())
        self.assertEqual(set(), search.lost)

    def test_stops_counted(self):
        search = worked_example.searched(count_stops=True)
        self.assertEqual((('L1', SUSP), ('L5', MIG), ('L4', STOP),
                          ('L3', STOP)), search.chosen)
        self.assertEqual(((('L2', STOP), ('L4', MIG)), TIME),
                         search.trace[4])

    def test_swapped_coefficients(self):
        search = worked_example.searched(migrate_base=3.75,
                                         migrate_each=0.85)
        self.assertEqual(((('L3', MIG),), OK), search.trace[5])
        self.assertEqual((('L1', SUSP), ('L5', MIG), ('L2', STOP),
                          ('L4', MIG), ('L3', MIG)), search.chosen)

    def test_as_a_decision(self):
        world = worked_example.cluster()
        budget = worked_example.Budget()
        plan = worked_example.decision().decide(
            world, Request('preempt'), budget)
        self.assertEqual([], checker.check(world, plan))
        self.assertEqual((), plan.unresolved)
        self.assertFalse(plan.truncated)
        self.assertEqual(16, len(plan.operations))
