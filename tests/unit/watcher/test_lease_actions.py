# SPDX-License-Identifier: Apache-2.0

"""Actions on the members of a lease together."""

import threading
import time
from unittest import mock

from watcher.common import exception

from secondary_scheduler.watcher import (
    cloud_errors,
    cloud_snapshot,
    lease_actions,
)
from secondary_scheduler.watcher.secondary_action import NothingToDo
from tests.unit.watcher import fakes
from tests.unit.watcher.action_case import ActionCase

ONE, TWO, THREE = map(fakes.uid, (1, 2, 3))


class LeaseActionCase(ActionCase):
    def setUp(self):
        super().setUp()
        self.cloud.known = {one.uuid: one for one in (
            fakes.server(1, 'h1'), fakes.server(2, 'h2'),
            fakes.server(3, 'h1'))}
        self.use_interval(0.0)

    def use_interval(self, seconds):
        patcher = mock.patch.object(lease_actions, 'START_INTERVAL_S',
                                    seconds)
        patcher.start()
        self.addCleanup(patcher.stop)

    def make_lease(self, cls=lease_actions.SuspendLease, numbers=(1, 2, 3),
                   **parameters):
        members = [{'resource_id': fakes.uid(number),
                    'source': 'h2' if number == 2 else 'h1'}
                   for number in numbers]
        made = cls({})
        made.input_parameters = {
            'resource_id': members[0]['resource_id'], 'members': members,
            'batch': 'b', 'operation_id': 1, 'after': [],
            'request': 'select', 'lease': 'l', **parameters}
        self.assertTrue(made.validate_parameters())
        return made

    def run_lease(self, *args, **parameters):
        made = self.make_lease(*args, **parameters)
        made.pre_condition()
        self.assertTrue(made.execute())

    def fails(self, made):
        with self.assertRaises(exception.ActionExecutionFailure) as caught:
            made.pre_condition()
            made.execute()
        return str(caught.exception)

    def states(self):
        return [self.cloud.known[one].status for one in (ONE, TWO, THREE)]

    def verbs(self, verb):
        return [call[1] for call in self.cloud.calls if call[0] == verb]

    def suspended(self):
        for number in (1, 2, 3):
            self.cloud.change(number, status='SUSPENDED', metadata={
                cloud_snapshot.PREEMPTED: 'x'})


class LeaseOperationTest(LeaseActionCase):
    def test_members_are_suspended_in_order_and_marked(self):
        self.use_interval(0.05)
        self.run_lease()
        self.assertEqual(['SUSPENDED'] * 3, self.states())
        self.assertEqual([ONE, TWO, THREE], self.verbs('suspend'))
        for server in self.cloud.known.values():
            self.assertRegex(server.metadata[cloud_snapshot.PREEMPTED],
                             r'^select@')

    def test_members_are_resumed_and_lose_their_mark(self):
        self.suspended()
        self.run_lease(lease_actions.ResumeLease)
        self.assertEqual(['ACTIVE'] * 3, self.states())
        self.assertEqual({}, self.cloud.known[TWO].metadata)

    def test_resumed_members_wait_at_the_floor_for_the_last_one(self):
        self.suspended()
        during = []
        self.cloud.during['resume'] = lambda: (
            during.append(self.agents.await_lease.call_args_list[:]),
            [self.cloud.change(number, status='ACTIVE')
             for number in (1, 2, 3)])
        self.run_lease(lease_actions.ResumeLease)
        places = [('h1', ONE), ('h2', TWO), ('h1', THREE)]
        self.assertEqual([(*place, 15.0) for place in places],
                         [call.args for call in during[0]])
        self.assertEqual([(*place, 0) for place in places], [
            call.args
            for call in self.agents.await_lease.call_args_list[-3:]])

    def test_floor_ends_after_a_failed_resume(self):
        self.suspended()
        self.cloud.during['resume'] = lambda: None
        self.fails(self.make_lease(lease_actions.ResumeLease))
        self.assertEqual([0] * 3, [
            call.args[2]
            for call in self.agents.await_lease.call_args_list[-3:]])

    def test_operations_start_at_intervals_and_overlap(self):
        self.use_interval(0.2)
        starts, together = [], threading.Barrier(3, timeout=5)

        def begin():
            starts.append(time.monotonic())
            together.wait()     # only if all run at the same time
            for number in (1, 2, 3):
                self.cloud.change(number, status='SUSPENDED')
        self.cloud.during['suspend'] = begin
        self.run_lease()
        first, second, third = starts
        self.assertAlmostEqual(0.2, second - first, delta=0.1)
        self.assertAlmostEqual(0.4, third - first, delta=0.1)

    def test_demand_of_each_member_is_stored(self):
        made = self.make_lease(numbers=(1, 2))
        made.input_parameters['members'][1]['wanted_cpu'] = 0.25
        made.pre_condition()
        made.execute()
        self.assertEqual('0.250', self.cloud.known[TWO].metadata[
            cloud_snapshot.WANTED_CPU])
        self.assertNotIn(cloud_snapshot.WANTED_CPU,
                         self.cloud.known[ONE].metadata)
        self.assertEqual(0.25, self.cloud.known[TWO].wanted_cpu)

    def test_use_of_each_member_is_stored_until_it_returns(self):
        made = self.make_lease(numbers=(1, 2))
        made.input_parameters['members'][1]['used'] = {
            'net_in': 25.0, 'disk_out': 0.5}
        made.pre_condition()
        made.execute()
        self.assertEqual('disk_out=0.500 net_in=25.000', self.cloud.known[
            TWO].metadata[cloud_snapshot.USED])
        self.assertEqual({}, self.cloud.known[ONE].used)
        self.assertEqual({'net_in': 25.0, 'disk_out': 0.5},
                         self.cloud.known[TWO].used)
        self.run_lease(lease_actions.ResumeLease, numbers=(1, 2))
        self.assertNotIn(cloud_snapshot.USED, self.cloud.known[TWO].metadata)

    def test_mean_duration_of_the_members_is_recorded(self):
        noted = self.action(self.plan(self.audit(1)))
        self.run_lease(action=noted.uuid)
        noted.refresh()
        self.assertRegex(noted.status_message,
                         r'^Took \d\.\d\d s until 2.* for 512 MiB$')

    def test_members_saved_on_one_disk_need_room_together(self):
        self.agents.hand_over.return_value = {'ok': True,
                                              'save_free_mb': 1100}
        why = self.fails(self.make_lease())
        self.assertIn('1024 MiB do not fit on the disk of h1', why)
        self.assertEqual(['ACTIVE'] * 3, self.states())


