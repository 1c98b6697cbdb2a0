# SPDX-License-Identifier: Apache-2.0

"""Servers and hosts as Nova reports them."""

import datetime
from unittest import TestCase, mock

from openstack.compute.v2 import flavor, server

from secondary_scheduler.cmd import flavors
from secondary_scheduler.model import (
    cluster,
    vocabulary,
)
from secondary_scheduler.watcher import (
    cloud,
    cloud_snapshot,
)
from tests.unit.watcher import fakes


class ServerTest(TestCase):
    def read(self, **changes):
        return cloud_snapshot.NovaServer.from_sdk(
            fakes.sdk_server(1, **changes))

    def test_only_marked_flavors_are_secondaries(self):
        self.assertIsNone(self.read(extra_specs={}))
        self.assertIsNone(self.read(flavor=None))
        found = self.read()
        self.assertEqual((2, 512, 2), (found.vcpus, found.memory_mb,
                                       found.disk_gb))
        self.assertEqual(('x', 'alice', 'secondary'),
                         (found.name, found.user, found.flavor))

    def test_labels_set_lease_and_lower_priority(self):
        self.assertEqual(fakes.uid(1), self.read().lease)
        self.assertEqual('p1:x', self.read(scheduler_hints={
            vocabulary.LEASE_HINT: ['x']}).lease)
        self.assertEqual('p1:y', self.read(
            metadata={vocabulary.LEASE_METADATA: 'y'}).lease)
        self.assertEqual(5, self.read().priority)
        self.assertEqual(2, self.read(
            metadata={vocabulary.PRIORITY_METADATA: '2'}).priority)
        self.assertEqual(5, self.read(
            metadata={vocabulary.PRIORITY_METADATA: '9'}).priority)

    def test_aggregate_specs_are_those_of_their_scope(self):
        self.assertEqual({'ssd': '<or> true <or> yes'}, self.read(
            extra_specs={vocabulary.MARKER: 'true', 'ssd': 'no',
                         'aggregate_instance_extra_specs:ssd':
                         '<or> true <or> yes'}).aggregate_specs)

    def test_workload_class_is_that_of_the_flavor_or_of_its_image(self):
        image = mock.Mock(id=fakes.uid(8))
        # Neither metadata nor hints of the tenant count.
        wish = {'lifecycle:workload_class': 'quiet'}
        marked = {vocabulary.MARKER: 'true'}
        for specs, one, expected in (
                ({**marked, vocabulary.WORKLOAD_CLASS: 'web'}, image, 'web'),
                (marked, image, f'{fakes.uid(8)}/secondary'),
                (marked, None, None), (marked, {}, None)):
            self.assertEqual(expected, self.read(
                extra_specs=specs, image=one, metadata=wish,
                scheduler_hints=wish).workload_class)

    def test_unchanged_time_is_since_the_last_update(self):
        now = datetime.datetime.now(datetime.UTC)
        for said, seconds in ((None, 0), ('2000-01-01T00:00:00Z', (
                now - datetime.datetime(
                    2000, 1, 1, tzinfo=datetime.UTC)).total_seconds())):
            self.assertAlmostEqual(
                seconds, self.read(updated_at=said).unchanged_s, delta=60)

    def test_status_and_task_give_the_state(self):
        for status, task, state in (
                ('ACTIVE', None, cluster.InstanceState.ACTIVE),
                ('ACTIVE', 'suspending', cluster.InstanceState.BUSY),
                ('MIGRATING', None, cluster.InstanceState.BUSY),
                ('SHUTOFF', None, cluster.InstanceState.STOPPED),
                ('SHELVED_OFFLOADED', None, cluster.InstanceState.SHELVED),
                ('PAUSED', None, cluster.InstanceState.OTHER),
                ('ERROR', None, cluster.InstanceState.OTHER)):
            self.assertEqual(state, self.read(
                status=status, task_state=task).state, status)


class SwapTest(TestCase):

    def test_swap_counts_as_placement_claims_it(self):
        for swap, gigabytes in ((0, 50), ('', 50), (1, 51), (512, 51),
                                (1024, 51), (2048, 52), (2049, 53)):
            specs = vocabulary.secondary_extra_specs(
                4, 8192, gigabytes, vocabulary.SecondaryMark())
            found = flavor.Flavor(
                id='f', name='sec', vcpus=4, ram=8192, disk=40,
                extra_specs=specs, swap=swap,
                **{'OS-FLV-EXT-DATA:ephemeral': 10})
            one = server.Server(
                id='s', status='ACTIVE', tenant_id='p', flavor={
                    'vcpus': 4, 'ram': 8192, 'disk': 40, 'ephemeral': 10,
                    'swap': swap, 'original_name': 'sec',
                    'extra_specs': specs})
            sizes = cloud.Cloud.sizes(mock.Mock(
                _secondary_flavors=lambda found=found: (found,)))
            with self.subTest(swap):
                self.assertEqual({}, flavors.flavor_faults([found]))
                self.assertEqual(
                    gigabytes, cloud_snapshot.NovaServer.from_sdk(one).disk_gb
                )
                self.assertEqual((4, 8192, gigabytes), sizes['sec'])


class HostTest(TestCase):
    def test_host_without_free_inventory_is_closed(self):
        self.assertFalse(fakes.host('h1').closed)
        self.assertTrue(fakes.host('h1', reserved=fakes.TOTAL).closed)
