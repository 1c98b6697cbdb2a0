# SPDX-License-Identifier: Apache-2.0

"""Admission of secondaries; primaries always pass."""

import time
import unittest
from unittest import mock

from nova import objects
from nova.scheduler import filters as nova_filters

from secondary_scheduler.model import holds, vocabulary
from secondary_scheduler.model.arrivals import Arrival
from secondary_scheduler.model.reports import PolicyState
from secondary_scheduler.nova import (
    filters,
    report_books,
    request,
    settings,
)
from tests.unit.nova import fakes


class FilterCase(unittest.TestCase):

    def setUp(self):
        fakes.configure(self)
        self.books = report_books.ReportBooks()
        for patch in (
                mock.patch.object(report_books, '_books', self.books),
                mock.patch.object(self.books, '_listen',
                                  return_value=mock.Mock())):
            patch.start()
            self.addCleanup(patch.stop)
        self.filter = filters.SecondaryPolicyFilter()
        self.host = fakes.host()
        self.seq = 1

    def passes(self, spec=None):
        spec = spec or fakes.spec(fakes.secondary_flavor())
        one = self.filter.host_passes(self.host, spec)
        every = list(self.filter.filter_all([self.host], spec))
        self.assertEqual([self.host] if one else [], every)
        return one

    def accept(self, **fields):
        self.assertTrue(self.books.book.accept(fakes.report(**fields)))


