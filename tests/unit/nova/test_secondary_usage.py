# SPDX-License-Identifier: Apache-2.0

"""Secondaries' part of the numbers of hosts."""

import datetime
import unittest

from secondary_scheduler.nova import records, secondary_usage
from tests.unit.nova import fakes


def record(number, secondary=True, vcpus=1, ram=256, disk=0, born=None):
    return records.InstanceUsage(
        uuid=fakes.uuid(number), secondary=secondary, vcpus=vcpus,
        memory_mb=ram, disk_gb=disk,
        born=None if born is None else fakes.moment(born))


class FakeRecords:
    """Nova's database, with a record of its queries."""

    def __init__(self):
        self.asked = []
        self.instances = {}
        self.hosts = {}
        self.measured = {}
        self.failed = {}
        self.broken = False

    def _ask(self, *question):
        self.asked.append(question)
        if self.broken:
            raise RuntimeError('database is gone')

    def of_instances(self, cell, uuids):
        self._ask('instances', len(uuids))
        return {u: self.instances[u] for u in uuids if u in self.instances}

    def on_hosts(self, cell, hosts):
        self._ask('hosts', *hosts)
        return {host: self.hosts.get(host, []) for host in hosts}

    def measured_disk(self, cell, hosts):
        return {(host, host): self.measured.get(host) for host in hosts}

    def failures(self, cell):
        self._ask('failures')
        return {host: [(fakes.moment(t).replace(tzinfo=None), uuid)
                       for t, uuid in failures]
                for host, failures in self.failed.items()}


