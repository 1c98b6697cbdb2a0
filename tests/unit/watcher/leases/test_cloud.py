# SPDX-License-Identifier: Apache-2.0

"""Observed state of the cloud."""

import dataclasses
import datetime
import tempfile
import time
import unittest

from watcher import objects

from secondary_scheduler.leases.engine.values import (
    CloudDown,
    LeaseOperation,
    PlannedServer,
)
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.constraints import Fence, Spread
from secondary_scheduler.watcher import (
    cloud_snapshot,
    cluster_state,
    leader,
    settings,
)
from secondary_scheduler.watcher.leases import action_plans
from secondary_scheduler.watcher.leases import cloud as lease_cloud
from tests.unit.watcher import fakes
from tests.unit.watcher.leases import base


class LeaseCloudTest(base.LeaseTestCase):

    def setUp(self):
        super().setUp()
        self.now, self.seq = 1000.0, 0
        self.seen = cluster_state.ClusterState(
            settings.CONF, lambda: self.cloud, self.history,
            clock=lambda: self.now)
        self.found = lease_cloud.OpenStackLeaseCloud(self.seen, self.leases)
        self.found.switches = self.history.switches()

    def test_cloud_is_down_before_the_collector_has_run(self):
        with self.assertRaises(CloudDown):
            self.found.observe_state(())

    def test_observed_state_has_hosts_flavors_and_labelled_servers(self):
        self.cloud.known[fakes.uid(2)] = fakes.server(
            2, status='SUSPENDED', metadata={
                vocabulary.LEASE_METADATA: base.LEASE,
                cloud_snapshot.NODE: '1'})
        self.cloud.places['h2'] = fakes.host('h2', disabled=True)
        self.seen.refresh()
        cloud_state = self.found.observe_state(())
        self.assertEqual({'h1'}, cloud_state.hosts.keys())
        self.assertEqual((8, 8192, 100, 8), cloud_state.hosts['h1'].total)
        self.assertEqual((1, 512, 1, 1), cloud_state.flavors['secondary'])
        one = cloud_state.servers[fakes.uid(2)]
        self.assertEqual((base.LEASE, 1, 'SUSPENDED', False),
                         (one.lease, one.node, one.status, one.busy))

    def test_observed_servers_have_the_time_of_their_creation(self):
        self.cloud.known |= {one.uuid: one for one in (
            fakes.server(2, created=datetime.datetime(
                2027, 1, 31, 8, tzinfo=datetime.UTC)), fakes.server(3))}
        self.seen.refresh()
        servers = self.found.observe_state(()).servers
        self.assertEqual([1801382400.0, None], [
            servers[fakes.uid(number)].created for number in (2, 3)])

    def test_allocation_ratio_above_1_lets_no_more_servers_run(self):
        for ratio, total, lendable in (
                (1.0, (8, 8192, 100), (5, 7192, 93)),
                (2.0, (8, 8192, 100), (5, 7192, 93)),
                (16.0, (8, 8192, 100), (5, 7192, 93)),
                (0.5, (4, 4096, 50), (2, 3596, 46))):
            self.cloud.places['h1'] = fakes.host(
                'h1', ratios=dict.fromkeys(fakes.TOTAL, ratio),
                reserved={vocabulary.VCPU: 3, vocabulary.MEMORY_MB: 1000,
                          vocabulary.DISK_GB: 7})
            self.seen.refresh()
            host = self.found.observe_state(()).hosts['h1']
            self.assertEqual((total, lendable),
                             (host.total[:3], host.lendable[:3]))

    def test_preempt_policy_and_scope_decide_what_is_suspendable(self):
        self.cloud.known |= {one.uuid: one for one in (
            fakes.server(2, mark=vocabulary.SecondaryMark(
                preempt_policy=vocabulary.PreemptPolicy.STOP)),
            fakes.server(3), fakes.server(4, project='p4'))}
        self.found.switches = [dataclasses.replace(
            self.found.switches[0], scope=[{'compute': [{'exclude': [
                {'instances': [{'uuid': fakes.uid(3)}]},
                {'projects': [{'uuid': 'p4'}]}]}]}])]
        self.seen.refresh()
        servers = self.found.observe_state(()).servers
        self.assertEqual([True, False, False, False], [
            servers[fakes.uid(number)].suspendable
            for number in (1, 2, 3, 4)])

    def test_deleted_server_is_not_observed(self):
        self.cloud.known[fakes.uid(2)] = fakes.server(2, status='DELETED')
        self.seen.refresh()
        self.assertEqual({fakes.uid(1)},
                         self.found.observe_state(()).servers.keys())

    def label(self, number, host='h1', **changes):
        """Add a server of a lease."""
        self.cloud.known[fakes.uid(number)] = fakes.server(
            number, host, metadata={
                vocabulary.LEASE_METADATA: base.LEASE,
                cloud_snapshot.NODE: str(number)}, **changes)

    def observe(self, *known):
        self.now += 20.0
        self.seen.refresh()
        return self.found.observe_state([fakes.uid(one) for one in known])

    def report(self, host, *numbers, **changes):
        self.seq += 1
        seen = fakes.report(host, [fakes.server(one) for one in numbers],
                            time=time.time(), seq=self.seq)
        self.seen.book.accept(dataclasses.replace(seen, instances=tuple(
            dataclasses.replace(one, **changes) for one in seen.instances)))

    def test_unseen_servers_are_not_observed_and_not_gone(self):
        self.label(2, 'h2')
        self.label(3, 'h2', status='SUSPENDED')
        self.label(4)
        before = self.observe(2, 3, 4)
        self.assertEqual(frozenset(), before.unreachable_hosts)
        self.cloud.refused = {'h2'}
        del self.cloud.known[fakes.uid(4)]
        state = self.observe(2, 3, 4)
        self.assertEqual({fakes.uid(1)}, state.servers.keys())
        self.assertEqual({fakes.uid(4)}, state.gone)
        self.assertEqual([False, True, True, False], [
            state.is_unseen(fakes.uid(one)) for one in (1, 2, 3, 4)])
        # The host stays, as it was: leases keep their places there.
        self.assertEqual({'h2'}, state.unreachable_hosts)
        self.assertEqual(before.hosts, state.hosts)
        self.cloud.refused = set()
        state = self.observe(2, 3)
        self.assertEqual({fakes.uid(one) for one in (1, 2, 3)},
                         state.servers.keys())

    def test_server_that_nova_shows_as_deleted_is_gone(self):
        self.label(2, status='DELETED')
        state = self.observe(2)
        self.assertEqual((frozenset({fakes.uid(2)}), False),
                         (state.gone, state.is_unseen(fakes.uid(2))))

    def test_report_is_an_observation_where_nova_showed_the_server(self):
        self.label(2, 'h2', task_state='suspending')
        self.label(3, 'h2', status='SUSPENDED')
        self.observe(2, 3)
        self.cloud.refused = {'h2'}
        for host, numbers, changes, expected in (
                ('h1', (1, 2), {}, set()),
                ('h2', (2,), {'paused': True}, set()),
                ('h2', (), {}, set()),
                ('h2', (2,), {}, {fakes.uid(2)})):
            self.report(host, *numbers, **changes)
            state = self.observe(2, 3)
            with self.subTest(host=host, **changes):
                self.assertEqual(
                    expected, state.servers.keys() - {fakes.uid(1)})
                self.assertTrue(state.is_unseen(fakes.uid(3)))
        one = state.servers[fakes.uid(2)]
        self.assertEqual(
            ('ACTIVE', False, False, False, base.LEASE, 2),
            (one.status, one.busy, one.preempted, one.reachable, one.lease,
             one.node))
        self.assertEqual({'h2'}, state.unreachable_hosts)

    def boot(self, number):
        """Record the boot of a server of the lease."""
        action = self.action(
            self.plan(self.switch, 'SUCCEEDED'), 'boot', target='h2',
            place=f'{base.LEASE}:{number}', build=base.BUILD,
            **{action_plans.CREATED: fakes.uid(number)})
        action = objects.Action.get_by_uuid(self.context, action.uuid,
                                            eager=True)
        action.state = 'SUCCEEDED'
        action.save()

    def test_booted_server_that_nova_never_showed_is_known(self):
        self.observe()
        self.cloud.refused = {'h2'}
        for number in (2, 3):
            self.label(number, 'h2')
            self.boot(number)
        state = self.observe()
        self.assertEqual(
            {(base.LEASE, one): fakes.uid(one) for one in (2, 3)},
            state.booted)
        self.assertTrue(state.is_unseen(fakes.uid(2)))
        self.assertEqual(frozenset(), state.gone)
        # One of them is deleted before its cell answers.
        self.cloud.refused = set()
        del self.cloud.known[fakes.uid(3)]
        state = self.observe()
        self.assertEqual(({}, {fakes.uid(3)}), (state.booted, state.gone))
        self.assertEqual(2, state.servers[fakes.uid(2)].node)
        # Nova hides it again: its node is known by then.
        self.cloud.refused = {'h2'}
        self.assertEqual({}, self.observe(2).booted)

    def test_planned_servers_have_the_constraints_of_others(self):
        """Those of their project, of their flavor and of the file."""
        self.cloud.places = {
            'h1': fakes.host('h1'),
            'h2': fakes.host('h2', metadata={'ssd': frozenset({'true'})}),
            'h3': fakes.host('h3', metadata={
                'ssd': frozenset({'true'}),
                'filter_tenant_id': frozenset({'p2'})})}
        planned = [PlannedServer(f'{base.LEASE}:0', 'p1', base.LEASE,
                                 'secondary'),
                   PlannedServer('other:0', 'p2', 'other', 'secondary'),
                   PlannedServer('third:0', 'p1', 'third', 'gone')]
        self.seen.refresh()
        self.found.observe_state(())
        with tempfile.NamedTemporaryFile('w', suffix='.yaml') as file:
            settings.CONF.set_override('constraints_file', file.name,
                                       'secondary_watcher')
            file.write(f'- spread: {{leases: ["p1:{base.LEASE}"]}}\n')
            file.flush()
            found = self.found.find_constraints(planned)
        self.assertEqual({
            Fence(frozenset({planned[0].name}), frozenset({'h2'})),
            Fence(frozenset({planned[1].name}), frozenset({'h2', 'h3'})),
            Spread(frozenset({planned[0].name}))},
            {one for one in found
             if not one.named.isdisjoint({p.name for p in planned})})

    def test_cloud_is_down_without_nova(self):
        self.seen.refresh()
        self.cloud.down = True
        with self.assertRaises(CloudDown):
            self.found.observe_state([fakes.uid(1)])

    def test_no_operation_is_ordered_without_the_lock(self):
        other = fakes.coordinate(self, file=self.locks_file)
        self.patch(leader, '_CLAIM_S', 0.3)
        with other.claiming(), self.assertRaises(CloudDown):
            self.found.order_operations([base.order(LeaseOperation.BOOT)])


if __name__ == '__main__':
    unittest.main()