class PreconditionTest(LeaseActionCase):
    def test_deleted_and_suspended_members_are_left_out(self):
        del self.cloud.known[ONE]
        self.cloud.change(2, status='SUSPENDED')
        self.run_lease()
        self.assertEqual([THREE], self.verbs('suspend'))

    def test_member_in_another_state_skips_the_lease(self):
        for changes, text in (({'status': 'RESCUE'}, 'RESCUE'),
                              ({'task_state': 'rebooting'}, 'rebooting'),
                              ({'host': 'h3'}, 'on h3 now')):
            self.cloud.known[THREE] = fakes.server(3, 'h1')
            self.cloud.change(3, **changes)
            with self.assertRaises(exception.ActionSkipped) as caught:
                self.make_lease().pre_condition()
            self.assertNotIsInstance(caught.exception, NothingToDo)
            self.assertIn(text, str(caught.exception))
            self.assertIn('nothing was started', str(caught.exception))
            self.assertEqual([], self.cloud.calls)

    def test_nothing_to_do_is_skipped(self):
        self.cloud.known.clear()
        with self.assertRaises(exception.ActionSkipped):
            self.make_lease().pre_condition()

    def test_failed_parent_skips_the_lease(self):
        parent = self.action(self.plan(self.audit(1)), state='FAILED')
        with self.assertRaises(exception.ActionSkipped):
            self.make_lease(parents=[parent.uuid]).pre_condition()
        self.assertEqual([], self.cloud.calls)

    def test_nova_away(self):
        self.cloud.down = True
        self.assertIn('nova is away', self.fails(self.make_lease()))


class FailureTest(LeaseActionCase):
    def refuse(self, verb, refused):
        """Have Nova refuse an operation on one instance."""
        real = self.cloud.act

        def act(uuid, what):
            if (what, uuid) == (verb, refused):
                raise cloud_errors.CloudError('no')
            real(uuid, what)
        patcher = mock.patch.object(self.cloud, 'act', act)
        patcher.start()
        self.addCleanup(patcher.stop)

    def test_failed_suspend_resumes_the_others(self):
        self.use_interval(0.05)
        self.refuse('suspend', THREE)
        why = self.fails(self.make_lease())
        self.assertEqual(['ACTIVE'] * 3, self.states())
        self.assertEqual([ONE, TWO], self.verbs('resume'))
        self.assertIn('1 of 3 members failed, 2 of 2 others are as before',
                      why)
        self.assertIn(THREE, why)
        self.assertNotIn(cloud_snapshot.PREEMPTED,
                         self.cloud.known[ONE].metadata)

    def test_failed_resume_suspends_the_others_again(self):
        self.use_interval(0.05)
        self.suspended()
        self.refuse('resume', TWO)
        self.fails(self.make_lease(lease_actions.ResumeLease))
        self.assertEqual(['SUSPENDED'] * 3, self.states())
        # Their marks let the next round resume all of them.
        for server in self.cloud.known.values():
            self.assertIn(cloud_snapshot.PREEMPTED, server.metadata)
        # The third one was not started any more.
        self.assertEqual([ONE], self.verbs('resume'))

    def test_failed_reversal_is_reported_as_such(self):
        self.use_interval(0.05)
        self.refuse('suspend', TWO)
        with mock.patch.dict(self.cloud.during, {'resume': lambda: None}):
            why = self.fails(self.make_lease(numbers=(1, 2)))
        self.assertIn('0 of 1 others are as before', why)
        self.assertEqual('SUSPENDED', self.cloud.known[ONE].status)

    def test_member_deleted_meanwhile_does_not_fail_the_others(self):
        def delete():
            self.cloud.known.pop(TWO, None)
            for one in (ONE, THREE):
                self.cloud.change(one, status='SUSPENDED')
        self.cloud.during['suspend'] = delete
        self.run_lease()
        self.assertEqual({ONE, THREE}, set(self.cloud.known))

    def test_message_fits_watchers_column(self):
        self.refuse('suspend', ONE)
        self.assertLessEqual(len(self.fails(self.make_lease())) + 40, 255)

    def test_watchers_rollback_does_the_opposite(self):
        made = self.make_lease()
        made.pre_condition()
        made.execute()
        made.revert()
        self.assertEqual(['ACTIVE'] * 3, self.states())
