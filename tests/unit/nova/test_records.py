# SPDX-License-Identifier: Apache-2.0

"""Queries of Nova's tables, on a database in memory."""

import contextlib
import dataclasses
import unittest
from unittest import mock

from nova import context as nova_context
from nova import objects
from nova.compute import vm_states
from nova.db.main import api as db
from nova.db.main import models
from oslo_db.sqlalchemy import enginefacade
from oslo_utils import uuidutils

from secondary_scheduler.nova import records
from tests.unit.nova import fakes

objects.register_all()


@contextlib.contextmanager
def same_cell(context, cell):
    yield context


class RecordsTest(unittest.TestCase):

    def setUp(self):
        fakes.configure(self).config(connection='sqlite://',
                                     group='database')
        manager = enginefacade.transaction_context()
        manager.configure(connection='sqlite://')
        for patch in (
                mock.patch.object(db, 'context_manager', manager),
                mock.patch.object(nova_context, 'target_cell', same_cell),
                mock.patch.object(objects.CellMapping, 'get_by_uuid')):
            self.cell = patch.start()
            self.addCleanup(patch.stop)
        self.context = nova_context.get_admin_context()
        self.addCleanup(manager.writer.get_engine().dispose)
        models.BASE.metadata.create_all(manager.writer.get_engine())
        self.records = records.Records()

    def boot(self, flavor, host='node1', **fields):
        instance = objects.Instance(
            self.context, host=host, project_id='p', user_id='u',
            flavor=flavor, **{'vm_state': vm_states.ACTIVE,
                              'image_ref': 'image', **fields})
        instance.create()
        return instance

    def build(self, instance, host, ends=True):
        """Note an attempt to build, as nova-compute does."""
        if objects.InstanceAction.get_by_request_id(
                self.context, instance.uuid, self.context.request_id) is None:
            objects.InstanceAction.action_start(
                self.context, instance.uuid, 'create')
        objects.InstanceActionEvent.event_start(
            self.context, instance.uuid, records.BUILD_EVENT, host=host)
        if ends:
            objects.InstanceActionEvent.event_finish(
                self.context, instance.uuid, records.BUILD_EVENT)

    def test_instances_of_hosts_are_read(self):
        ours = self.boot(fakes.secondary_flavor(vcpus=2, ram=512, disk=3))
        theirs = self.boot(fakes.flavor(vcpus=4, ram=1024, disk=10))
        self.boot(fakes.flavor(), host='node2')
        found = self.records.on_hosts('cell', ['node1', 'node3'])
        self.assertEqual({'node1', 'node3'}, set(found))
        self.assertEqual([], found['node3'])
        by_uuid = {record.uuid: record for record in found['node1']}
        self.assertEqual({ours.uuid, theirs.uuid}, set(by_uuid))
        record = by_uuid[ours.uuid]
        self.assertEqual((True, 2, 512, 3),
                         (record.secondary, record.vcpus, record.memory_mb,
                          record.disk_gb))
        self.assertIsNotNone(record.born)
        self.assertFalse(by_uuid[theirs.uuid].secondary)

    def test_instances_that_the_resource_tracker_counts_are_read(self):
        self.boot(fakes.flavor(), vm_state=vm_states.SOFT_DELETED)
        self.boot(fakes.flavor(), vm_state=vm_states.BUILDING)
        self.boot(fakes.flavor(), host=None)
        self.boot(fakes.flavor()).destroy()
        self.assertEqual(
            2, len(self.records.on_hosts('cell', ['node1'])['node1']))

    def test_deleted_instances_are_read(self):
        instance = self.boot(fakes.secondary_flavor(), host=None)
        instance.destroy()
        found = self.records.of_instances('cell', [instance.uuid, 'unknown'])
        self.assertTrue(found[instance.uuid].secondary)
        self.assertEqual(1, len(found))

    def test_disk_is_added_up_as_by_the_resource_tracker(self):
        flavor = fakes.flavor(disk=10, ephemeral_gb=2, swap=1536)
        for image, expected in (('image', 13), ('', 3)):
            instance = self.boot(flavor, image_ref=image)
            self.assertEqual(expected, self.records.of_instances(
                'cell', [instance.uuid])[instance.uuid].disk_gb)

    def test_failed_builds_are_read_by_host(self):
        failed = self.boot(fakes.secondary_flavor(), host=None)
        self.build(failed, 'node1')
        self.build(failed, 'node2')
        moved = self.boot(fakes.flavor(), host='node2')
        self.build(moved, 'node1')
        self.build(moved, 'node2')
        building = self.boot(fakes.flavor(), host='node1',
                             vm_state=vm_states.BUILDING)
        self.build(building, 'node1', ends=False)
        gone = self.boot(fakes.flavor(), host='node1')
        self.build(gone, 'node1')
        gone.destroy()
        failed.destroy()
        found = self.records.failures('cell')
        self.assertEqual({failed.uuid, moved.uuid},
                         {uuid for _, uuid in found['node1']})
        self.assertEqual([failed.uuid], [u for _, u in found['node2']])
        began = [when for when, _ in found['node1']]
        self.assertEqual(sorted(began, reverse=True), began)

    def test_measured_free_disk_is_read(self):
        for host, measured in (('node1', 7), ('node2', None), ('node3', 5)):
            objects.ComputeNode(
                self.context, host=host, hypervisor_hostname=host + '.a',
                uuid=uuidutils.generate_uuid(), vcpus=1, memory_mb=1,
                local_gb=9, vcpus_used=0, memory_mb_used=0, local_gb_used=0,
                hypervisor_type='QEMU', hypervisor_version=1, cpu_info='',
                **{} if measured is None
                else {'disk_available_least': measured}).create()
        self.assertEqual(
            {('node1', 'node1.a'): 7, ('node2', 'node2.a'): None},
            self.records.measured_disk('cell', ['node1', 'node2']))

    def test_cell_is_looked_up_once(self):
        for _ in range(3):
            self.records.on_hosts('cell', ['node1'])
        self.assertEqual(1, self.cell.call_count)

    def test_missing_flavor_is_not_loaded(self):
        instance = objects.Instance(self.context, uuid=fakes.uuid(1))
        self.assertIsNone(records.read_instance(instance))

    def test_newest_instances_were_created_last(self):
        made = [records.InstanceUsage(uuid=str(n), secondary=False,
                                      born=fakes.moment(n)) for n in (3, 1, 2)]
        made.append(records.InstanceUsage(uuid='unborn', secondary=False))
        self.assertEqual(['3', '2'],
                         [r.uuid for r in records.newest_instances(made, 2)])
        self.assertEqual([], records.newest_instances(made, 0))

    def test_of_the_same_second_the_last_row_is_the_newest(self):
        uuids = [self.boot(fakes.flavor()).uuid for _number in range(4)]
        found = [dataclasses.replace(one, born=fakes.moment(1)) for one
                 in self.records.on_hosts('cell', ['node1'])['node1']]
        self.assertEqual(uuids[:1:-1], [
            one.uuid for one in records.newest_instances(found, 2)])
