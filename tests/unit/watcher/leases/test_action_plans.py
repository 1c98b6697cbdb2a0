# SPDX-License-Identifier: Apache-2.0

"""Action plans for operations of leases."""

import dataclasses
import datetime
import time
import unittest
from unittest import mock

from oslo_utils import timeutils
from watcher import objects

from secondary_scheduler.estimation.learning import Point
from secondary_scheduler.leases.engine.values import (
    LeaseOperation,
    Nature,
)
from secondary_scheduler.watcher import (
    actions,
    outcomes,
    planner,
    settings,
)
from secondary_scheduler.watcher.duration_record import DurationRecord
from secondary_scheduler.watcher.leases import action_plans
from secondary_scheduler.watcher.leases import actions as lease_actions
from tests.unit.watcher import fakes
from tests.unit.watcher.leases import base


class LeaseActionPlansTest(base.LeaseTestCase):

    def actions(self):
        return objects.Action.list(self.context, sort_key='id', eager=True)

    def end(self, action, state, message=''):
        action.state, action.status_message = state, message
        action.save()

    def test_orders_become_a_plan_of_the_switch(self):
        self.leases.create_plans(
            [
                base.order(LeaseOperation.BOOT, at=5.0),
                base.order(
                    LeaseOperation.SUSPEND,
                    1,
                    server=fakes.uid(1),
                    expected=3.456,
                ),
            ],
            self.switch.uuid,
        )
        (plan,) = objects.ActionPlan.list(self.context, eager=True)
        self.assertEqual(('PENDING', self.switch.id),
                         (plan.state, plan.audit_id))
        self.applier.launch_action_plan.assert_called_once_with(
            mock.ANY, plan.uuid)
        boot, suspend = self.actions()
        self.assertEqual(
            ('secondary_boot', base.LEASE, 'h1', 5.0, 65.0, 'trust'),
            (boot.action_type, *(boot.input_parameters[name] for name in (
                'resource_id', 'target', 'not_before', 'not_after',
                'trust'))))
        self.assertEqual(
            ('secondary_suspend', fakes.uid(1), 'h1', 3.46),
            (suspend.action_type, *(
                suspend.input_parameters[name] for name in (
                    'resource_id', 'source', 'expected'))))
        for one, kind in ((boot, lease_actions.Boot),
                          (suspend, actions.Suspend)):
            made = kind(mock.Mock(), mock.Mock())
            made.input_parameters = one.input_parameters
            made.validate_parameters()
        self.assertEqual(({(base.LEASE, 0), (base.LEASE, 1)}, {}),
                         self.leases.find_pending()[:2])
        # The strategy leaves these servers alone, and counts no preemption.
        self.assertIn(fakes.uid(1), self.history.locks().busy_instances)
        self.assertEqual(set(), self.history.preempted_lately())

    def test_server_that_another_plan_works_on_is_left_out(self):
        self.action(self.plan(self.switch), instance=1)
        self.leases.create_plans(
            [base.order(LeaseOperation.SUSPEND, server=fakes.uid(1))],
            self.switch.uuid)
        self.assertEqual(1, len(self.actions()))
        self.applier.launch_action_plan.assert_not_called()

    def test_actions_of_others_hide_none(self):
        self.leases.create_plans([base.order(LeaseOperation.BOOT)],
                                 self.switch.uuid)
        own = self.actions()[0]
        others = self.plan(self.switch)
        for number in range(510):   # more than a limit that there was once
            self.action(others, instance=1000 + number)
        self.assertEqual({(base.LEASE, 0)}, self.leases.find_pending().nodes)
        self.end(own, 'FAILED', 'why')
        for one in objects.Action.list(self.context):
            objects.Action.dbapi.update_action(one.uuid, {'state': 'FAILED'})
        self.assertEqual(1, len(self.leases.find_ended().failures))

    def order(self, *nodes):
        self.leases.create_plans(
            [base.order(LeaseOperation.BOOT, node) for node in nodes],
            self.switch.uuid)

    def test_leases_leave_workers_of_the_applier_to_relief(self):
        settings.CONF.set_override('workers', 4, 'watcher_applier')
        self.addCleanup(settings.CONF.clear_override, 'workers',
                        'watcher_applier')
        free = [self.leases.find_pending().free]
        for nodes in (range(3), range(3, 4)):
            self.order(*nodes)
            free.append(self.leases.find_pending().free)
        for action in self.actions()[:3]:
            self.end(action, 'SUCCEEDED')
        free.append(self.leases.find_pending().free)
        self.assertEqual([16, 8, 0, 8], free)

    def test_few_workers_carry_out_one_plan_with_an_error(self):
        settings.CONF.set_override('workers', 2, 'watcher_applier')
        self.addCleanup(settings.CONF.clear_override, 'workers',
                        'watcher_applier')
        with self.assertLogs(action_plans.__name__, 'ERROR') as logs:
            found = [self.leases.find_pending().free for _ in range(2)]
        self.assertEqual(([8, 8], 1), (found, len(logs.output)))
        self.order(0)
        self.assertEqual(0, self.leases.find_pending().free)

    def test_failures_count_until_a_success(self):
        self.leases.create_plans(
            [base.order(LeaseOperation.SUSPEND, node,
                        server=fakes.uid(node + 1))
             for node in range(3)], self.switch.uuid)
        first, second, third = self.actions()
        self.end(first, 'SUCCEEDED', DurationRecord(
            2.5, time.time(), 512).to_message())
        self.end(second, 'FAILED', outcomes.format_failure(
            'suspend', fakes.uid(2), Nature.PERMANENT, 'why'))
        self.assertEqual(({(base.LEASE, 2)}, {}),
                         self.leases.find_pending()[:2])
        ended = self.leases.find_ended()
        self.assertEqual([Point(LeaseOperation.SUSPEND, 1, 2.5, 512)],
                         ended.took)
        self.assertEqual(
            {
                ((base.LEASE, 1), LeaseOperation.SUSPEND): (
                    1,
                    'why',
                    Nature.PERMANENT,
                )
            },
            {
                key: (one.count, one.why, one.nature)
                for key, one in ended.failures.items()
            },
        )
        self.assertAlmostEqual(time.time(), ended.failures[
            (base.LEASE, 1), LeaseOperation.SUSPEND].last, delta=30)
        self.leases.create_plans(
            [base.order(LeaseOperation.SUSPEND, 1, server=fakes.uid(2))],
            self.switch.uuid,
        )
        self.end(self.actions()[-1], 'SUCCEEDED')
        self.assertEqual({}, self.leases.find_ended().failures)

    def test_ended_actions_are_read_once(self):
        self.leases.create_plans([base.order(LeaseOperation.BOOT)],
                                 self.switch.uuid)
        (action,) = self.actions()
        self.end(action, 'FAILED', 'why')
        self.assertEqual(1, len(self.leases.find_ended().failures))
        long_ago = timeutils.utcnow() - datetime.timedelta(minutes=50)
        self.leases._ended[action.id].updated_at = long_ago
        with mock.patch.object(self.leases, '_actions', return_value=[]
                               ) as asked:
            self.assertEqual(1, len(self.leases.find_ended().failures))
            self.assertEqual(
                datetime.timedelta(minutes=1),
                long_ago - asked.call_args.kwargs['updated_at__gt'])
            self.leases._ended[action.id].updated_at = (
                long_ago - datetime.timedelta(minutes=11))
            self.assertEqual({}, self.leases.find_ended().failures)

    def test_fetch_of_an_image_holds_no_locks(self):
        self.leases.create_plans(
            [base.order(LeaseOperation.CACHE_IMAGE),
             base.order(LeaseOperation.BOOT, 1)],
            self.switch.uuid,
        )
        asking, boot = self.actions()
        made = lease_actions.CacheImage(mock.Mock(), mock.Mock())
        made.input_parameters = asking.input_parameters
        made.validate_parameters()
        places, asked, _ = self.leases.find_pending()
        self.assertEqual({(base.LEASE, 1)}, places)
        self.assertEqual({('h1', 'debian')}, asked.keys())
        self.end(boot, 'FAILED', 'why')
        self.assertEqual(frozenset(), self.history.locks().busy_hosts)
        self.end(asking, 'SUCCEEDED')
        self.assertEqual(frozenset(), self.history.locks().cooling_down_hosts)
        self.assertEqual((frozenset(), {}), self.leases.find_pending()[:2])
        ended = self.leases.find_ended()
        self.assertEqual(set(), ended.used)
        self.assertAlmostEqual(time.time(), ended.asked['h1', 'debian'],
                               delta=30)
        without = dataclasses.replace(
            base.order(LeaseOperation.BOOT, 2),
            build=dataclasses.replace(base.SPEC, image=None),
        )
        self.leases.create_plans(
            [base.order(LeaseOperation.BOOT, 1, host='h2'), without],
            self.switch.uuid)
        for one in self.actions()[-2:]:
            self.end(one, 'SUCCEEDED')
        self.assertEqual({('h2', 'debian')}, self.leases.find_ended().used)

    def test_large_orders_become_several_plans(self):
        self.leases.create_plans(
            [base.order(LeaseOperation.BOOT, node) for node in range(9)],
            self.switch.uuid,
        )
        self.assertEqual(2, len(objects.ActionPlan.list(self.context)))

    def test_planner_drops_actions_on_the_same_server(self):
        self.leases.create_plans(
            [base.order(LeaseOperation.SUSPEND, server=fakes.uid(1))],
            self.switch.uuid)
        self.assertEqual(
            {fakes.uid(1)}, planner.SecondaryPlanner._claimed_by_others([
                {'input_parameters': {'resource_id': fakes.uid(1)}}]))


if __name__ == '__main__':
    unittest.main()
