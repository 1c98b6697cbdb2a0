# SPDX-License-Identifier: Apache-2.0

"""Terms of leaders in the actions that they order."""

import threading
from unittest import mock

from oslo_db import exception as db_exception
from watcher import objects
from watcher.common import exception

from secondary_scheduler.leases.engine.values import LeaseOperation
from secondary_scheduler.watcher import actions, leader, terms
from secondary_scheduler.watcher.leases import action_plans
from tests.unit.watcher import fakes
from tests.unit.watcher.action_case import ActionCase
from tests.unit.watcher.leases import base


class ActionTermTest(ActionCase):

    def setUp(self):
        super().setUp()
        self.coordination = fakes.coordinate(self)
        self.coordination.renew()
        self.term = self.coordination.term
        for target, name, value in (
                (leader, 'shared', lambda: self.coordination),
                (terms, 'TAKEOVER_S', 0.0)):
            patcher = mock.patch.object(target, name, value)
            patcher.start()
            self.addCleanup(patcher.stop)

    def test_action_of_the_present_leader_begins(self):
        self.run_action(actions.Suspend, term=self.term)
        self.assertEqual('SUSPENDED', self.cloud.known[fakes.uid(1)].status)

    def test_action_of_an_earlier_leader_does_not_begin(self):
        for request in ('preempt', 'return'):
            plan = self.plan(self.audit(len(request)))
            own = self.action(plan, term=self.term - 1)
            with self.subTest(request), mock.patch.object(
                    terms, 'TAKEOVER_S', 0.6):
                self.assert_skipped(
                    actions.Suspend, 'another decision engine leads',
                    term=self.term - 1, request=request, action=own.uuid)

    def test_action_begins_when_its_leader_can_be_read_again(self):
        plan = self.plan(self.audit(5))
        own = self.action(plan, term=self.term)
        read, answers = self.coordination.read_leader, [
            db_exception.DBConnectionError, None]

        def read_later():
            answer = answers.pop(0)
            if answer is not None:
                raise answer
            return read()

        with mock.patch.object(terms, 'TAKEOVER_S', 5.0), mock.patch.object(
                self.coordination, 'read_leader', read_later):
            self.run_action(actions.Suspend, term=self.term, action=own.uuid)

    def test_action_fails_while_its_leader_cannot_be_read(self):
        with mock.patch.object(
                self.coordination, 'read_leader',
                side_effect=db_exception.DBConnectionError), \
                self.assertRaises(db_exception.DBError):
            self.make(actions.Suspend, term=self.term).pre_condition()
        self.assertEqual([], self.cloud.calls)

    def test_action_that_relieves_a_host_waits_for_the_new_leader(self):
        plan = self.plan(self.audit(5))
        own = self.action(plan, request='preempt', term=self.term - 1)
        timer = threading.Timer(
            0.3, lambda: terms.take_over_plans(self.term))
        timer.start()
        self.addCleanup(timer.join)
        with mock.patch.object(terms, 'TAKEOVER_S', 10.0):
            self.run_action(actions.Suspend, term=self.term - 1,
                            action=own.uuid)


class TakeoverTest(fakes.WatcherTestCase):

    def term(self, action):
        found = objects.Action.get_by_uuid(self.context, action.uuid)
        return found.state, found.input_parameters.get('term')

    def state(self, plan):
        return objects.ActionPlan.get_by_uuid(self.context, plan.uuid).state

    def test_plans_that_relieve_hosts_are_taken_over(self):
        for number, request in enumerate(('preempt', 'drain')):
            plan = self.plan(self.audit(number + 1), 'RECOMMENDED')
            waiting = self.action(plan, request=request, term=3)
            terms.take_over_plans(4)
            self.assertEqual(('PENDING', 4), self.term(waiting))
            self.assertEqual('RECOMMENDED', self.state(plan))

    def test_other_plans_are_cancelled_before_they_begin(self):
        unbegun, begun = (self.plan(self.audit(number)) for number in (1, 2))
        first = self.action(unbegun, request='leases', term=3)
        running = self.action(begun, request='return', term=3,
                              state='ONGOING')
        later = self.action(begun, request='return', term=3, instance=2)
        terms.take_over_plans(4)
        self.assertEqual(['CANCELLED', 'ONGOING'],
                         [self.state(one) for one in (unbegun, begun)])
        self.assertEqual(
            [('CANCELLED', 3), ('ONGOING', 3), ('PENDING', 3)],
            [self.term(one) for one in (first, running, later)])

    def test_plans_of_this_leader_and_of_operators_stay(self):
        plan = self.plan(self.audit(1), 'PENDING')
        own = self.action(plan, request='leases', term=4)
        by_hand = self.action(plan, request='return', instance=2)
        terms.take_over_plans(4)
        self.assertEqual([('PENDING', 4), ('PENDING', None)],
                         [self.term(one) for one in (own, by_hand)])


class LeasePlanTermTest(base.LeaseTestCase):

    def actions(self):
        return objects.Action.list(self.context, eager=True)

    def order(self):
        self.leases.create_plans([base.order(LeaseOperation.BOOT)],
                                 self.switch.uuid)

    def test_operations_of_leases_carry_the_term(self):
        self.order()
        self.assertEqual([self.coordination.term], [
            one.input_parameters['term'] for one in self.actions()])

    def test_former_leader_orders_nothing(self):
        self.leases.term -= 1
        with self.assertRaises(RuntimeError):
            self.order()
        self.assertEqual([], self.actions())
        self.applier.launch_action_plan.assert_not_called()

    def test_plans_whose_claim_was_lost_are_not_launched(self):
        with mock.patch.object(self.coordination, '_check_plans',
                               side_effect=RuntimeError), \
                self.assertRaises(RuntimeError):
            self.order()
        self.assertEqual(['CANCELLED'], [one.state for one in self.actions()])
        self.applier.launch_action_plan.assert_not_called()

    def test_operation_of_an_earlier_leader_is_no_failure(self):
        self.order()
        one, = self.actions()
        for term, failures in ((self.leases.term - 1, 0),
                               (self.leases.term, 1)):
            one.state, one.input_parameters = 'SKIPPED', {
                **one.input_parameters, 'term': term}
            one.save()
            found = action_plans.LeaseActionPlans(self.history)
            found.term = self.leases.term
            self.assertEqual(failures, len(found.find_ended().failures))

    def test_refused_action_says_why(self):
        with self.assertRaisesRegex(exception.ActionSkipped, 'leads'):
            self.order()
            one, = self.actions()
            made = base.lease_actions.Boot({})
            made.input_parameters = {
                **one.input_parameters, 'not_after': 4e9,
                'term': self.leases.term - 1}
            made.pre_condition()


class QueueTest(fakes.WatcherTestCase):

    def test_operations_that_wait_are_counted(self):
        launched, unlaunched = (
            self.plan(self.audit(number), state) for number, state in
            ((1, 'PENDING'), (2, 'RECOMMENDED')))
        self.action(launched, request='preempt')
        self.action(launched, request='leases', instance=2)
        self.action(launched, request='drain', instance=3, state='ONGOING')
        self.action(unlaunched, request='preempt', instance=4)
        found = terms.find_waiting()
        self.assertEqual((1, 1), (found.relief, found.other))
        self.assertLess(found.oldest_relief, 30)

