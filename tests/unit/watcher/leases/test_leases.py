"""Leases inside Watcher: actions, history, cloud and runner."""

import dataclasses
import datetime
import time
from unittest import mock

from oslo_db import exception as db_exception
from oslo_utils import timeutils
from watcher import objects
from watcher.common import exception

from secondary_scheduler.leases.engine.values import (
    Build,
    CloudDown,
    LeaseOperation,
    Nature,
    OperationRequest,
)
from secondary_scheduler.model import holds, vocabulary
from secondary_scheduler.watcher import (
    actions,
    cloud_connections,
    cloud_errors,
    cloud_snapshot,
    cluster_state,
    history,
    leader,
    outcomes,
    planner,
    poller,
    secondary_action,
    settings,
)
from secondary_scheduler.watcher.leases import (
    action_plans,
    runner,
    server_requests,
)
from secondary_scheduler.watcher.leases import (
    actions as lease_actions,
)
from secondary_scheduler.watcher.leases import (
    cloud as lease_cloud,
)
from tests.unit.watcher import fakes

LEASE = fakes.uid(700)
BUILD = {'name': 'x-0', 'flavor': 'secondary', 'image': 'debian',
         'network': 'none', 'key_name': None}
SPEC = Build('x-0', 'p1', 'alice', 'trust', 'secondary', 'debian', 'none',
             None)


def order(kind, node=0, at=0.0, server=None, host='h1', **more):
    return OperationRequest(
        kind,
        (LEASE, node),
        'p1',
        host,
        at,
        at + 60,
        server,
        SPEC
        if kind in (LeaseOperation.BOOT, LeaseOperation.CACHE_IMAGE)
        else None,
        **more,
    )


