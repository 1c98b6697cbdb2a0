# SPDX-License-Identifier: Apache-2.0

"""Planner on Watcher's real objects."""

from unittest import mock

from watcher import objects
from watcher.decision_engine.solution import default as solutions

from secondary_scheduler.watcher import (
    leader,
    planner,
)
from tests.unit.watcher import fakes


class PlannerTest(fakes.WatcherTestCase):
    def setUp(self):
        super().setUp()
        self.coordination = fakes.coordinate(self)
        self.coordination.renew()
        patcher = mock.patch.object(leader, 'shared',
                                    lambda: self.coordination)
        patcher.start()
        self.addCleanup(patcher.stop)
        self.one = self.audit(1, audit_type='ONESHOT')
        made = mock.Mock()
        made.name = 'secondary_workloads'
        made.goal.name = 'secondary'
        self.solution = solutions.DefaultSolution(mock.Mock(), made)

    def add(self, number, instance, after=(), kind='suspend', source='h1'):
        self.solution.add_action(
            'secondary_' + kind, resource_id=fakes.uid(instance),
            input_parameters={
                'operation_id': number, 'after': list(after),
                'source': source, 'batch': 'b'})

    def schedule(self):
        return planner.SecondaryPlanner({}).schedule(
            self.context, self.one.id, self.solution)

    def actions(self, plan):
        return {a.input_parameters['operation_id']: a
                for a in objects.Action.list(self.context, filters={
                    'action_plan_id': plan.id})}

    def test_operations_become_actions_with_parents(self):
        self.add(7, 1)
        self.add(8, 2)
        self.add(9, 3, after=(7, 8))
        plan = self.schedule()
        found = self.actions(plan)
        self.assertEqual([], found[7].parents)
        parents = [found[7].uuid, found[8].uuid]
        self.assertEqual(parents, found[9].parents)
        self.assertEqual(found[9].uuid,
                         found[9].input_parameters['action'])
        self.assertEqual(parents, found[9].input_parameters['parents'])
        self.assertEqual('RECOMMENDED', plan.state)

    def terms(self, plan):
        return {number: one.input_parameters.get('term')
                for number, one in self.actions(plan).items()}

    def test_actions_carry_the_term_of_the_leader(self):
        self.add(1, 1)
        self.assertEqual({1: self.coordination.term},
                         self.terms(self.schedule()))

    def test_plan_that_an_operator_launches_has_no_term(self):
        self.one.auto_trigger = False
        self.one.save()
        self.add(1, 1)
        self.assertEqual({1: None}, self.terms(self.schedule()))

    def test_plan_whose_claim_was_lost_is_cancelled(self):
        self.add(1, 1)
        with mock.patch.object(self.coordination, '_check_plans',
                               side_effect=RuntimeError), \
                self.assertRaises(RuntimeError):
            self.schedule()
        plan, = objects.ActionPlan.list(self.context)
        self.assertEqual(('CANCELLED', 'CANCELLED'),
                         (plan.state, self.actions(plan)[1].state))

    def test_empty_plan_has_succeeded(self):
        self.assertEqual('SUCCEEDED', self.schedule().state)

    def test_consecutive_empty_results_share_one_plan(self):
        def say(value):
            self.solution._efficacy_indicators = [mock.Mock(
                description='', unit=None, value=value)]
            self.solution._efficacy_indicators[0].name = 'unresolved'
            return self.schedule()

        def said(plan):
            return [one.value for one in objects.EfficacyIndicator.list(
                self.context, filters={'action_plan_id': plan.id})]
        with mock.patch.object(
                type(self.solution), 'efficacy_indicators', property(
                    lambda solution: solution._efficacy_indicators)):
            first = say(1.0)
            self.assertEqual([1.0], said(first))
            self.assertEqual(first.uuid, say(2.0).uuid)
            self.assertEqual([2.0], said(first))
            first.state = 'ONGOING'     # an applier runs it
            first.save()
            second = say(3.0)
            self.assertEqual([[2.0], [3.0]], [said(first), said(second)])
            self.add(1, 1)
            full = say(4.0)
            full.state = 'SUCCEEDED'
            full.save()
            self.solution._actions = []
            self.assertNotIn(say(5.0).uuid, (second.uuid, full.uuid))
            self.assertEqual([4.0], said(full))

    def test_plan_is_dropped_if_another_plan_works_on_its_instances(self):
        other = self.plan(self.audit(2))
        self.action(other, instance=1, source='h5')
        self.add(1, 1)
        self.add(2, 2)
        plan = self.schedule()
        self.assertEqual('CANCELLED', plan.state)
        self.assertIn('Dropped', plan.status_message)
        self.assertEqual({}, self.actions(plan))
        child, = (c for c in self.history.one_shot_audits(60)
                  if c.uuid == self.one.uuid)
        self.assertTrue(child.failed)

    def test_plan_claims_its_instances_and_hosts(self):
        self.add(1, 1)
        self.assertEqual(1, len(self.actions(self.schedule())))
        self.solution._actions = []
        self.add(1, 2, source='h1')
        self.assertEqual({}, self.actions(self.schedule()))
        self.solution._actions = []
        self.add(1, 2, source='h2')
        self.assertEqual(1, len(self.actions(self.schedule())))

    def test_members_of_a_lease_are_claimed(self):
        other = self.plan(self.audit(2))
        self.action(other, instance=2, source='h5')
        self.solution.add_action(
            'secondary_suspend_lease', resource_id=fakes.uid(1),
            input_parameters={
                'operation_id': 1, 'after': [], 'lease': 'l', 'batch': 'b',
                'members': [{'resource_id': fakes.uid(number),
                             'source': f'h{number}'} for number in (1, 2)]})
        self.assertEqual('CANCELLED', self.schedule().state)
        other.state = 'SUCCEEDED'
        other.save()
        action, = self.actions(self.schedule()).values()
        self.assertEqual([fakes.uid(1), fakes.uid(2)], [
            one['resource_id'] for one in action.input_parameters['members']])
