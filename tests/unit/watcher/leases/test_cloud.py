# SPDX-License-Identifier: Apache-2.0

"""Observed state of the cloud."""

import dataclasses
import tempfile
import unittest

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
from secondary_scheduler.watcher.leases import cloud as lease_cloud
from tests.unit.watcher import fakes
from tests.unit.watcher.leases import base


class LeaseCloudTest(base.LeaseTestCase):

    def setUp(self):
        super().setUp()
        self.seen = cluster_state.ClusterState(
            settings.CONF, lambda: self.cloud, self.history,
            clock=lambda: 1000.0)
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
        leader.shared().claiming.side_effect = RuntimeError('no lock')
        with self.assertRaises(CloudDown):
            self.found.order_operations([base.order(LeaseOperation.BOOT)])


if __name__ == '__main__':
    unittest.main()