class AdmissionTest(FilterCase):

    def test_host_with_room_passes(self):
        self.accept()
        self.assertTrue(self.passes())

    def test_host_without_report_is_closed(self):
        self.assertFalse(self.passes())

    def test_host_with_stale_report_is_closed(self):
        self.accept()
        with mock.patch.object(self.books.book, '_clock',
                               return_value=4e9):
            self.assertFalse(self.passes())

    def test_host_closed_by_its_agent_is_closed(self):
        self.accept(admission=False, reason='too hot')
        self.assertFalse(self.passes())

    def test_host_with_violated_policy_is_closed(self):
        for seq, state in enumerate((PolicyState.VIOLATED,
                                     PolicyState.INVALID)):
            self.accept(seq=seq + 1, state=state)
            self.assertFalse(self.passes())
        self.accept(seq=9, state=PolicyState.FAILING)
        self.assertTrue(self.passes())

    def test_host_of_an_agent_with_other_policies_is_closed(self):
        self.accept(policies_hash='0' * 16)
        self.assertFalse(self.passes())

    def test_aggregate_policy_limits_running_secondaries(self):
        fakes.configure(self, policy=[
            fakes.POLICY, 'slots <= 3 in aggregate:rack'])
        for hosts, allowed in ((['node1', 'node2'], False), (['node1'], True)):
            self.host.aggregates = [objects.Aggregate(
                name='rack', hosts=hosts)]
            # A migrating instance is on both hosts and counts once.
            for seq, extra in enumerate((1, 2), start=self.seq):
                self.accept(seq=seq, instances=2)
                self.accept(seq=seq, host='node2', instances=extra + 1)
                self.assertEqual(extra == 1 or allowed, self.passes())
            self.seq += 2
        # A move among these hosts does not raise the number.
        self.host.aggregates[0].hosts = ['node1', 'node2']
        self.assertFalse(self.passes())
        self.assertTrue(self.passes(fakes.spec(
            fakes.secondary_flavor(), instance_uuid=fakes.uuid(1))))
        self.host.aggregates = []
        self.assertTrue(self.passes())
        self.assertTrue(self.filter.host_passes(
            self.host, fakes.spec(fakes.flavor())))

    def test_aggregate_with_an_unknown_host_is_closed_for_new_servers(self):
        fakes.configure(self, policy=[
            fakes.POLICY, 'slots <= 3 in aggregate:rack'])
        self.host.aggregates = [objects.Aggregate(
            name='rack', hosts=['node1', 'node2'])]
        self.accept()
        self.assertFalse(self.passes())
        # Neither primaries nor moves wait.
        self.assertTrue(self.passes(fakes.spec(fakes.flavor())))
        self.assertTrue(self.passes(fakes.spec(
            fakes.secondary_flavor(),
            requested_destination=objects.Destination(host='node1'))))
        self.accept(host='node2')
        self.assertTrue(self.passes())

    def test_changed_policies_apply_at_once(self):
        self.accept()
        self.assertTrue(self.passes())
        fakes.configure(self, policy=['cpu <= 80% for 10s'])
        self.assertFalse(self.passes())
        self.accept(seq=2)
        self.assertTrue(self.passes())

    def test_unreadable_or_missing_policies_close_all_hosts(self):
        self.accept()
        for policies in (['cpu <= lots'], []):
            fakes.configure(self, policy=policies)
            for _ in range(2):
                self.assertFalse(self.passes())

    def test_limit_of_predicted_slowdown_closes_a_host_for_a_class(self):
        self.accept(arrivals={'web': Arrival(1.5, 9.0)})
        specs = {name: fakes.secondary_flavor(**{
            'lifecycle:workload_class': name}) for name in ('web', 'db')}
        self.assertTrue(self.passes(fakes.spec(specs['web'])))
        for limit, passes in ((1.5, True), (1.4, False)):
            fakes.configure(self, highest_predicted_slowdown=limit)
            self.assertIs(passes, self.passes(fakes.spec(specs['web'])))
            # Nothing is predicted for others, a move relieves a primary, and
            # the host of a lease's server is chosen already.
            for spec in (fakes.spec(specs['db']), None, fakes.spec(
                    specs['web'], ignore_hosts=['node2']), fakes.spec(
                        specs['web'], scheduler_hints={
                            vocabulary.HOST_HINT: ['node1']})):
                self.assertTrue(self.passes(spec))

    def test_server_of_a_lease_passes_only_its_host(self):
        self.accept()
        flavor = fakes.secondary_flavor()
        for host, passes in (('node1', True), ('node2', False)):
            hints = {vocabulary.HOST_HINT: [host]}
            self.assertIs(passes, self.passes(fakes.spec(
                flavor, scheduler_hints=hints)))
        # Nova itself sets zones and aggregates as destination.
        self.assertFalse(self.passes(fakes.spec(
            flavor, scheduler_hints=hints,
            requested_destination=objects.Destination(aggregates=['x']))))
        # The hint is ignored on a move.
        self.assertTrue(self.passes(fakes.spec(
            flavor, scheduler_hints=hints,
            requested_destination=objects.Destination(host='node1'))))
        self.assertTrue(self.passes(fakes.spec(
            flavor, scheduler_hints=hints, ignore_hosts=['node2'])))

    def hold(self, *room, leases=(), host='node1'):
        self.seq += 1
        self.assertTrue(self.books.holds.accept(holds.Holds(
            'a', self.seq, time.time(), {host: holds.Hold(
                dict(zip(vocabulary.RESOURCE_CLASSES, room, strict=True)),
                leases)})))

    def test_held_resources_are_for_their_lease_only(self):
        self.accept()
        flavor = fakes.secondary_flavor(2, 512, 10)
        for room, passes in (((2, 512, 10, 1), True), ((1, 512, 10, 1), False),
                             ((2, 511, 10, 1), False), ((2, 512, 9, 1), False),
                             ((2, 512, 10, 0), False)):
            self.hold(*room)
            self.assertIs(passes, self.passes(fakes.spec(flavor)), room)
        self.hold(0, 0, 0, 0, leases={'coming'})
        for lease, passes in (('coming', True), ('another', False)):
            self.assertIs(passes, self.passes(fakes.spec(
                flavor, scheduler_hints={
                    vocabulary.LEASE_HINT: [lease],
                    vocabulary.HOST_HINT: ['node1']})))
        # Moves, which relieve primaries, and primaries are exempt.
        self.assertTrue(self.passes(fakes.spec(
            flavor, requested_destination=objects.Destination(
                host='node1'))))
        self.assertTrue(self.passes(fakes.spec(fakes.flavor())))

    def test_holds_of_other_hosts_and_stale_holds_do_not_count(self):
        self.accept()
        self.hold(0, 0, 0, 0, host='node2')
        self.assertTrue(self.passes())
        self.hold(0, 0, 0, 0)
        self.assertFalse(self.passes())
        with mock.patch.object(self.books.holds, '_clock',
                               return_value=4e9):
            self.assertTrue(self.passes())

    def test_rebuild_is_not_filtered(self):
        spec = fakes.spec(fakes.secondary_flavor(),
                          scheduler_hints={'_nova_check_type': ['rebuild']})
        self.assertTrue(self.passes(spec))
        self.assertFalse(self.filter.RUN_ON_REBUILD)

    def test_candidate_with_primary_resources_is_refused(self):
        self.accept()
        child = vocabulary.child_provider_uuid(self.host.uuid)
        ours = {child: {'resources': {vocabulary.VCPU: 1}}}
        for root, expected in (
                ({'MEMORY_MB': 1}, True), ({'MEMORY_MB': 2}, False),
                ({'MEMORY_MB': 1, 'PCPU': 1}, False), ({}, False)):
            self.host.allocation_candidates = [{'allocations': {
                self.host.uuid: {'resources': root}, **ours}}]
            self.assertEqual(expected, self.passes(), root)
        self.host.allocation_candidates = [{'allocations': {
            self.host.uuid: {'resources': {'MEMORY_MB': 1}},
            fakes.uuid(5): {'resources': {'VGPU': 1}}, **ours}}]
        self.assertFalse(self.passes())