class SecondaryUsageTest(unittest.TestCase):

    def setUp(self):
        self.now = 0.0
        self.records = FakeRecords()
        self.budget = 1.0
        self.usage = secondary_usage.SecondaryUsage(
            lambda: self.budget, self.records, clock=lambda: self.now
        )

    def use(self, host):
        return self.usage.uses([host])[0]

    def test_quiet_host_needs_no_query(self):
        host = fakes.host(instances=[
            fakes.instance(1, fakes.secondary_flavor(2, 512, 5)),
            fakes.instance(2, fakes.secondary_flavor(1, 256)),
            fakes.instance(3, fakes.flavor(4, 1024, 9))])
        self.assertEqual(
            secondary_usage.HostUsage(vcpus=3, memory_mb=768, disk_mb=5 * 1024,
                                      instances=2),
            self.use(host))
        self.assertEqual([], self.records.asked)

    def test_unknown_instances_of_all_hosts_are_queried_once(self):
        hosts = [fakes.host(f'node{n}', instances=[
            fakes.instance(10 * n + k) for k in range(3)]) for n in range(5)]
        self.records.instances = {
            fakes.uuid(10 * n + k): record(10 * n + k, secondary=k == 0)
            for n in range(5) for k in range(3)}
        for _ in range(2):
            found = self.usage.uses(hosts)
            self.assertEqual([1] * 5, [use.instances for use in found])
        self.assertEqual([('instances', 15)], self.records.asked)
        # New numbers of a host, but no new instance: no query.
        hosts[0].updated = fakes.moment(1)
        self.usage.uses(hosts)
        self.assertEqual(1, len(self.records.asked))

    def test_host_in_motion_is_read_again_when_its_numbers_change(self):
        old = fakes.instance(1, fakes.secondary_flavor())
        self.records.hosts['node1'] = [record(1), record(2, vcpus=2)]
        host = fakes.host(instances=[old], num_instances=2)
        self.assertEqual(3, self.use(host).vcpus)
        self.assertEqual(3, self.use(host).vcpus)
        self.assertEqual([('hosts', 'node1')], self.records.asked)
        self.records.hosts['node1'] = [record(1)]
        self.assertEqual(1, self.use(fakes.host(
            instances=[old], num_instances=2, updated=5)).vcpus)

    def test_instance_of_the_present_request_does_not_count(self):
        host = fakes.host(instances=[
            fakes.instance(1, fakes.secondary_flavor())])
        self.use(host)
        host.num_instances += 1     # consumed by a multi-create
        self.assertEqual(1, self.use(host).instances)
        self.assertEqual([], self.records.asked)

    def test_io_operations_belong_to_the_youngest_instances(self):
        self.records.hosts['node1'] = [
            record(1, secondary=True, born=10),
            record(2, secondary=False, born=20),
            record(3, secondary=True, born=30)]
        instances = [fakes.instance(n, fakes.flavor()) for n in (1, 2, 3)]
        for counted, ours in ((1, 1), (2, 1), (3, 2)):
            self.assertEqual(ours, self.use(fakes.host(
                instances=instances, io_workload=counted)).io_ops)

    def test_measured_free_disk_lacks_secondaries_of_that_time(self):
        # Of 100 GiB a primary has 30.  Since the measurement another primary
        # with 10 was removed, and the second secondary arrived.
        for came in (5, 10, 25):
            disks = (30, 20, came)
            instances = [
                fakes.instance(1, fakes.flavor(disk=30)),
                fakes.instance(2, fakes.secondary_flavor(disk=20)),
                fakes.instance(3, fakes.secondary_flavor(disk=came))]
            self.records.hosts['node1'] = [
                record(n, secondary=n > 1, disk=disk, born=n)
                for n, disk in enumerate(disks, 1)]
            self.records.measured['node1'] = 100 - 30 - 10 - 20
            with self.subTest(came):
                host = fakes.host(instances=instances, updated=came,
                                  io_workload=1)
                free = min(host.free_disk_mb, 1024 * 40)
                # Without the two, the host would have measured 60.
                self.assertEqual(60 * 1024, free + self.use(host).disk_mb)

    def test_disk_measured_again_within_a_second_is_noticed(self):
        ours = fakes.instance(1, fakes.secondary_flavor(disk=20))
        self.records.hosts['node1'] = [record(1, disk=20, born=1)]
        for measured in (60, 40):
            self.records.measured['node1'] = measured
            host = fakes.host(instances=[ours], io_workload=1)
            host.free_disk_mb = measured * 1024
            with self.subTest(measured):
                self.assertEqual(0, self.use(host).disk_mb)
        self.assertEqual(2, len(self.records.asked))

    def test_failures_belong_to_the_last_builds(self):
        self.records.failed['node1'] = [
            (90, fakes.uuid(4)), (50, fakes.uuid(3)), (40, fakes.uuid(2)),
            (30, fakes.uuid(1)), (20, fakes.uuid(9))]
        self.records.instances = {
            fakes.uuid(n): record(n, secondary=n in (2, 3, 4, 9))
            for n in (1, 2, 3, 4, 9)}
        # The build that began at 90 is not in numbers reported at 60.
        for counted, ours in ((1, 1), (2, 2), (3, 2), (4, 3)):
            self.assertEqual(ours, self.use(fakes.host(
                updated=60, failed_builds=counted)).failed_builds)

    def test_failure_without_a_record_counts_as_a_primarys(self):
        self.records.failed['node1'] = [(50, fakes.uuid(1))]
        self.assertEqual(0, self.use(fakes.host(
            updated=60, failed_builds=3)).failed_builds)

    def test_failed_database_leaves_novas_numbers_and_pauses_queries(self):
        self.records.broken = True
        known = fakes.host('node1', instances=[
            fakes.instance(1, fakes.secondary_flavor())])
        unknown = fakes.host('node2', instances=[fakes.instance(2)])
        found = self.usage.uses([known, unknown])
        self.assertEqual([True, False], [use is not None for use in found])
        self.usage.uses([known, unknown])
        self.assertEqual(1, len(self.records.asked))
        self.now = secondary_usage.PAUSE
        self.records.broken = False
        self.records.instances = {fakes.uuid(2): record(2)}
        self.assertEqual(1, self.use(unknown).instances)

    def test_failures_are_unknown_without_the_database(self):
        self.records.broken = True
        self.assertIsNone(self.use(fakes.host(failed_builds=1)))
        self.assertIsNone(self.use(fakes.host(num_instances=1)))

    def test_time_budget_is_kept(self):
        self.budget = 0.0
        self.assertIsNone(self.use(fakes.host(num_instances=1)))
        self.assertIsNone(self.use(fakes.host('node2', failed_builds=1)))
        self.assertEqual([], self.records.asked)
        self.budget = 1.0
        hosts = [fakes.host('node3', instances=[
            fakes.instance(n) for n in range(2 * secondary_usage.BATCH)])]
        asked = self.records.of_instances

        def slow(cell, uuids):
            self.now += 1.0
            return asked(cell, uuids)

        self.records.of_instances = slow
        self.assertEqual([None], self.usage.uses(hosts))
        self.assertEqual(
            [('instances', secondary_usage.BATCH)], self.records.asked)

    def test_resize_is_noticed(self):
        before = fakes.host(instances=[
            fakes.instance(1, fakes.secondary_flavor(1))])
        after = fakes.host(updated=1, instances=[
            fakes.instance(1, fakes.flavor(2))])
        resynchronised = fakes.host(updated=2, instances=[fakes.instance(1)],
                                    num_instances=1)
        self.assertEqual(1, self.use(before).instances)
        self.assertEqual(0, self.use(after).instances)
        self.assertEqual(0, self.use(resynchronised).instances)
        self.assertEqual([], self.records.asked)

    def test_bare_metal_is_not_queried(self):
        self.assertEqual(secondary_usage.HostUsage(), self.use(fakes.host(
            hypervisor='ironic', num_instances=5)))
        self.assertEqual([], self.records.asked)

    def test_cells_are_queried_separately(self):
        hosts = [fakes.host(name, num_instances=1) for name in 'ab']
        hosts[1].cell_uuid = fakes.uuid(8888)
        self.usage.uses(hosts)
        self.assertEqual([('hosts', 'a'), ('hosts', 'b')],
                         self.records.asked)

    def test_memory_is_bounded(self):
        self.records.instances = {fakes.uuid(n): record(n) for n in range(9)}
        limit, secondary_usage.MEMORY = secondary_usage.MEMORY, 5
        self.addCleanup(setattr, secondary_usage, 'MEMORY', limit)
        host = fakes.host(instances=[fakes.instance(n) for n in range(9)])
        self.assertEqual(9, self.use(host).instances)
        self.assertEqual({}, self.usage._instances)

    def test_host_that_never_reported_has_no_secondaries(self):
        host = fakes.host()
        host.updated = None
        del host.stats
        self.assertEqual(secondary_usage.HostUsage(), self.use(host))

    def test_times_in_the_database_have_no_zone(self):
        self.assertIsNone(secondary_usage._naive(None))
        self.assertEqual(datetime.datetime(2026, 1, 1),
                         secondary_usage._naive(fakes.moment(0)))