class LeaseNova(fakes.FakeCloud):
    """What boots and deletes as well; ``faults`` are why boots fail."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.faults = []
        self.hints = None

    def labelled(self, project, lease, node):
        return [one for one in self.known.values()
                if one.project == project
                and cloud_snapshot.node_of(one.metadata) == (lease, node)]

    def create(self, build, metadata, hints):
        self.calls.append(('create', build['name']))
        self.hints, self.built = hints, build
        one = fakes.server(
            len(self.known) + 50, hints[vocabulary.HOST_HINT],
            'ERROR' if self.faults else 'ACTIVE', metadata=metadata)
        self.known[one.uuid] = one
        return one.uuid

    def image(self, name):
        return f'id of {name}'

    def cache_image(self, host, image):
        self.calls.append(('cache', host, image))

    def fault(self, key):
        return self.faults.pop(0)

    def delete(self, key):
        self.calls.append(('delete', key))
        self.known.pop(key, None)

    def sizes(self):
        return {'secondary': (1, 512, 1)}


class Case(fakes.WatcherTestCase):

    def setUp(self):
        super().setUp()
        self.cloud = LeaseNova(
            [fakes.server(1)], [fakes.host('h1'), fakes.host('h2')])
        self.patch(cloud_connections, 'shared', lambda: self.cloud)
        self.patch(cloud_connections, 'as_owner', self.as_owner)
        waiting = poller.Poller(lambda: self.cloud, lambda: 0.01)
        self.patch(secondary_action, '_poller', lambda: waiting)
        self.agents = mock.Mock()
        self.agents.hand_over.return_value = {}
        self.patch(secondary_action, '_agents', lambda: self.agents)
        self.patch(lease_actions, '_PAUSE_S', 0.0)
        self.patch(server_requests, 'stored', self.stored)
        self.trusts = []
        self.applier = mock.Mock()
        self.patch(action_plans.rpcapi, 'ApplierAPI', lambda: self.applier)
        claiming = mock.MagicMock()
        self.patch(leader, 'shared', lambda: claiming)
        self.switch = self.audit(800, parameters={'leases': True})
        self.leases = action_plans.LeaseHistory(self.history)

    def patch(self, *arguments):
        patcher = mock.patch.object(*arguments)
        patcher.start()
        self.addCleanup(patcher.stop)

    def stored(self, lease, node):
        """Return what the database of leases has of a node."""
        return {'user_data': f'secret of {lease}:{node}'}

    def as_owner(self, trust):
        self.trusts.append(trust)
        return self.cloud


class ActionsTest(Case):

    def make(self, kind, **parameters):
        made = kind(mock.Mock(), mock.Mock())
        made.input_parameters = {'request': history.LEASE_REQUEST,
                                 **parameters}
        return made

    def boot(self, **parameters):
        made = self.make(
            lease_actions.Boot, resource_id=LEASE, node=0, project='p1',
            target='h2', build=BUILD, trust='trust', **parameters)
        made.validate_parameters()
        made.pre_condition()
        return made.execute()

    def test_a_boot_makes_a_server_on_its_host_as_its_owner(self):
        self.assertTrue(self.boot())
        (made,) = self.cloud.labelled('p1', LEASE, 0)
        self.assertEqual('h2', made.host)
        self.assertEqual(['trust'], self.trusts)
        self.assertEqual({vocabulary.LEASE_HINT: LEASE,
                          vocabulary.HOST_HINT: 'h2'}, self.cloud.hints)
        # Whoever is there already is found.
        self.assertTrue(self.boot())
        self.assertEqual(1, len(self.cloud.labelled('p1', LEASE, 0)))

    def test_user_data_is_not_in_the_parameters_of_a_boot(self):
        self.boot()
        self.assertEqual({**BUILD, 'user_data': f'secret of {LEASE}:0'},
                         self.cloud.built)

    def test_a_request_that_cannot_be_read_fails_the_boot(self):
        self.patch(server_requests, 'stored', mock.Mock(
            side_effect=cloud_errors.Refused('no such node')))
        with self.assertRaisesRegex(exception.ActionExecutionFailure,
                                    'no such node'):
            self.boot()
        self.assertEqual([], self.cloud.labelled('p1', LEASE, 0))

    def test_a_boot_insists_for_a_while(self):
        self.cloud.faults = [cloud_errors.NoRoom('No valid host')] * 2
        created = []
        self.cloud.create = lambda build, metadata, hints, make=(
            self.cloud.create): created.append(1) or make(
                build, metadata, hints)
        self.assertTrue(self.boot())
        self.assertEqual(3, len(created))
        self.assertEqual(1, len(self.cloud.labelled('p1', LEASE, 0)))

    def test_and_leaves_nothing_when_it_gives_up(self):
        self.patch(lease_actions, '_INSIST_S', -1.0)
        self.cloud.faults = [cloud_errors.NoRoom('No valid host')]
        self.assert_fails(Nature.CAPACITY, 'No valid host')
        self.assertEqual([], self.cloud.labelled('p1', LEASE, 0))

    def assert_fails(self, nature, why):
        with self.assertRaises(exception.ActionExecutionFailure) as caught:
            self.boot()
        self.assertEqual((nature, why), outcomes.failure(
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

    def test_permanent_fault_is_not_tried_again_at_once(self):
        self.cloud.faults = [cloud_errors.Refused('no such image')]
        self.assert_fails(Nature.PERMANENT, 'no such image')
        self.assertEqual(1, sum(one[0] == 'create'
                                for one in self.cloud.calls))

    def test_server_that_is_deleted_while_it_boots_has_not_booted(self):
        self.patch(actions, 'wait_for', mock.Mock(
            side_effect=poller.Gone('some-server')))
        self.assert_fails(Nature.TRANSIENT,
                          'server some-server was deleted while it booted')

    def test_what_is_deleted_is_gone_then(self):
        made = self.make(lease_actions.Delete, resource_id=fakes.uid(1))
        made.pre_condition()
        self.assertTrue(made.execute())
        self.assertEqual({}, self.cloud.known)
        self.assertTrue(made.execute())

    def test_nothing_is_done_to_a_primary(self):
        with mock.patch.object(self.cloud, 'server', return_value=None):
            for kind in (lease_actions.Delete, lease_actions.NoticeAction):
                made = self.make(kind, resource_id=fakes.uid(1))
                with self.assertRaisesRegex(exception.ActionSkipped,
                                            'not a secondary'):
                    made.pre_condition()

    def test_a_notice_is_metadata(self):
        made = self.make(lease_actions.NoticeAction, resource_id=fakes.uid(1),
                         text='2027-01-31T08:00:00Z')
        made.validate_parameters()
        made.pre_condition()
        self.assertTrue(made.execute())
        self.assertEqual(
            '2027-01-31T08:00:00Z',
            self.cloud.known[fakes.uid(1)].metadata[cloud_snapshot.NOTICE])

    def test_the_schedule_suspends_without_a_mark(self):
        made = self.make(actions.Suspend, resource_id=fakes.uid(1))
        made.pre_condition()
        self.assertTrue(made.execute())
        self.assertEqual('SUSPENDED', self.cloud.known[fakes.uid(1)].status)
        self.assertEqual({}, self.cloud.known[fakes.uid(1)].metadata)

    def test_operations_wait_for_their_time_and_not_longer(self):
        now = time.time()
        made = self.make(actions.Suspend, resource_id=fakes.uid(1),
                         not_before=now + 0.2, not_after=now + 60)
        made.validate_parameters()
        made.pre_condition()
        self.assertGreaterEqual(time.time(), now + 0.2)
        made.input_parameters['not_after'] = now
        with self.assertRaisesRegex(exception.ActionSkipped, 'past'):
            made.pre_condition()


    def test_an_image_is_fetched_that_its_owner_may_use(self):
        made = self.make(
            lease_actions.CacheImage, resource_id=LEASE, host='h2',
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


class HistoryTest(Case):

    def actions(self):
        return objects.Action.list(self.context, sort_key='id', eager=True)

    def end(self, action, state, message=''):
        action.state, action.status_message = state, message
        action.save()

    def test_orders_become_a_plan_of_the_switch(self):
        self.leases.order(
            [
                order(LeaseOperation.BOOT, at=5.0),
                order(
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
            ('secondary_boot', LEASE, 'h1', 5.0, 65.0, 'trust'),
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
        self.assertEqual(({(LEASE, 0), (LEASE, 1)}, {}),
                         self.leases.pending())
        # Neither does the strategy touch these, nor count them.
        self.assertIn(fakes.uid(1), self.history.locks().busy_instances)
        self.assertEqual(set(), self.history.preempted_lately())

    def test_who_is_worked_on_is_left_out(self):
        self.action(self.plan(self.switch), instance=1)
        self.leases.order([order(LeaseOperation.SUSPEND, server=fakes.uid(1))],
                          self.switch.uuid)
        self.assertEqual(1, len(self.actions()))
        self.applier.launch_action_plan.assert_not_called()

    def test_what_has_ended(self):
        self.leases.order(
            [order(LeaseOperation.SUSPEND, node, server=fakes.uid(node + 1))
             for node in range(3)], self.switch.uuid)
        first, second, third = self.actions()
        self.end(first, 'SUCCEEDED', history.took(2.5, 512, None))
        self.end(second, 'FAILED', outcomes.failed(
            'suspend', fakes.uid(2), Nature.PERMANENT, 'why'))
        self.assertEqual(({(LEASE, 2)}, {}), self.leases.pending())
        ended = self.leases.ended()
        self.assertEqual([(LeaseOperation.SUSPEND, 512, 2.5)],
                         [dataclasses.astuple(one) for one in ended.took])
        self.assertEqual(
            {
                ((LEASE, 1), LeaseOperation.SUSPEND): (
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
            (LEASE, 1), LeaseOperation.SUSPEND].last, delta=30)
        self.leases.order(
            [order(LeaseOperation.SUSPEND, 1, server=fakes.uid(2))],
            self.switch.uuid,
        )
        self.end(self.actions()[-1], 'SUCCEEDED')
        self.assertEqual({}, self.leases.ended().failures)

    def test_what_has_ended_is_read_once(self):
        self.leases.order([order(LeaseOperation.BOOT)], self.switch.uuid)
        (action,) = self.actions()
        self.end(action, 'FAILED', 'why')
        self.assertEqual(1, len(self.leases.ended().failures))
        long_ago = timeutils.utcnow() - datetime.timedelta(minutes=50)
        self.leases._ended[action.id].updated_at = long_ago
        with mock.patch.object(self.leases, '_actions', return_value=[]
                               ) as asked:
            self.assertEqual(1, len(self.leases.ended().failures))
            self.assertEqual(
                datetime.timedelta(minutes=1),
                long_ago - asked.call_args.kwargs['updated_at__gt'])
            self.leases._ended[action.id].updated_at = (
                long_ago - datetime.timedelta(minutes=11))
            self.assertEqual({}, self.leases.ended().failures)

    def test_images_are_asked_for_in_nobodys_way(self):
        self.leases.order(
            [order(LeaseOperation.CACHE_IMAGE), order(LeaseOperation.BOOT, 1)],
            self.switch.uuid,
        )
        asking, boot = self.actions()
        made = lease_actions.CacheImage(mock.Mock(), mock.Mock())
        made.input_parameters = asking.input_parameters
        made.validate_parameters()
        places, asked = self.leases.pending()
        self.assertEqual({(LEASE, 1)}, places)
        self.assertEqual({('h1', 'debian')}, asked.keys())
        self.end(boot, 'FAILED', 'why')
        self.assertEqual(frozenset(), self.history.locks().busy_hosts)
        self.end(asking, 'SUCCEEDED')
        self.assertEqual(frozenset(), self.history.locks().cooling_down_hosts)
        self.assertEqual((frozenset(), {}), self.leases.pending())
        ended = self.leases.ended()
        self.assertEqual(set(), ended.used)
        self.assertAlmostEqual(time.time(), ended.asked['h1', 'debian'],
                               delta=30)
        without = dataclasses.replace(
            order(LeaseOperation.BOOT, 2),
            build=dataclasses.replace(SPEC, image=None),
        )
        self.leases.order([order(LeaseOperation.BOOT, 1, host='h2'), without],
                          self.switch.uuid)
        for one in self.actions()[-2:]:
            self.end(one, 'SUCCEEDED')
        self.assertEqual({('h2', 'debian')}, self.leases.ended().used)

    def test_large_orders_are_several_plans(self):
        self.leases.order(
            [order(LeaseOperation.BOOT, node) for node in range(9)],
            self.switch.uuid,
        )
        self.assertEqual(2, len(objects.ActionPlan.list(self.context)))

    def test_a_planner_drops_what_touches_the_same(self):
        self.leases.order([order(LeaseOperation.SUSPEND, server=fakes.uid(1))],
                          self.switch.uuid)
        self.assertEqual({fakes.uid(1)}, planner.SecondaryPlanner._taken([{
            'input_parameters': {'resource_id': fakes.uid(1)}}]))


class CloudTest(Case):

    def setUp(self):
        super().setUp()
        self.seen = cluster_state.ClusterState(
            settings.CONF, lambda: self.cloud, self.history,
            clock=lambda: 1000.0)
        self.found = lease_cloud.LeaseCloud(self.seen, self.leases)
        self.found.switches = self.history.switches()

    def test_nothing_is_known_before_the_collector_has_looked(self):
        with self.assertRaises(CloudDown):
            self.found.look(())

    def test_what_is_seen(self):
        self.cloud.known[fakes.uid(2)] = fakes.server(
            2, status='SUSPENDED', metadata={
                vocabulary.LEASE_METADATA: LEASE, cloud_snapshot.NODE: '1'})
        self.cloud.places['h2'] = fakes.host('h2', disabled=True)
        self.seen.refresh()
        cloud_state = self.found.look(())
        self.assertEqual({'h1'}, cloud_state.hosts.keys())
        self.assertEqual((8, 8192, 100, 8), cloud_state.hosts['h1'].total)
        self.assertEqual((1, 512, 1, 1), cloud_state.flavors['secondary'])
        one = cloud_state.servers[fakes.uid(2)]
        self.assertEqual((LEASE, 1, 'SUSPENDED', False),
                         (one.lease, one.node, one.status, one.busy))

    def test_who_may_be_suspended_for_leases(self):
        self.cloud.known |= {one.uuid: one for one in (
            fakes.server(2, mark=vocabulary.SecondaryMark(
                preempt_policy=vocabulary.PreemptPolicy.STOP)),
            fakes.server(3), fakes.server(4, project='p4'))}
        self.found.switches = [dataclasses.replace(
            self.found.switches[0], scope=[{'compute': [{'exclude': [
                {'instances': [{'uuid': fakes.uid(3)}]},
                {'projects': [{'uuid': 'p4'}]}]}]}])]
        self.seen.refresh()
        servers = self.found.look(()).servers
        self.assertEqual([True, False, False, False], [
            servers[fakes.uid(number)].suspendable
            for number in (1, 2, 3, 4)])

    def test_who_is_deleted_is_not_seen(self):
        self.cloud.known[fakes.uid(2)] = fakes.server(2, status='DELETED')
        self.seen.refresh()
        self.assertEqual({fakes.uid(1)}, self.found.look(()).servers.keys())

    def test_without_nova(self):
        self.seen.refresh()
        self.cloud.down = True
        with self.assertRaises(CloudDown):
            self.found.look([fakes.uid(1)])

    def test_without_the_lock_nothing_is_ordered(self):
        leader.shared().claiming.side_effect = RuntimeError('no lock')
        with self.assertRaises(CloudDown):
            self.found.order([order(LeaseOperation.BOOT)])


class RunnerTest(Case):

    def setUp(self):
        super().setUp()
        seen = mock.Mock()
        seen.history = self.history
        self.coordination = mock.Mock()
        self.coordination.am_i_leader.return_value = True
        self.runner = runner.LeaseRunner(
            settings.CONF, seen, self.coordination)
        self.engine, self.made = mock.Mock(holds={}), mock.Mock()
        self.patch(self.runner, '_sender', mock.Mock())
        self.patch(self.runner, '_make', lambda: (self.engine, self.made))

    def test_the_leader_runs_leases_where_an_audit_says_so(self):
        self.audit(801)
        self.runner.tick()
        self.engine.run.assert_called_once_with()
        self.assertEqual([self.switch.uuid],
                         [one.uuid for one in self.made.switches])

    def test_schedulers_are_told_what_is_held(self):
        hold = holds.Hold({}, ())
        for held in ({}, {'h1': hold}, {'h1': hold}, {}, {}):
            self.engine.holds = held
            self.runner.tick()
        said = [call.args[0] for call
                in self.runner._sender.send.call_args_list]
        self.assertEqual([{'h1': hold}, {'h1': hold}, {}],
                         [one.hosts for one in said])
        self.assertEqual([1, 2, 3], [one.seq for one in said])

    def test_nobody_else_does(self):
        self.coordination.am_i_leader.return_value = False
        self.runner.tick()
        self.engine.run.assert_not_called()

    def test_what_was_known_is_forgotten_when_it_is_switched_off(self):
        self.runner.tick()
        self.switch.state = 'SUSPENDED'
        self.switch.save()
        self.runner.tick()
        self.engine.run.assert_called_once_with()
        self.engine.forget.assert_called_once_with()

    def test_trouble_is_told_once(self):
        for trouble in (CloudDown('no answer'), db_exception.DBConnectionError(
                'no connection\n(Background on this error at ...)')):
            self.engine.run.side_effect = trouble
            with self.subTest(str(trouble)), self.assertLogs(
                    runner.__name__, 'WARNING') as logs:
                self.runner.tick()
                self.runner.tick()
                line, = logs.output
                self.assertNotIn('\n', line)