class IllFormedTest(FilterCase):

    def setUp(self):
        super().setUp()
        self.accept()

    def test_ill_formed_flavors_are_refused(self):
        good = fakes.secondary_flavor()
        self.assertTrue(self.passes(fakes.spec(good)))
        for key, value in (
                ('resources:VCPU', '1'), ('resources:MEMORY_MB', '256'),
                ('resources:' + vocabulary.SLOT, '2'),
                ('hw:cpu_policy', 'dedicated'), ('hw:numa_nodes', '1'),
                ('resources:VGPU', '1'), (vocabulary.PRIORITY, '11'),
                (vocabulary.MARKER, 'false'),
                (vocabulary.PREEMPT_POLICY, 'vaporize')):
            self.assertFalse(self.passes(fakes.spec(
                fakes.secondary_flavor(**{key: value}))), key)

    def test_flavor_with_marker_but_no_resources_is_refused(self):
        self.assertFalse(self.passes(fakes.spec(fakes.flavor(
            extra_specs={vocabulary.MARKER: 'true'}))))

    def test_delete_is_a_valid_preempt_policy(self):
        self.assertTrue(self.passes(fakes.spec(fakes.secondary_flavor(
            **{vocabulary.PREEMPT_POLICY: 'delete'}))))

    def test_images_with_primary_properties_are_refused(self):
        for image in ({'hw_cpu_policy': 'dedicated'}, {'hw_numa_nodes': 1},
                      {'hw_mem_encryption': True},
                      {'hw_pci_numa_affinity_policy': 'required'}):
            self.assertFalse(self.passes(fakes.spec(
                fakes.secondary_flavor(), image=image)), image)
        self.assertTrue(self.passes(fakes.spec(
            fakes.secondary_flavor(), image={'hw_cpu_policy': 'shared'})))

    def test_request_without_image_passes(self):
        spec = fakes.spec(fakes.secondary_flavor())
        spec.image = None
        self.assertTrue(self.passes(spec))

    def test_numa_pci_and_port_resources_are_refused(self):
        flavor = fakes.secondary_flavor()
        for fields in (
                {'numa_topology': objects.InstanceNUMATopology(cells=[])},
                {'pci_requests': objects.InstancePCIRequests(
                    requests=[objects.InstancePCIRequest(count=1)])},
                {'requested_resources': [objects.RequestGroup(
                    resources={'NET_BW_EGR_KILOBIT_PER_SEC': 1})]}):
            self.assertFalse(self.passes(fakes.spec(flavor, **fields)))
        self.assertTrue(self.passes(fakes.spec(
            flavor, pci_requests=objects.InstancePCIRequests(requests=[]))))

    def test_disk_counts_ephemeral_and_swap(self):
        flavor = fakes.secondary_flavor(disk=13)
        flavor.root_gb, flavor.ephemeral_gb, flavor.swap = 10, 2, 512
        self.assertTrue(self.passes(fakes.spec(flavor)))


class PrimaryTest(FilterCase):
    """No data, bad data, broken code: a primary passes untouched."""

    def setUp(self):
        super().setUp()
        self.spec = fakes.spec(fakes.flavor())

    def test_primary_passes_without_policies_and_reports(self):
        self.assertTrue(self.passes(self.spec))
        hosts = [self.host]
        self.assertIs(hosts, self.filter.filter_all(hosts, self.spec))

    def test_exception_of_ours_never_stops_a_primary(self):
        boom = RuntimeError('boom')
        for where, name in (
                (request, 'is_secondary'), (request, 'problems'),
                (request, 'takes_primary_resources'),
                (report_books, 'book'), (settings, 'policies'),
                (filters, '_Admission')):
            self.accept(seq=hash(name) % 10 ** 9 + 10 ** 9, incarnation=name)
            with self.subTest(name), mock.patch.object(
                    where, name, side_effect=boom):
                self.assertTrue(self.passes(self.spec))
                if name != 'is_secondary':
                    self.assertFalse(self.passes())

    def test_unreadable_flavor_is_a_primary(self):
        for flavor in (objects.Flavor(), None):
            spec = mock.Mock(flavor=flavor)
            self.assertTrue(self.filter.host_passes(self.host, spec))
        self.assertTrue(self.filter.host_passes(self.host, None))

    def test_filter_works_in_novas_handler(self):
        class Refuses(nova_filters.BaseHostFilter):
            def host_passes(self, host_state, spec):
                return False
        handler = nova_filters.HostFilterHandler()
        self.assertEqual([self.host], handler.get_filtered_objects(
            [self.filter], [self.host], self.spec))
        self.assertEqual([], list(handler.get_filtered_objects(
            [self.filter, Refuses()], iter([self.host]), self.spec) or ()))


class PluginsTest(unittest.TestCase):

    def test_filters_are_loaded_by_stevedore(self):
        found = mock.Mock(plugin=filters.SecondaryPolicyFilter)
        with mock.patch.object(filters.extension, 'ExtensionManager',
                               return_value=[found]) as manager:
            self.assertEqual([filters.SecondaryPolicyFilter],
                             filters.all_filters())
        self.assertEqual(filters.NAMESPACE, manager.call_args.args[0])

    def test_plug_in_that_cannot_be_loaded_is_logged(self):
        with mock.patch.object(filters.extension, 'ExtensionManager',
                               return_value=[]) as manager:
            self.assertEqual([], filters.load_plugins('some.namespace'))
        log_failure = manager.call_args.kwargs['on_load_failure_callback']
        with self.assertLogs('secondary_scheduler.nova.filters') as logs:
            log_failure(None, mock.Mock(), ImportError('no such module'))
        self.assertIn('no such module', logs.output[0])
