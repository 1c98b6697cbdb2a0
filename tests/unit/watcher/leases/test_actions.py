# SPDX-License-Identifier: Apache-2.0

"""Actions on servers of leases."""

import threading
import time
import unittest
from unittest import mock

from watcher import objects
from watcher.common import exception

from secondary_scheduler.leases.api import verification
from secondary_scheduler.leases.engine.values import Nature
from secondary_scheduler.model import vocabulary
from secondary_scheduler.watcher import (
    actions,
    cloud_errors,
    cloud_snapshot,
    history,
    outcomes,
    poller,
)
from secondary_scheduler.watcher.leases import action_plans, server_requests
from secondary_scheduler.watcher.leases import actions as lease_actions
from tests.unit.watcher import fakes
from tests.unit.watcher.leases import base


class ActionsTest(base.LeaseTestCase):

    def make(self, kind, **parameters):
        made = kind(mock.Mock(), mock.Mock())
        made.input_parameters = {'request': history.LEASE_REQUEST,
                                 **parameters}
        return made

    def boot(self, **parameters):
        made = self.make(
            lease_actions.Boot, resource_id=base.LEASE, node=0, project='p1',
            target='h2', build=base.BUILD, trust='trust', **parameters)
        made.validate_parameters()
        made.pre_condition()
        return made.execute()

    def test_boot_creates_a_server_on_its_host_for_its_owner(self):
        self.assertTrue(self.boot())
        (made,) = self.cloud.labelled('p1', base.LEASE, 0)
        self.assertEqual('h2', made.host)
        self.assertEqual(['trust'], self.trusts)
        self.assertEqual([f'secondary-lease-{base.LEASE}-0'],
                         self.cloud.built['tags'])
        self.assertEqual({vocabulary.LEASE_HINT: base.LEASE,
                          vocabulary.HOST_HINT: 'h2'}, self.cloud.hints)
        # A server that exists already is found.
        self.assertTrue(self.boot())
        self.assertEqual(1, len(self.cloud.labelled('p1', base.LEASE, 0)))

    def test_boot_records_the_created_server(self):
        place = f'{base.LEASE}:0'
        action = self.action(self.plan(self.switch), 'boot', place=place,
                             target='h2', build=base.BUILD)
        self.assertTrue(self.boot(action=action.uuid))
        (made,) = self.cloud.labelled('p1', base.LEASE, 0)
        action = objects.Action.get_by_uuid(self.context, action.uuid,
                                            eager=True)
        self.assertEqual(made.uuid,
                         action.input_parameters[action_plans.CREATED])
        self.assertEqual(place, action.input_parameters['place'])
        action.state = 'SUCCEEDED'
        action.save()
        self.assertEqual({(base.LEASE, 0): made.uuid},
                         self.leases.find_ended().booted)

    def test_boot_does_not_fail_while_the_cell_hides_its_server(self):
        self.patch(poller, '_UNSEEN_S', 0.0)
        create = self.cloud.create

        def hide(*arguments):
            self.cloud.refused = {'h2'}
            threading.Timer(0.1, self.cloud.refused.clear).start()
            return create(*arguments)
        self.cloud.create = hide
        self.assertTrue(self.boot())
        self.assertEqual(1, len(self.cloud.labelled('p1', base.LEASE, 0)))

    def test_user_data_is_not_in_the_parameters_of_a_boot(self):
        self.boot()
        self.assertEqual(
            {**base.BUILD, 'user_data': f'secret of {base.LEASE}:0',
             'tags': [f'secondary-lease-{base.LEASE}-0']}, self.cloud.built)

    def test_unknown_node_fails_the_boot(self):
        self.patch(server_requests, 'read_server_request', mock.Mock(
            side_effect=cloud_errors.Refused('no such node')))
        with self.assertRaisesRegex(exception.ActionExecutionFailure,
                                    'no such node'):
            self.boot()
        self.assertEqual([], self.cloud.labelled('p1', base.LEASE, 0))

    def test_boot_is_retried_while_the_host_has_no_room(self):
        self.cloud.faults = [cloud_errors.NoRoom('No valid host')] * 2
        created = []
        self.cloud.create = lambda build, metadata, hints, make=(
            self.cloud.create): created.append(1) or make(
                build, metadata, hints)
        self.assertTrue(self.boot())
        self.assertEqual(3, len(created))
        self.assertEqual(1, len(self.cloud.labelled('p1', base.LEASE, 0)))

    def test_boot_that_is_given_up_leaves_no_server(self):
        self.patch(lease_actions, '_RETRY_FOR_S', -1.0)
        self.cloud.faults = [cloud_errors.NoRoom('No valid host')]
        self.assert_fails(Nature.CAPACITY, 'No valid host')
        self.assertEqual([], self.cloud.labelled('p1', base.LEASE, 0))

    def assert_fails(self, nature, why):
        with self.assertRaises(exception.ActionExecutionFailure) as caught:
            self.boot()
        self.assertEqual((nature, why), outcomes.parse_failure(
            str(caught.exception)))

    def test_failed_boot_says_whether_another_attempt_can_succeed(self):
        for problem, nature in (
                (cloud_errors.NotFound('No Image found for guest'),
                 Nature.PERMANENT),
                (cloud_errors.Refused('403, Quota exceeded'),
                 Nature.PERMANENT),
                (cloud_errors.CloudError('503, Neutron is away'),
                 Nature.TRANSIENT),
                (cloud_errors.Untrusted('404, no such trust'),
                 Nature.LOST_RIGHT)):
            with self.subTest(nature), mock.patch.object(
                    self.cloud, 'create', side_effect=problem):
                self.assert_fails(nature, str(problem))

    def verify(self, **found):
        result = verification.VerificationResult(**found)
        self.patch(server_requests, 'verify_lease', lambda *_: result)
        self.cloud.session = 'session'
        made = self.make(lease_actions.Verify, resource_id=base.LEASE,
                         node=0, project='p1', build=base.BUILD,
                         trust='trust')
        made.validate_parameters()
        made.pre_condition()
        return made.execute()

    def test_verification_succeeds_if_all_resources_exist(self):
        self.assertTrue(self.verify())
        self.assertEqual(['trust'], self.trusts)
        # Limits are left to the boots.
        self.assertTrue(self.verify(
            exceeded=(verification.Problem('nodes', 'too many'),)))

    def test_verification_tells_wrong_from_unanswered(self):
        for kind, nature in (('wrong', Nature.PERMANENT),
                             ('unverified', Nature.TRANSIENT)):
            with self.subTest(kind), self.assertRaises(
                    exception.ActionExecutionFailure) as caught:
                self.verify(**{kind: (verification.Problem(
                    'nodes[0].image', 'no image guest'),)})
            self.assertEqual(
                (nature, 'nodes[0].image: no image guest'),
                outcomes.parse_failure(str(caught.exception)))

    def test_permanent_fault_is_not_retried(self):
        self.cloud.faults = [cloud_errors.Refused('no such image')]
        self.assert_fails(Nature.PERMANENT, 'no such image')
        self.assertEqual(1, sum(one[0] == 'create'
                                for one in self.cloud.calls))

    def test_deletion_during_the_boot_fails_it(self):
        self.patch(lease_actions, 'wait_for', mock.Mock(
            side_effect=poller.Gone('some-server')))
        self.assert_fails(Nature.TRANSIENT,
                          'server some-server was deleted while it booted')

    def test_delete_succeeds_for_a_server_that_is_gone(self):
        made = self.make(lease_actions.Delete, resource_id=fakes.uid(1))
        made.pre_condition()
        self.assertTrue(made.execute())
        self.assertEqual({}, self.cloud.known)
        self.assertTrue(made.execute())

    def test_actions_skip_a_primary(self):
        with mock.patch.object(self.cloud, 'server', return_value=None):
            for kind in (lease_actions.Delete, lease_actions.NoticeAction):
                made = self.make(kind, resource_id=fakes.uid(1))
                with self.assertRaisesRegex(exception.ActionSkipped,
                                            'not a secondary'):
                    made.pre_condition()

    def test_notice_sets_a_metadata_item(self):
        made = self.make(lease_actions.NoticeAction, resource_id=fakes.uid(1),
                         text='2027-01-31T08:00:00Z')
        made.validate_parameters()
        made.pre_condition()
        self.assertTrue(made.execute())
        self.assertEqual(
            '2027-01-31T08:00:00Z',
            self.cloud.known[fakes.uid(1)].metadata[cloud_snapshot.NOTICE])

    def test_suspend_for_a_lease_sets_no_preemption_mark(self):
        made = self.make(actions.Suspend, resource_id=fakes.uid(1))
        made.pre_condition()
        self.assertTrue(made.execute())
        self.assertEqual('SUSPENDED', self.cloud.known[fakes.uid(1)].status)
        self.assertEqual({}, self.cloud.known[fakes.uid(1)].metadata)

    def test_operation_waits_for_its_time_and_is_skipped_after_it(self):
        now = time.time()
        made = self.make(actions.Suspend, resource_id=fakes.uid(1),
                         not_before=now + 0.2, not_after=now + 60)
        made.validate_parameters()
        made.pre_condition()
        self.assertGreaterEqual(time.time(), now + 0.2)
        made.input_parameters['not_after'] = now
        with self.assertRaisesRegex(exception.ActionSkipped, 'past'):
            made.pre_condition()


    def test_image_is_fetched_only_if_its_owner_may_use_it(self):
        made = self.make(
            lease_actions.CacheImage, resource_id=base.LEASE, host='h2',
            image='debian', trust='trust')
        made.validate_parameters()
        made.pre_condition()
        self.assertTrue(made.execute())
        self.assertEqual(['trust'], self.trusts)
        self.assertEqual([('cache', 'h2', 'id of debian')], self.cloud.calls)
        self.cloud.image = mock.Mock(
            side_effect=cloud_errors.NotFound('no image'))
        with self.assertRaisesRegex(exception.ActionExecutionFailure,
                                    'no image'):
            made.execute()


if __name__ == '__main__':
    unittest.main()
